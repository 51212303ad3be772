"""Folds the events of a queue into its rollups, page by page."""

from typing import Final

from penstock.core.errors import CursorLostError
from penstock.core.job import QueueRef
from penstock.core.rollups import KEPT_MS, SPANS, fold, fold_gap
from penstock.stores.protocol import Store
from penstock.stores.values import RollupPosition

PAGE: Final = 1_000
"""Events that are folded in one step."""


async def fold_events(store: Store, queue: QueueRef) -> bool:
    """Fold one page of what is new; True when there may be more.

    Several may do it at once: each step changes the position, and the next begins there.
    """
    position = await store.rollups.rollup_position(queue)
    if position is None:
        return False
    try:
        events = await store.events.read_events(queue, position.cursor, PAGE)
    except CursorLostError:
        return await _pass_gap(store, queue, position)
    if not events:
        return False
    now = await store.clock.now()
    kept_since = {span: now - KEPT_MS[span] for span in SPANS}
    deltas, folded = fold(position.state, events, kept_since)
    through = events[folded - 1].cursor
    if not await store.rollups.fold(queue, position.cursor, through, deltas):
        # Another process was faster, and goes on itself.
        return False
    return folded < len(events) or len(events) == PAGE


async def _pass_gap(store: Store, queue: QueueRef, position: RollupPosition) -> bool:
    """Go on with the first event that is there, and keep that those before it are missing."""
    first, last = await store.events.event_range(queue)
    events = await store.events.read_events(queue, first - 1, 1) if last >= first else []
    until = events[0].at if events else await store.clock.now()
    deltas = fold_gap(position.state, until)
    return await store.rollups.fold(queue, position.cursor, str(first - 1), deltas)
