"""From options and offsets to the next offset: where queues begin, and how far a batch goes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from penstock.core.cursors import read_cursor
from penstock.core.errors import CursorLostError, OptionError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.spark.events.offsets import EARLIEST, LATEST, Offset, QueuePosition, full_name, read_places
from penstock.spark.events.sharing import shares
from penstock.spark.options import ALL_TENANTS, SourceOptions
from penstock.spark.stores import queues_of
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo

T = TypeVar("T")
Queues = Mapping[QueueRef, QueueInfo]
_AT_ONCE: Final = 8
STARTING: Final = "startingOffsets"
TRIMMED: Final = "were trimmed before they were read"


class Backlog(msgspec.Struct, frozen=True):
    """What a queue has for the next batch: from `start` to `head`. What is there begins at `kept`."""

    start: str
    kept: str
    head: str

    @property
    def size(self) -> int:
        """How many events, by their numbers: exact where those have no gaps; 0 only if there are none."""
        first, last = read_cursor("cursor", self.kept), read_cursor("cursor", self.head)
        return max(1, last.seq - first.seq) if first.place < last.place else 0


async def known_queues(store: Store, options: SourceOptions, offset: Offset) -> Queues:
    """The queues that are asked for, if the offset is of them and of none that was lost."""
    found = {info.queue: info for info in await queues_of(store, options)}
    for queue, place in offset.queues.items():
        if queue not in found:
            raise _stranger(options, queue)
        if place.made != found[queue].made:
            raise CursorLostError(
                f"queue {full_name(queue)} was lost and made anew since the offset was written, "
                "and has another log: begin with a new checkpoint"
            )
    return found


async def initial_offset(store: Store, options: SourceOptions, queues: Queues) -> Offset:
    """Where a new query begins. Queues that it does not name begin at their beginning."""
    said = options.starting_offsets
    if options.starting_timestamp is not None:
        if said is not None:
            raise OptionError(
                "startingTimestamp", options.starting_timestamp, "it or startingOffsets, not both"
            )
        at = options.starting_timestamp
        cursors = await each_of(queues, lambda queue: store.events.cursor_at(queue, at))
    elif said is None or said.lower() == EARLIEST:
        cursors = {}
    elif said.lower() == LATEST:
        cursors = await heads(store, queues)
    else:
        given = read_places(STARTING, said, options.tenants)
        cursors = await _given_cursors(store, options, STARTING, queues, given)
    return Offset(
        {queue: QueuePosition(cursor, made=queues[queue].made) for queue, cursor in cursors.items()}
    )


async def ending_places(store: Store, options: SourceOptions, queues: Queues) -> dict[QueueRef, str]:
    """Where a batch ends: at the newest event of each queue, or where it was told to."""
    said = options.ending_offsets
    ends = await heads(store, queues)
    if said is None or said.lower() == LATEST:
        return ends
    if said.lower() == EARLIEST:
        raise OptionError("endingOffsets", said, f"{LATEST} or JSON")
    given = read_places("endingOffsets", said, options.tenants)
    if EARLIEST in given.values():
        raise OptionError("endingOffsets", said, f"cursors, or {LATEST}")
    found = await _given_cursors(store, options, "endingOffsets", queues, given)
    for queue, cursor in found.items():
        is_placed = store.numbers_in_order or read_cursor("endingOffsets", cursor).stamp is not None
        if given[queue] != LATEST and not is_placed:
            raise OptionError("endingOffsets", cursor, "the cursor of an event that is there")
    return ends | found


async def heads(store: Store, queues: Queues) -> dict[QueueRef, str]:
    """The newest event of each queue that was committed before this was asked."""

    async def head(queue: QueueRef) -> str:
        # Unlike the other way to the newest event, this one waits for writers that are about to commit.
        await store.events.event_range(queue)
        _, newest = await _reach(store, queue, "0")
        return newest

    return await each_of(queues, head)


async def next_offset(
    store: Store,
    options: SourceOptions,
    queues: Queues,
    start: Offset,
    *,
    limit: int | None,
    targets: Mapping[QueueRef, str] | None = None,
    turn: int = 0,
) -> Offset:
    """As far as a batch of up to `limit` events goes, and not beyond the targets; `start` if nowhere."""

    async def look(queue: QueueRef) -> Backlog:
        return await _backlog(store, options, queue, start.queues.get(queue))

    found = await each_of(
        queues if targets is None else [queue for queue in queues if queue in targets], look
    )
    if targets is not None:
        found = {
            queue: msgspec.structs.replace(backlog, head=_nearer(backlog.head, targets[queue]))
            for queue, backlog in found.items()
        }
    found = {queue: backlog for queue, backlog in found.items() if backlog.size}
    share = shares({queue: backlog.size for queue, backlog in found.items()}, limit, turn)

    async def end(queue: QueueRef) -> str:
        backlog = found[queue]
        if limit is None or (store.numbers_in_order and share[queue] >= backlog.size):
            return backlog.head
        return _nearer(await store.events.cursor_after(queue, backlog.kept, share[queue]), backlog.head)

    ends = await each_of([queue for queue in found if share[queue]], end)
    news = {
        queue: QueuePosition(cursor, start=found[queue].start, made=queues[queue].made)
        for queue, cursor in ends.items()
    }
    return msgspec.structs.replace(start, queues={**start.queues, **news})


def lost(queue: QueueRef, first: int, last: int, why: str = TRIMMED) -> CursorLostError:
    """What to raise for events that are missing."""
    return CursorLostError(
        f"events {first} to {last} of queue {queue} {why}: set failOnDataLoss to false to go on without them",
        (first, last),
    )


async def each_of(queues: Iterable[QueueRef], work: Callable[[QueueRef], Awaitable[T]]) -> dict[QueueRef, T]:
    """The same for all queues, some at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(queue: QueueRef) -> T:
        async with slots:
            return await work(queue)

    named = list(queues)
    return dict(zip(named, await asyncio.gather(*map(one, named)), strict=True))


async def _backlog(
    store: Store, options: SourceOptions, queue: QueueRef, place: QueuePosition | None
) -> Backlog:
    if place is None:
        # It is new, and begins with what is left of it.
        kept, head = await _reach(store, queue, "0")
        return Backlog(kept, kept, head)
    kept, head = await _reach(store, queue, place.cursor)
    if kept != place.cursor and options.fail_on_data_loss:
        raise lost(queue, min(place.at.seq + 1, int(kept)), int(kept))
    return Backlog(place.cursor, kept, head)


async def _reach(store: Store, queue: QueueRef, start: str) -> tuple[str, str]:
    """Where that begins which is left after a cursor, and its newest event."""
    while True:
        try:
            return start, await store.events.cursor_after(queue, start)
        except CursorLostError as error:
            if error.trimmed is None:
                raise
            start = str(error.trimmed[1])


async def _given_cursors(
    store: Store, options: SourceOptions, field: str, queues: Queues, given: Mapping[QueueRef, str]
) -> dict[QueueRef, str]:
    """The cursors that were given, in full; those that shall begin at the beginning are left out."""
    for queue in given:
        if queue not in queues:
            there = ", ".join(map(full_name, queues)) or "none"
            raise UnknownQueueError(f"{field}: no queue {full_name(queue)} is read; there are: {there}")
    newest = await heads(store, {queue: queues[queue] for queue, at in given.items() if at == LATEST})

    async def whole(queue: QueueRef) -> str:
        if field == STARTING:
            await _refuse_beyond_end(store, queue, given[queue])
        try:
            return await store.events.cursor_after(queue, given[queue], 0)
        except CursorLostError as error:
            if error.trimmed is None or options.fail_on_data_loss:
                raise
            return given[queue]

    return newest | await each_of([each for each, at in given.items() if at not in {EARLIEST, LATEST}], whole)


async def _refuse_beyond_end(store: Store, queue: QueueRef, given: str) -> None:
    """OptionError for a start that no event has yet: what gets a lower number would be skipped in silence.

    A cursor with a mark is the store's to judge: what it names was there, and is lost.
    """
    cursor = read_cursor(STARTING, given)
    if cursor.mark is None:
        _, newest = await store.events.event_range(queue)
        if cursor.seq > newest:
            wanted = f"{LATEST}, or a number up to {newest}, the newest event of {full_name(queue)}"
            raise OptionError(STARTING, given, wanted)


def _nearer(one: str, other: str) -> str:
    return min(one, other, key=lambda cursor: read_cursor("cursor", cursor).place)


def _stranger(options: SourceOptions, queue: QueueRef) -> Exception:
    asked = options.tenants == (ALL_TENANTS,) or queue.tenant in options.tenants
    if asked and (not options.queues or queue.name in options.queues):
        return CursorLostError(
            f"queue {full_name(queue)} of the offset is not in the store: begin with a new checkpoint"
        )
    wanted = f"also {full_name(queue)}, which the checkpoint is of; or another checkpoint"
    return OptionError("queues", ",".join(options.queues) or ",".join(options.tenants), wanted)
