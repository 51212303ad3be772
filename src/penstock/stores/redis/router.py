"""Sends commands to the node that has their key, and follows it when it moves."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.stores.redis.cluster import Nodes, key_of
from penstock.stores.redis.line import Line, ReplyError, dial, pack
from penstock.stores.redis.pool import Pool
from penstock.stores.redis.url import Address, Target

_REDIRECTS: Final = 5
_SLOTS: Final = pack([("CLUSTER", "SLOTS")])


class Router:
    """The pools of one server, or of the nodes of one cluster.

    A command that is sent on was refused where it was first: nothing is executed twice.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._nodes = Nodes(target.address)
        self._pools: dict[tuple[Address, bool], Pool] = {}
        self._is_cluster = False
        self._is_stale = False

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    async def ask(self, commands: Sequence[Sequence[Any]], *, is_alone: bool = False) -> list[Any]:
        """The replies to commands about one queue; `is_alone`, on a connection that nobody else uses."""
        if self._is_stale:
            await self.learn()
        address = self._nodes.at(commands[0])
        packed, count = pack(commands), len(commands)
        # Alone on a connection there is nothing to keep in order.
        key = None if is_alone else key_of(commands[0])
        replies: list[Any] = []
        for _ in range(_REDIRECTS):
            replies = await self._call(address, packed, count, is_alone, key)
            said = _elsewhere(replies[0])
            if said is None:
                break
            address = self._follow(said)
            if said.startswith("ASK "):
                # The slot is on its way; until it is there, each command has to say that it knows.
                asking = b"".join(pack([("ASKING",), command]) for command in commands)
                return (await self._call(address, asking, 2 * count, is_alone))[1::2]
        return replies

    async def ask_all(self, commands: Sequence[Sequence[Any]], *, partly: bool = False) -> list[Any]:
        """The replies to commands about any queues, in one round trip per node.

        With `partly`, a node that cannot be reached is the reply to its commands, unless none can be.
        """
        if not self._is_cluster:
            return await self.ask(commands)
        if self._is_stale:
            await self.learn()
        groups: dict[Address, list[int]] = {}
        for number, command in enumerate(commands):
            groups.setdefault(self._nodes.at(command), []).append(number)
        replies: list[Any] = [None] * len(commands)
        lost: list[OSError] = []
        for address, numbers in groups.items():
            packed = pack([commands[number] for number in numbers])
            answers: list[Any]
            try:
                answers = await self._call(address, packed, len(numbers), False)
            except OSError as error:
                lost.append(error)
                if not partly or len(lost) == len(groups):
                    raise
                answers = [error] * len(numbers)
            for number, answer in zip(numbers, answers, strict=True):
                is_elsewhere = _elsewhere(answer) is not None
                replies[number] = (await self.ask([commands[number]]))[0] if is_elsewhere else answer
        return replies

    async def ask_at_once(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies to commands about one queue, with nothing in between."""
        if self._is_stale:
            await self.learn()
        address = self._nodes.at(commands[0])
        whole: list[Sequence[Any]] = [("MULTI",), *commands, ("EXEC",)]
        answer: Any = None
        for _ in range(_REDIRECTS):
            *before, last = await self._call(address, pack(whole), len(whole), False)
            # What was wrong with a command says more than that for this reason nothing was executed.
            answer = next((each for each in before if isinstance(each, ReplyError)), last)
            said = _elsewhere(answer)
            if said is None:
                break
            address = self._follow(said)
            if said.startswith("ASK "):
                whole = [("ASKING",), *whole]
        if isinstance(answer, ReplyError):
            raise answer
        return list(answer)

    async def learn(self) -> None:
        """Ask which node of the cluster has which slots; any that answers will do."""
        self._is_cluster = True

        async def slots(address: Address) -> None:
            [reply] = await self._pool(address, False).call(_SLOTS, 1)
            if isinstance(reply, ReplyError):
                raise reply
            self._nodes.learn(reply)

        await self._first(slots)
        self._is_stale = False

    async def dial(self, heard: Callable[[Any], None]) -> Line:
        """A connection of its own to any node, for what comes unasked."""
        lines: list[Line] = []

        async def connect(address: Address) -> None:
            lines.append(await dial(self.target, address, heard=heard))

        await self._first(connect)
        return lines[0]

    async def _first(self, attempt: Callable[[Address], Any]) -> None:
        """Try one address after the other until one works; raises what the last one said."""
        addresses = self._nodes.all()
        for number, address in enumerate(addresses, 1):
            try:
                await attempt(address)
            except (OSError, ReplyError):
                if number == len(addresses):
                    raise
            else:
                return

    def _follow(self, said: str) -> Address:
        self._is_cluster = True
        return self._nodes.move(said)

    async def _call(
        self, address: Address, packed: bytes, count: int, is_alone: bool, key: bytes | None = None
    ) -> list[Any]:
        try:
            return await self._pool(address, is_alone).call(packed, count, key)
        except OSError:
            # Another node may have its slots by now.
            self._is_stale = self._is_cluster
            raise

    def _pool(self, address: Address, is_alone: bool) -> Pool:
        pool = self._pools.get((address, is_alone))
        if pool is None:
            target, patience = self.target, 0.0
            if is_alone:
                numbers = msgspec.structs.replace(target.numbers, calls_per_connection=1, idle_connections=0)
                target, patience = msgspec.structs.replace(target, numbers=numbers), numbers.wait_timeout
            pool = self._pools[address, is_alone] = Pool(target, address, patience=patience)
        return pool


def _elsewhere(reply: Any) -> str | None:
    """What the server says when another one has the key."""
    said = str(reply) if isinstance(reply, ReplyError) else ""
    return said if said.startswith(("MOVED ", "ASK ")) else None
