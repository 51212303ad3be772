"""How far a stream is behind the logs that it reads."""

from typing import Any

from penstock.core.cursors import read_cursor
from penstock.core.job import QueueRef
from penstock.spark.events.offsets import Offset, QueuePosition, full_name
from penstock.spark.events.planning import each_of, known_queues
from penstock.spark.options import SourceOptions
from penstock.stores.protocol import Store


async def report_of(store: Store, options: SourceOptions, reached: Offset) -> dict[str, Any]:
    """The newest event of each queue as an offset, with `behind` in events and `oldestUnreadMs`.

    Both are of what comes after `reached`, over all queues; `oldestUnreadMs` is left out where all is read.
    """
    queues = await known_queues(store, options, Offset())

    async def look(queue: QueueRef) -> tuple[str, int, int | None]:
        place = reached.queues.get(queue)
        here = "0" if place is None else place.cursor
        newest = await store.events.cursor_after(queue, here)
        behind = max(0, read_cursor("cursor", newest).seq - read_cursor("cursor", here).seq)
        oldest = await _time_after(store, queue, here) if newest != here else None
        return newest, behind, oldest

    found = await each_of(queues, look)
    places = {queue: QueuePosition(newest) for queue, (newest, _, _) in found.items()}
    report = Offset(places).to_dict() | {"behind": sum(behind for _, behind, _ in found.values())}
    times = [oldest for _, _, oldest in found.values() if oldest is not None]
    if times:
        report["oldestUnreadMs"] = max(0, await store.clock.now() - min(times))
    return {name: report[name] for name in sorted(report)} | {"queues": _by_name(report["queues"], found)}


def _by_name(places: dict[str, Any], found: dict[QueueRef, tuple[str, int, int | None]]) -> dict[str, Any]:
    """The places, each with how many events of its queue are not read."""
    behind = {full_name(queue): number for queue, (_, number, _) in found.items()}
    return {name: {**place, "behind": behind[name]} for name, place in places.items()}


async def _time_after(store: Store, queue: QueueRef, cursor: str) -> int | None:
    """When the first event after a cursor was, in Unix milliseconds."""
    following = await store.events.cursor_after(queue, cursor, 1)
    unread = await store.events.event_columns(queue, cursor, following, 1)
    return next((at for at in unread.fields.get("at", ()) if at is not None), None)
