"""Reads what happened in a queue over some time from its rollups."""

from typing import Final

from penstock.client.event_folding import fold_events
from penstock.core.errors import UnknownQueueError
from penstock.core.job import QueueRef
from penstock.core.stats import QueueStats, span_for, summarise
from penstock.stores.protocol import Store
from penstock.stores.values import SpanRollup

CATCH_UP: Final = 20
"""Pages of events that are folded before the numbers are read; upkeep folds the rest."""


async def read_stats(store: Store, queue: QueueRef, since_ms: int) -> QueueStats:
    """What happened in the last `since_ms` milliseconds, events of just now included."""
    for _ in range(CATCH_UP):
        if not await fold_events(store, queue):
            break
    position = await store.rollups.rollup_position(queue)
    if position is None:
        raise UnknownQueueError(f"no queue {queue.name!r} of tenant {queue.tenant!r}")
    span_ms = span_for(since_ms)
    since = await store.clock.now() - since_ms
    since -= since % span_ms
    spans: list[SpanRollup] = []
    begin: int | None = since
    while begin is not None:
        page = await store.rollups.list_rollups(queue, span_ms, begin)
        spans += page.spans
        begin = page.next
    rows = ((each.at, each.rows) for each in spans)
    return summarise(queue.name, since, position.state.at, span_ms, rows, position.state.gaps)
