"""The queues themselves: their registry, their numbers, their pauses, their deletion."""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from penstock.core.clocks import ClockStep
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration
from penstock.core.states import State
from penstock.stores.absent import QueueAbsentError
from penstock.stores.redis import keys
from penstock.stores.redis.clock import ServerClock
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.lanes import read_declaration, write_declaration
from penstock.stores.redis.server import QueueNotOpenError, Server
from penstock.stores.values import Pause, QueueContents, QueueInfo

_FACTS: Final = (
    "number",
    "paused_at",
    "paused_why",
    "paused_by",
    "paused_until",
    "declared",
    "made",
    "arrival_us",
    "step_at",
    "step_back_ms",
)
MOST_OPENINGS: Final = 10
"""How often a call opens a queue that others delete again and again."""


class Queues:
    """Opens queues, and runs scripts on queues that are open."""

    def __init__(self, server: Server, clock: ServerClock) -> None:
        self._server = server
        self._clock = clock
        self._open: set[QueueRef] = set()
        self._deleted: set[QueueRef] = set()
        self._numbers: dict[QueueRef, int] = {}
        self._declared: dict[QueueRef, Declaration] = {}
        self._listed: dict[str, dict[str, None]] = {}
        self._reading: dict[str, dict[str, None]] = {}

    async def run(self, queue: QueueRef, script: str, *arguments: Any) -> Any:
        """One script on a queue, which is opened if it is new."""
        if queue not in self._open:
            await self.open(queue)
        names = keys_of(queue).all(self._server.database)
        for _ in range(MOST_OPENINGS):
            try:
                return await self._server.run(script, names, *arguments)
            except QueueNotOpenError:
                # It was deleted, or the server came back without its data. Scripts look for the queue before
                # they change anything.
                await self.open(queue)
        return await self._server.run(script, names, *arguments)

    async def run_if_there(
        self, queue: QueueRef, script: str, *arguments: Any, opens_new: bool = False
    ) -> Any:
        """One script on a queue that is there, or that the server has lost; QueueAbsentError on any other.

        With `opens_new`, one that nobody ever made is opened first.
        """
        if opens_new and queue not in self._open and queue not in self._deleted:
            await self.open(queue)
        names = keys_of(queue).all(self._server.database)
        try:
            return await self._server.run(script, names, *arguments)
        except QueueNotOpenError:
            if not await self._is_lost(queue):
                self._forget(queue)
                raise QueueAbsentError from None
            await self.open(queue)
            return await self._server.run(script, names, *arguments)

    async def open(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        number, facts = await self._server.commands_where_reachable(
            [
                ("HGET", keys.registry(queue.tenant), queue.name),
                ("HMGET", keys_of(queue).meta, *_FACTS),
            ]
        )
        if isinstance(facts, StoreUnavailableError):
            raise facts
        # Most are there, and reading is what a server at its maxmemory, or without its replicas, still does.
        info = self._info(queue, facts)
        if info is None:
            info = await self._make(queue)
        elif number is None:
            await self._list(queue, info.number)
        self._open.add(queue)
        self._deleted.discard(queue)
        return info

    async def _make(self, queue: QueueRef) -> QueueInfo:
        # First of all into the list of those whose clocks are turned: what has a number is in there.
        await self._server.run("queues/list", [keys.QUEUES], f"{queue.tenant}/{queue.name}")
        # A server that lost the queue gets it back as it was known here before it takes anything in; one that
        # was deleted gets another number, and nothing of what it was.
        had = self._numbers.get(queue)
        number, since_us = await self._server.run(
            "queues/register",
            [keys.registry(queue.tenant), keys.deleted(queue.tenant)],
            queue.name,
            "" if had is None else had,
        )
        if number != had:
            self._declared.pop(queue, None)
        known = self._declared.get(queue)
        await self._server.run(
            "queues/open",
            keys_of(queue).all(self._server.database),
            number,
            await self._clock.offset_ms(),
            secrets.token_hex(8),
            b"" if known is None else write_declaration(known),
            since_us,
        )
        # A deletion that was under way may have taken it off the lists in between.
        info = await self.find(queue) or QueueInfo(queue, number)
        await self._list(queue, info.number)
        return info

    async def _list(self, queue: QueueRef, number: int) -> None:
        """Name a queue that is there among those of its tenant and among all."""
        await self._server.run("queues/list", [keys.QUEUES], f"{queue.tenant}/{queue.name}")
        await self._server.run("queues/enlist", [keys.registry(queue.tenant)], queue.name, number)

    async def delete(self, queue: QueueRef) -> QueueContents | None:
        """Delete a queue without jobs, schedules and relay entries; what keeps it, None where there is none.

        The queue goes in one step of its own slot. The lists that name it are in other slots: its number is
        released before, and it is taken off them after, unless somebody has made it anew.
        """
        while (info := await self.find(queue)) is not None:
            registry, since = keys.registry(queue.tenant), keys.deleted(queue.tenant)
            last_us = await self._server.command("HGET", keys_of(queue).meta, "last_us")
            await self._server.run("queues/release", [registry, since], info.number, last_us or 0)
            names = keys_of(queue).all(self._server.database)
            try:
                found, *counts = await self._server.run(
                    "queues/delete", names, info.made, keys.LOWEST_TIER, keys.HIGHEST_TIER
                )
            except QueueNotOpenError:
                break
            if found == b"kept":
                return _contents(*counts)
            if found == b"deleted":
                await self._unlist(queue, info.number)
                return QueueContents()
        self._forget(queue)
        return None

    async def _unlist(self, queue: QueueRef, number: int) -> None:
        self._forget(queue)
        await self._server.run("queues/unregister", [keys.registry(queue.tenant)], queue.name, number)
        await self._server.command("SREM", keys.QUEUES, f"{queue.tenant}/{queue.name}")
        again = await self.find(queue)
        if again is not None:
            await self._list(queue, again.number)

    async def _is_lost(self, queue: QueueRef) -> bool:
        """True for a queue that was known here and is gone without having been deleted."""
        number = self._numbers.get(queue)
        if number is None:
            return False
        released = await self._server.command("HGET", keys.registry(queue.tenant), "*")
        return number > int(released or 0)

    def _forget(self, queue: QueueRef) -> None:
        """The queue was deleted: one of its name that is made later is another one."""
        self._open.discard(queue)
        self._deleted.add(queue)
        self._numbers.pop(queue, None)
        self._declared.pop(queue, None)

    def remember(self, queue: QueueRef, declaration: Declaration) -> None:
        """What the queue is declared as, should the server lose it. Versions only go up."""
        known = self._declared.get(queue)
        if known is None or declaration.version >= known.version:
            self._declared[queue] = declaration

    async def find(self, queue: QueueRef) -> QueueInfo | None:
        """The queue; None if it was never opened."""
        [info] = await self._infos([queue])
        return info

    async def of(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""
        names = await self._server.command("HKEYS", keys.registry(tenant))
        known = sorted(name.decode() for name in names if name != b"*")
        infos = await self._infos([QueueRef(tenant, name) for name in known])
        return [info for info in infos if info is not None]

    async def page(self, tenant: str, after: str, limit: int) -> tuple[list[str], str | None]:
        """Some names of a tenant's queues, and where the next page begins.

        While the node of a cluster that has the list is away, all names that were read of it before.
        """
        scan = ("HSCAN", keys.registry(tenant), after or "0", "COUNT", max(1, limit))
        try:
            cursor, flat = await self._server.command(*scan)
        except StoreUnavailableError:
            known = list(self._listed.get(tenant, ()))
            if not known:
                raise
            return known, None
        names = [name.decode() for name in flat[::2]]
        if not after:
            # The names of the last round are known until this one has come to its end.
            self._reading[tenant] = {}
        read = self._reading.setdefault(tenant, {})
        read.update(dict.fromkeys(names))
        if cursor == b"0":
            self._listed[tenant] = self._reading.pop(tenant)
            return names, None
        return names, cursor.decode()

    async def tenants(self) -> list[str]:
        """The tenants that have queues, by name."""
        listed = await self._server.command("SMEMBERS", keys.QUEUES)
        return sorted({each.decode().partition("/")[0] for each in listed})

    async def pause(self, queue: QueueRef, pause: Pause | None, for_ms: int | None) -> None:
        """Stop claims, for so long if given; None resumes."""
        if pause is None:
            await self.run(queue, "queues/pause", 0)
        else:
            given = (for_ms, pause.reason, pause.by)
            flat = [part for value in given for part in ((0, "") if value is None else (1, value))]
            await self.run(queue, "queues/pause", 1, *flat)

    async def _infos(self, queues: Sequence[QueueRef]) -> list[QueueInfo | None]:
        answers = await self._server.commands([("HMGET", keys_of(queue).meta, *_FACTS) for queue in queues])
        return [self._info(queue, answer) for queue, answer in zip(queues, answers, strict=True)]

    def _info(self, queue: QueueRef, facts: Sequence[bytes | None]) -> QueueInfo | None:
        info = _info(queue, facts)
        if info is not None:
            if self._numbers.get(queue) not in (None, info.number):
                # Another queue of this name: what the old one was declared as says nothing of it.
                self._declared.pop(queue, None)
            self._numbers[queue] = info.number
        if info is not None and info.declaration is not None:
            self.remember(queue, info.declaration)
        return info


def _contents(schedules: int, relays: int, *jobs: Any) -> QueueContents:
    counts = {State(state.decode()): count for state, count in zip(jobs[::2], jobs[1::2], strict=True)}
    return QueueContents(counts, schedules, relays)


def _info(queue: QueueRef, facts: Sequence[bytes | None]) -> QueueInfo | None:
    number, at, why, by, until, declared, made, arrival_us, step_at, step_back_ms = facts
    if number is None:
        return None
    pause = None
    if at is not None:
        pause = Pause(
            int(at),
            None if why is None else why.decode(),
            None if by is None else by.decode(),
            None if until is None else int(until),
        )
    declaration = None if declared is None else read_declaration(declared)
    return QueueInfo(
        queue,
        int(number),
        pause,
        declaration,
        "" if made is None else made.decode(),
        int(arrival_us or 0),
        None if step_at is None else ClockStep(int(step_at), int(step_back_ms or 0)),
    )
