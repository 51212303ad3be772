"""Sends commands to the node that has their key, and follows it when it moves."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.core.errors import PoolTimeoutError
from penstock.stores.redis.address import Address, Target
from penstock.stores.redis.cluster import Nodes, key_of
from penstock.stores.redis.connection import Connection, ReplyError, connect, pack
from penstock.stores.redis.pool import Pool
from penstock.stores.redis.unreachable import UnreachableNodes

_REDIRECTS: Final = 5
_SLOTS: Final = pack([("CLUSTER", "SLOTS")])
_LEARN_PAUSE: Final = 0.1
"""Seconds between two questions for the slots."""
_CANNOT_NOW: Final = ("LOADING", "MASTERDOWN", "BUSY")


class Router:
    """The pools of one server, or of the nodes of one cluster.

    A command that is sent on was refused where it was first: nothing is executed twice. Commands without a
    key are asked of one node after the other until one answers.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._nodes = Nodes(target.addresses)
        self._unreachable = UnreachableNodes(target)
        self._pools: dict[tuple[Address, bool], Pool] = {}
        self._is_cluster = False
        self._is_stale = False
        self._learning = asyncio.Lock()
        self._learnt = 0
        self._learnt_at = float("-inf")

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        await self._unreachable.close()
        for pool in pools.values():
            await pool.close()

    @property
    def is_cluster(self) -> bool:
        """True once a cluster was found."""
        return self._is_cluster

    def primaries(self) -> list[Address]:
        """The nodes that have slots; of a server that is no cluster, its address."""
        return self._nodes.primaries()

    async def execute(self, commands: Sequence[Sequence[Any]], *, is_alone: bool = False) -> list[Any]:
        """The replies to commands about one queue; `is_alone`, on a connection that nobody else uses."""
        if self._is_stale:
            await self._refresh()
        key = key_of(commands[0])
        if key is None:
            return await self._execute_anywhere(commands)
        address = self._at(commands[0])
        packed, count = pack(commands), len(commands)
        # Alone on a connection there is nothing to keep in order.
        key = None if is_alone else key
        replies: list[Any] = []
        for _ in range(_REDIRECTS):
            replies = await self._call(address, packed, count, is_alone, key)
            redirection = _redirection(replies[0])
            if redirection is None:
                break
            address = self._follow(redirection, address)
            if redirection.startswith("ASK "):
                # The slot is on its way; until it is there, each command has to say that it knows.
                asking = b"".join(pack([("ASKING",), command]) for command in commands)
                return (await self._call(address, asking, 2 * count, is_alone))[1::2]
        return replies

    async def execute_on(self, address: Address, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies of one node to commands about itself."""
        return await self._call(address, pack(commands), len(commands), False)

    async def execute_all(self, commands: Sequence[Sequence[Any]], *, partly: bool = False) -> list[Any]:
        """The replies to commands about any queues, in one round trip per node.

        With `partly`, a node that cannot be reached is the reply to its commands, unless none can be.
        """
        if not self._is_cluster:
            return await self.execute(commands)
        if self._is_stale:
            await self._refresh()
        groups: dict[Address | None, list[int]] = {}
        for number, command in enumerate(commands):
            address = None if key_of(command) is None else self._at(command)
            groups.setdefault(address, []).append(number)
        pending = [
            self._execute_group(address, [commands[number] for number in numbers])
            for address, numbers in groups.items()
        ]
        answers = await asyncio.gather(*pending, return_exceptions=True)
        lost = [each for each in answers if isinstance(each, BaseException)]
        if lost and (not partly or len(lost) == len(groups) or not all(isinstance(e, OSError) for e in lost)):
            raise lost[0]
        replies: list[Any] = [None] * len(commands)
        for numbers, found in zip(groups.values(), answers, strict=True):
            each = [found] * len(numbers) if isinstance(found, BaseException) else found
            for number, reply in zip(numbers, each, strict=True):
                replies[number] = reply
        if not partly and (error := next((each for each in replies if isinstance(each, OSError)), None)):
            raise error
        return replies

    async def _execute_group(self, address: Address | None, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies to commands for one node; one that was sent on to a lost node has that as its reply."""
        if address is None:
            return await self._execute_anywhere(commands)
        replies = await self._call(address, pack(commands), len(commands), False)
        for number, command in enumerate(commands):
            if _redirection(replies[number]) is not None:
                try:
                    [replies[number]] = await self.execute([command])
                except OSError as error:
                    replies[number] = error
        return replies

    async def _execute_anywhere(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies of the first node that answers, which is the first to be asked the next time."""
        packed, addresses = pack(commands), self._live_first()
        for number, address in enumerate(addresses, 1):
            is_last = number == len(addresses)
            try:
                replies = await self._call(address, packed, len(commands), False)
            except OSError:
                if is_last:
                    raise
                continue
            except asyncio.CancelledError:
                # The caller has waited long enough: the next one begins with another node.
                self._nodes.prefer(addresses[number % len(addresses)])
                raise
            if is_last or not _cannot_now(replies[0]):
                self._nodes.prefer(address)
                return replies
        raise ConnectionError("no address is known")

    async def execute_at_once(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies to commands about one queue, with nothing in between."""
        if self._is_stale:
            await self._refresh()
        address = self._at(commands[0])
        whole: list[Sequence[Any]] = [("MULTI",), *commands, ("EXEC",)]
        answer: Any = None
        for _ in range(_REDIRECTS):
            *before, last = await self._call(address, pack(whole), len(whole), False)
            # What was wrong with a command says more than that for this reason nothing was executed.
            answer = next((each for each in before if isinstance(each, ReplyError)), last)
            redirection = _redirection(answer)
            if redirection is None:
                break
            address = self._follow(redirection, address)
            if redirection.startswith("ASK "):
                whole = [("ASKING",), *whole]
        if isinstance(answer, ReplyError):
            raise answer
        return list(answer)

    async def learn(self) -> None:
        """Ask which node of the cluster has which slots; any that knows will do."""
        self._is_cluster = True

        async def slots(address: Address) -> None:
            [reply] = await self._pool(address, False).call(_SLOTS, 1)
            if isinstance(reply, ReplyError):
                raise reply
            if not self._nodes.learn(reply, address):
                raise ReplyError(f"CLUSTERDOWN the node at {address} knows no slots")

        # Another one each time: a node that is cut off from the others tells what was.
        live = [address for address in self._nodes.all() if self._unreachable.error(address) is None]
        turn = self._learnt % len(live) if live else 0
        away = [address for address in self._nodes.all() if address not in live]
        await self._first(slots, [*live[turn:], *live[:turn], *away])
        self._learnt += 1
        self._learnt_at = asyncio.get_running_loop().time()
        self._is_stale = False

    async def _refresh(self) -> None:
        """Learn the slots anew, once for all calls that found them changed."""
        async with self._learning:
            if self._is_stale and asyncio.get_running_loop().time() >= self._learnt_at + _LEARN_PAUSE:
                await self.learn()

    async def connect(self, on_push: Callable[[Any], None]) -> Connection:
        """A connection of its own to any node, for what comes unasked."""
        connections: list[Connection] = []

        async def attempt(address: Address) -> None:
            connections.append(await connect(self.target, address, on_push=on_push))

        await self._first(attempt, self._live_first())
        return connections[0]

    async def _first(self, attempt: Callable[[Address], Any], addresses: Sequence[Address]) -> None:
        """Try one address after the other until one works; raises the error of the last one."""
        for number, address in enumerate(addresses, 1):
            try:
                await attempt(address)
            except (OSError, ReplyError) as error:
                if isinstance(error, OSError):
                    self._suspect(address, error)
                if number == len(addresses):
                    raise
            else:
                return

    def _live_first(self) -> list[Address]:
        """Every address; those that are away come last."""
        return sorted(self._nodes.all(), key=lambda address: self._unreachable.error(address) is not None)

    def _at(self, command: Sequence[Any]) -> Address:
        return self._nodes.at(command) or self._live_first()[0]

    def _follow(self, redirection: str, sender: Address) -> Address:
        self._is_cluster = True
        return self._nodes.move(redirection, sender)

    async def _call(
        self, address: Address, packed: bytes, count: int, is_alone: bool, key: bytes | None = None
    ) -> list[Any]:
        if self._is_cluster and (away := self._unreachable.error(address)) is not None:
            self._is_stale = True
            raise ConnectionError(away)
        try:
            replies = await self._pool(address, is_alone).call(packed, count, key)
        except OSError as error:
            self._suspect(address, error)
            raise
        if self._is_cluster and any(_is_down(reply) for reply in replies):
            # The node is cut off from the others, which may have its slots by now.
            self._is_stale = True
        return replies

    def _suspect(self, address: Address, error: OSError) -> None:
        if self._is_cluster:
            # Another node may have its slots by now.
            self._is_stale = True
            if not isinstance(error, PoolTimeoutError):
                self._unreachable.suspect(address)

    def _pool(self, address: Address, is_alone: bool) -> Pool:
        pool = self._pools.get((address, is_alone))
        if pool is None:
            target, extra_timeout = self.target, 0.0
            if is_alone:
                settings = msgspec.structs.replace(
                    target.settings, calls_per_connection=1, idle_connections=0
                )
                target, extra_timeout = (
                    msgspec.structs.replace(target, settings=settings),
                    settings.wait_timeout,
                )
            pool = self._pools[address, is_alone] = Pool(target, address, extra_timeout=extra_timeout)
        return pool


def _redirection(reply: Any) -> str | None:
    """What the server says when another one has the key."""
    message = str(reply) if isinstance(reply, ReplyError) else ""
    return message if message.startswith(("MOVED ", "ASK ")) else None


def _cannot_now(reply: Any) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith(_CANNOT_NOW)


def _is_down(reply: Any) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("CLUSTERDOWN")
