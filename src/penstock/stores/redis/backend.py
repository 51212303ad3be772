"""What every part of the store holds: the server, and which queues are open on it."""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from penstock.core.clocks import STEP_US, ClockStep, stepped
from penstock.core.errors import DamagedQueueError, StoreError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration
from penstock.stores.absent import QueueAbsentError
from penstock.stores.corruption import DECODE_ERRORS, queue_error
from penstock.stores.redis import keys
from penstock.stores.redis.codec.lanes import read_declaration, write_declaration
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.server import QueueNotOpenError, Server
from penstock.stores.redis.server_time import ServerTime
from penstock.stores.values import Pause, QueueInfo

_INFO_FIELDS: Final = (
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
    "last_us",
)
"""The fields of a queue's metadata that make a QueueInfo."""
_Fields = Sequence[bytes | None]
_NO_STEP_US: Final = 1 << 62
"""Later than any clock: no step is seen by it."""
MOST_OPENINGS: Final = 10
"""How often a call opens a queue that others delete again and again."""


class Backend:
    """Runs scripts on queues, and opens a queue whose metadata the server does not have."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.time = ServerTime(server)
        self._open: set[QueueRef] = set()
        self._numbers: dict[QueueRef, int] = {}
        self._declared: dict[QueueRef, Declaration] = {}

    async def run(self, queue: QueueRef, script: str, *arguments: Any) -> Any:
        """One script on a queue, which is opened if it is new."""
        if queue not in self._open:
            await self.open_queue(queue)
        names = keys_of(queue).all(self.server.database)
        for _ in range(MOST_OPENINGS):
            try:
                return await self._run(queue, script, names, *arguments)
            except QueueNotOpenError:
                # The queue was deleted, or the server came back without its data. Scripts look for the queue
                # before they change anything.
                await self.open_queue(queue)
        return await self._run(queue, script, names, *arguments)

    async def run_if_there(self, queue: QueueRef, script: str, *arguments: Any) -> Any:
        """One script on a queue that is there, or that the server has lost; QueueAbsentError on any other."""
        names = keys_of(queue).all(self.server.database)
        try:
            return await self._run(queue, script, names, *arguments)
        except QueueNotOpenError:
            if not await self._is_lost(queue):
                self.forget(queue)
                raise QueueAbsentError from None
            await self.open_queue(queue)
            return await self._run(queue, script, names, *arguments)

    async def _run(self, queue: QueueRef, script: str, names: Sequence[str | bytes], *arguments: Any) -> Any:
        try:
            return await self.server.run(script, names, *arguments)
        except StoreError as error:
            # Lua's words for a value of a type that no script has put there.
            if type(error) is StoreError and ": attempt to " in str(error):
                raise DamagedQueueError(f"queue {queue} cannot be read: {error}") from error
            raise

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        number, found = await self.server.commands_where_reachable(
            [
                ("HGET", keys.registry(queue.tenant), queue.name),
                ("HMGET", keys_of(queue).meta, *_INFO_FIELDS),
            ]
        )
        if isinstance(found, StoreUnavailableError):
            raise found
        # Most queues exist, and a server at its maxmemory, or without its replicas, still reads.
        info = self._remembered(queue, found)
        if info is None:
            info = await self._create(queue)
        elif number is None:
            await self.enlist(queue, info.number)
        self._open.add(queue)
        return info

    async def _create(self, queue: QueueRef) -> QueueInfo:
        # First into the list of all queues, which every change of the clock offset goes through: no queue
        # with a number may be missing there.
        await self.server.run("queues/add_to_all", [keys.QUEUES], f"{queue.tenant}/{queue.name}")
        # A queue that the server lost comes back as it was known here before it takes anything in; one that
        # was deleted gets another number, and nothing of what it was.
        known_number = self._numbers.get(queue)
        number, since_us = await self.server.run(
            "queues/register",
            [keys.registry(queue.tenant), keys.deleted(queue.tenant)],
            queue.name,
            "" if known_number is None else known_number,
        )
        if number != known_number:
            self._declared.pop(queue, None)
        declared = self._declared.get(queue)
        await self.server.run(
            "queues/open",
            keys_of(queue).all(self.server.database),
            number,
            await self.time.offset_ms(),
            secrets.token_hex(8),
            b"" if declared is None else write_declaration(declared),
            since_us,
        )
        # A deletion that was under way may have taken the queue off the lists in between.
        info = await self.find_queue(queue) or QueueInfo(queue, number)
        await self.enlist(queue, info.number)
        return info

    async def enlist(self, queue: QueueRef, number: int) -> None:
        """Name a queue that exists among those of its tenant and among all."""
        await self.server.run("queues/add_to_all", [keys.QUEUES], f"{queue.tenant}/{queue.name}")
        await self.server.run("queues/add_to_tenant", [keys.registry(queue.tenant)], queue.name, number)

    async def _is_lost(self, queue: QueueRef) -> bool:
        """True for a queue that was known here and is gone without having been deleted."""
        number = self._numbers.get(queue)
        if number is None:
            return False
        released = await self.server.command("HGET", keys.registry(queue.tenant), "*")
        return number > int(released or 0)

    def forget(self, queue: QueueRef) -> None:
        """The queue was deleted: one of its name that is made later is another one."""
        self._open.discard(queue)
        self._numbers.pop(queue, None)
        self._declared.pop(queue, None)

    def remember(self, queue: QueueRef, declaration: Declaration) -> None:
        """What the queue is declared as, should the server lose it. Versions only go up."""
        known = self._declared.get(queue)
        if known is None or declaration.version >= known.version:
            self._declared[queue] = declaration

    async def find_queue(self, queue: QueueRef) -> QueueInfo | None:
        """The queue; None if it was never opened."""
        [found], now_us = await self._read_infos([queue])
        return self._remembered(queue, found, now_us)

    async def find_queues(self, queues: Sequence[QueueRef]) -> list[QueueInfo | None]:
        """The queues in the order of their names here, in one round trip per node; damaged ones say so."""
        answers, now_us = await self._read_infos(queues)
        infos: list[QueueInfo | None] = []
        for queue, found in zip(queues, answers, strict=True):
            try:
                infos.append(self._remembered(queue, found, now_us))
            except DamagedQueueError as error:
                infos.append(QueueInfo(queue, 0, fault=str(error)))
        return infos

    async def _read_infos(self, queues: Sequence[QueueRef]) -> tuple[list[_Fields], int]:
        """The fields of each queue, and the time by which steps of the clock are seen."""
        answers = await self.server.commands(
            [("HMGET", keys_of(queue).meta, *_INFO_FIELDS) for queue in queues]
        )
        newest_us = max((int(found[-1]) for found in answers if (found[-1] or b"").isdigit()), default=0)
        now_us = self.time.last_us
        if newest_us - now_us > STEP_US:
            # Either the clock was not read for long, or it was set back and no script has noted that yet.
            now_us = await self.time.now() * 1000
        return answers, now_us

    def _remembered(self, queue: QueueRef, found: _Fields, now_us: int = _NO_STEP_US) -> QueueInfo | None:
        try:
            info = _info_of(queue, found, now_us)
        except DECODE_ERRORS as error:
            key = keys_of(queue).meta
            raise queue_error(queue, error, f"the hash {key}") from error
        if info is None:
            return None
        if self._numbers.get(queue) not in (None, info.number):
            # Another queue of this name: what the old one was declared as says nothing of it.
            self._declared.pop(queue, None)
        self._numbers[queue] = info.number
        if info.declaration is not None:
            self.remember(queue, info.declaration)
        return info


def _info_of(queue: QueueRef, found: _Fields, now_us: int) -> QueueInfo | None:
    number, at, reason, by, until, declared, made, arrival_us, step_at, step_back_ms, last_us = found
    if number is None:
        return None
    pause = None
    if at is not None:
        pause = Pause(
            int(at),
            None if reason is None else reason.decode(),
            None if by is None else by.decode(),
            None if until is None else int(until),
        )
    declaration = None if declared is None else read_declaration(declared)
    step = None if step_at is None else ClockStep(int(step_at), int(step_back_ms or 0))
    return QueueInfo(
        queue,
        int(number),
        pause,
        declaration,
        "" if made is None else made.decode(),
        int(arrival_us or 0),
        stepped(int(last_us or 0), now_us, step),
    )
