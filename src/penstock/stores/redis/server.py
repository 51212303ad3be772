"""The way to the server: commands, scripts, and Penstock's own errors."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.core.errors import NotReplicatedError, PenstockError, StoreError, StoreUnavailableError
from penstock.core.moves import Move
from penstock.core.store_url import parse_url, secrets_of
from penstock.stores.redis.address import Address, PoolSettings, parse
from penstock.stores.redis.cluster import key_of
from penstock.stores.redis.connection import Connection, ReplyError
from penstock.stores.redis.faults import Faults, QueueNotOpenError
from penstock.stores.redis.router import Router
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.shapes import shaped

__all__ = ["QueueNotOpenError", "Server"]

_REPLICATED: Final = frozenset({Move.ENQUEUE})
"""Scripts whose answer is a promise to someone outside. What else a lost server forgets is done again."""
_MARK_MS: Final = 60_000
_ENCODER: Final = msgspec.msgpack.Encoder()


class Server:
    """One server or cluster, used from one event loop.

    No call is repeated here: after a lost answer only the caller knows whether a second one is harmless.
    """

    def __init__(self, url: str, scripts: Scripts) -> None:
        self._url = url
        self._scripts = scripts
        self._router: Router | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Says what is wrong with it before anybody connects.
        parse(url)
        self.url = parse_url(url).shown
        self._faults = Faults(self.url, secrets_of(url))

    def open(self) -> None:
        """Get ready; connections are made when they are needed. Once more changes nothing."""
        loop = asyncio.get_running_loop()
        if self._router is None or self._loop is not loop:
            # Connections of another loop have ended with it.
            self._router, self._loop = Router(parse(self._url)), loop

    def proven(self) -> None:
        """It is the right server: a login or a write that it refuses from now on is a fault that passes."""
        self._faults.is_proven = True

    async def close(self) -> None:
        """Close every connection. Harmless when there is none."""
        router, self._router = self._router, None
        self._faults.is_proven = False
        if router is not None and self._loop is asyncio.get_running_loop():
            await router.close()

    @property
    def pool_settings(self) -> PoolSettings:
        """The numbers that the url has set."""
        return self._opened.target.settings

    @property
    def database(self) -> int:
        """The number of the database that the url names."""
        return self._opened.target.database

    async def command(self, *arguments: Any) -> Any:
        """One command."""
        with self._faults.translated():
            [reply] = await self._opened.execute([arguments])
            return shaped(arguments, _checked(reply))

    async def commands(self, commands: Sequence[Sequence[Any]], *, at_once: bool = False) -> list[Any]:
        """Many commands in one round trip; `at_once` lets nothing come between them."""
        if not commands:
            return []
        with self._faults.translated():
            replies = await (self._at_once(commands) if at_once else self._opened.execute_all(commands))
            return [shaped(each, _checked(reply)) for each, reply in zip(commands, replies, strict=True)]

    async def commands_where_reachable(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Many commands in one round trip per node; for those of a node that is away, the error instead.

        Raises where no node at all can be reached, and what is wrong with a command itself.
        """
        with self._faults.translated():
            replies = await self._opened.execute_all(commands, partly=True)
        answers = [
            self._faults.translate(each) if isinstance(each, ReplyError | OSError) else shaped(command, each)
            for command, each in zip(commands, replies, strict=True)
        ]
        for each in answers:
            if isinstance(each, PenstockError) and not isinstance(each, StoreUnavailableError):
                raise each
        return answers

    async def node_commands(self, node: Address, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Commands that one node answers about itself."""
        with self._faults.translated():
            replies = await self._opened.execute_on(node, commands)
            return [shaped(each, _checked(reply)) for each, reply in zip(commands, replies, strict=True)]

    @property
    def addresses(self) -> int:
        """How many addresses the url has."""
        return len(self._opened.target.addresses)

    @property
    def is_cluster(self) -> bool:
        """True when the server was found to be part of a cluster."""
        return self._opened.is_cluster

    def primaries(self) -> list[Address]:
        """The nodes that have slots; of a server that is no cluster, its address."""
        return self._opened.primaries()

    async def run(self, name: str, keys: Sequence[str | bytes], *arguments: Any) -> Any:
        """One script. A server that does not have it gets it."""
        script = self._scripts.get(name)
        tail = (len(keys), *keys, *arguments)
        settings = self.pool_settings
        is_replicated = name in _REPLICATED and settings.wait_replicas > 0
        after = _replication_wait(settings, keys[0]) if is_replicated else ()
        with self._faults.translated():
            replies = await self._opened.execute(
                [("EVALSHA", script.sha, *tail), *after], is_alone=is_replicated
            )
            if isinstance(replies[0], ReplyError) and str(replies[0]).startswith("NOSCRIPT"):
                replies = await self._opened.execute(
                    [("EVAL", script.text, *tail), *after], is_alone=is_replicated
                )
            answer = _checked(replies[0])
        if is_replicated:
            self._check_replicas(settings, replies[1:])
        return answer

    async def run_each(self, name: str, keys: Sequence[str], *arguments: Any) -> list[Any]:
        """One script once for each key, in one round trip per node.

        An answer that is an error stands in its place, also for the keys of a node that cannot be reached.
        Raises only where nothing at all was answered.
        """
        script = self._scripts.get(name)
        tails = [(1, key, *arguments) for key in keys]
        answers: list[Any] = [None] * len(tails)
        left = list(range(len(tails)))
        while left:
            with self._faults.translated():
                asked = [("EVALSHA", script.sha, *tails[number]) for number in left]
                replies = await self._opened.execute_all(asked, partly=True)
            for number, reply in zip(left, replies, strict=True):
                answers[number] = reply
            left = [number for number in left if _is_without_script(answers[number])]
            if left:
                # The node has it for the others then, which are asked once more.
                answers[left[0]] = await self._evaluated(script.text, tails[left[0]])
                left = left[1:]
        return [
            self._faults.translate(each) if isinstance(each, ReplyError | OSError) else each
            for each in answers
        ]

    async def _evaluated(self, text: str, tail: Sequence[Any]) -> Any:
        """The reply to a script; a node that is away is the reply."""
        try:
            [reply] = await self._opened.execute([("EVAL", text, *tail)])
        except OSError as error:
            return error
        return reply

    async def learn_nodes(self) -> None:
        """Find the nodes of the cluster that the server is part of."""
        with self._faults.translated():
            await self._opened.learn()

    async def connect(self, on_push: Callable[[Any], None]) -> Connection:
        """A connection of its own, for what comes unasked."""
        return await self._opened.connect(on_push)

    async def _at_once(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        try:
            return await self._opened.execute_at_once(commands)
        except ReplyError as error:
            if not str(error).startswith("OOM"):
                raise
        # Redis 7.0 lets no transaction begin at its maxmemory, not even one that only reads.
        key = key_of(commands[0])
        packed = _ENCODER.encode([[_text(part) for part in command] for command in commands])
        answers: list[Any] = await self.run("reads/at_once", [] if key is None else [key], packed)
        return answers

    def _check_replicas(self, settings: PoolSettings, replies: Sequence[Any]) -> None:
        wrong = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
        if wrong is None:
            replicas = replies[-1]
            if replicas >= settings.wait_replicas:
                return
            outcome = f"{replicas} replicas of {settings.wait_replicas} confirmed it"
        else:
            outcome = f"nobody could confirm it: {wrong}"
        raise NotReplicatedError(
            f"the server at {self.url} has it, but within {settings.wait_timeout:g} s {outcome}; "
            "the same enqueue once more is harmless"
        )

    @property
    def _opened(self) -> Router:
        if self._router is None:
            raise StoreError(f"the store at {self.url} is not open")
        return self._router


def _replication_wait(settings: PoolSettings, key: str | bytes) -> Sequence[Sequence[Any]]:
    """Commands that wait until replicas have what the connection has written.

    A write goes before: without one of its own a repeated call, which finds its jobs there, would wait for
    nothing.
    """
    start = key.encode() if isinstance(key, str) else key
    mark = ("SET", start + b":confirmed", "", "PX", _MARK_MS)
    wait_ms = max(1, round(settings.wait_timeout * 1000))
    return mark, ("WAIT", settings.wait_replicas, wait_ms)


def _is_without_script(reply: Any) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")


def _text(part: Any) -> Any:
    return part if isinstance(part, bytes) else str(part)


def _checked(reply: Any) -> Any:
    if isinstance(reply, ReplyError):
        raise reply
    return reply
