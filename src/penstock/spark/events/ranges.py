"""Partitions: ranges of a queue's log, each with its two cursors, so that a retry reads the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from penstock.core.cursors import read_cursor
from penstock.core.errors import CursorLostError
from penstock.core.job import QueueRef
from penstock.spark.events.offsets import Offset
from penstock.spark.events.planning import Backlog, each_of, lost
from penstock.stores.protocol import Store

LONGEST: Final = 25_000
"""Events of a partition, unless fewer were asked for."""


@dataclass(frozen=True)
class EventRange(InputPartition):
    """The events of a queue that come after one cursor, up to and with another."""

    tenant: str
    queue: str
    after: str
    through: str


def backlogs(start: Offset, end: Offset) -> dict[QueueRef, Backlog]:
    """What a batch holds of each queue: from where its end says that it began."""
    found = {}
    for queue, place in end.queues.items():
        before = start.queues.get(queue)
        if place == before:
            continue
        began = place.start or ("0" if before is None else before.cursor)
        found[queue] = Backlog(began, began, place.cursor)
    return {queue: backlog for queue, backlog in found.items() if backlog.size}


async def split(
    store: Store, found: Mapping[QueueRef, Backlog], *, wanted: int | None, allow_loss: bool
) -> list[EventRange]:
    """The ranges of a batch: about as long as each other, and as many as are wanted."""
    total = sum(backlog.size for backlog in found.values())
    count = max(wanted or 1, -(-total // LONGEST))
    longest = max(1, -(-total // count))

    async def cut(queue: QueueRef) -> list[EventRange]:
        bounds = await _bounds(store, queue, found[queue], longest, allow_loss=allow_loss)
        return [EventRange(queue.tenant, queue.name, *pair) for pair in pairwise(bounds)]

    return [range_ for cuts in (await each_of(found, cut)).values() for range_ in cuts]


async def _bounds(
    store: Store, queue: QueueRef, backlog: Backlog, longest: int, *, allow_loss: bool
) -> list[str]:
    bounds, here, end = [backlog.start], backlog.start, read_cursor("cursor", backlog.head).place
    length = -(-backlog.size // -(-backlog.size // longest))
    while True:
        try:
            here = await store.events.cursor_after(queue, here, length)
        except CursorLostError as error:
            if error.trimmed is None:
                raise
            if not allow_loss:
                raise lost(queue, *error.trimmed) from error
            # The task that reads the first range reports what is missing.
            here = str(error.trimmed[1])
            continue
        place = read_cursor("cursor", here).place
        if place >= end or here == bounds[-1]:
            return [*bounds, backlog.head]
        bounds.append(here)
