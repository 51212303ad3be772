"""Reads a range of a queue's log: the same events each time, or an error, and never silently fewer."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.core.cursors import read_cursor
from penstock.core.errors import CursorLostError
from penstock.core.job import QueueRef
from penstock.spark.events.columns import batch_of, gap_of
from penstock.spark.events.planning import TRIMMED, lost
from penstock.spark.events.ranges import EventRange
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import schema_of
from penstock.spark.stores import opened
from penstock.stores.protocol import Store
from penstock.stores.values import EventColumns

PAGE: Final = 10_000
"""Events asked for in one go, and rows of a batch."""


def read(options: SourceOptions, range_: object) -> Iterator[pa.RecordBatch]:
    """The events of a range. A query that finds nothing to read has no range, and gets no events."""
    if not isinstance(range_, EventRange):
        return
    with asyncio.Runner() as runner:
        batches = _batches(options, range_)

        async def following() -> pa.RecordBatch | None:
            return await anext(batches, None)

        try:
            while (batch := runner.run(following())) is not None:
                yield batch
        finally:
            runner.run(batches.aclose())


async def _batches(options: SourceOptions, range_: EventRange) -> AsyncGenerator[pa.RecordBatch, None]:
    queue = QueueRef(range_.tenant, range_.queue)
    schema = schema_of("events", options.columns)
    async with opened(options) as store:
        async for found, missing in _pages(store, queue, range_):
            if missing is not None:
                first, last, why = missing
                if options.fail_on_data_loss:
                    raise lost(queue, first, last, why)
                yield gap_of(queue, first, last, why, schema)
            if found.count:
                yield batch_of(queue, found, schema)


Missing = tuple[int, int, str]
_NONE: Final = EventColumns(0, {})


async def _pages(
    store: Store, queue: QueueRef, range_: EventRange
) -> AsyncGenerator[tuple[EventColumns, Missing | None], None]:
    """The range page by page, with the numbers of events that are missing."""
    here, end = range_.after, read_cursor("through", range_.through)
    is_whole = True
    while read_cursor("after", here).place < end.place:
        try:
            found = await store.events.event_columns(queue, here, range_.through, PAGE)
        except CursorLostError as error:
            if error.trimmed is None:
                raise
            first, last = error.trimmed
            is_whole = False
            yield _NONE, (first, max(first, min(last, end.seq)), TRIMMED)
            here = str(last)
            continue
        if not found.count:
            break
        if store.numbers_in_order:
            for missing in _holes(found, read_cursor("after", here).seq + 1):
                yield _NONE, missing
        yield found, None
        here = _last_cursor(queue, found)
    reached = read_cursor("after", here)
    if store.numbers_in_order and reached.seq < end.seq:
        yield _NONE, (reached.seq + 1, end.seq, "are not in the store")
    elif is_whole and (reached.place, reached.mark or end.mark) != (end.place, end.mark or reached.mark):
        raise CursorLostError(
            f"the range_ of queue {queue} does not end with event {range_.through} any longer: "
            "the store has lost events, as after a failover or when a copy is restored"
        )


def _holes(found: EventColumns, expected: int) -> Iterator[Missing]:
    numbers = found.fields["seq"]
    if numbers[0] == expected and numbers[-1] - numbers[0] + 1 == len(numbers):
        return
    for at, number in enumerate(numbers):
        if number > expected:
            yield expected, number - 1, "are not in the store"
        expected = found.ends.get(at, number) + 1


def _last_cursor(queue: QueueRef, found: EventColumns) -> str:
    at = found.count - 1
    fields: dict[str, Sequence[Any]] = {name: values[at:] for name, values in found.fields.items()}
    broken = {0: found.broken[at]} if at in found.broken else {}
    ends = {0: found.ends[at]} if at in found.ends else {}
    return EventColumns(1, fields, found.stamps[at:], broken=broken, ends=ends).cursors(queue)[0]
