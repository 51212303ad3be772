"""Checks of the registered readers of events, and of transactions that hold them back."""

from typing import Final

from penstock.cli.doctor.check import Check
from penstock.core.errors import CursorLostError
from penstock.core.job import QueueRef
from penstock.explain.formatting import holdup_text
from penstock.maintenance.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.stores.protocol import HasHoldups, Store
from penstock.stores.values import Reader

HOLDUP_GRACE_MS: Final = 60_000
"""No transaction of Penstock takes this long; one of somebody else that does keeps every reader waiting."""


async def examine_holdup(store: Store) -> list[Check]:
    """Check that no open transaction holds back the readers of events; no check on stores without such."""
    if not isinstance(store, HasHoldups):
        return []
    held = await store.holdup()
    check = Check("newest events", "can be read" if held is None else holdup_text(held))
    if held is not None and (held.age_ms or 0) > HOLDUP_GRACE_MS:
        check.findings.append(f"{check.seen}: events since then cannot be read until it ends")
    return [check]


async def examine_readers(store: Store, ref: QueueRef) -> Check:
    """Check the registered readers: whether one lost events, and which hold back trimming."""
    now = await store.clock.now()
    readers = [each for each in await store.readers.list_readers(ref) if each.kept_until > now]
    first, last = await store.events.event_range(ref)
    check = Check("readers of events", f"{len(readers)} registered", ref.name)
    for reader in readers:
        if reader.seq + 1 < first:
            lost = f"events {reader.seq + 1} to {first - 1}"
            check.findings.append(f"{lost} were trimmed before reader {reader.name!r} had read them")
        elif await _holds_back(store, ref, reader, last, now):
            check.seen += f"; {reader.name} holds back trimming, {last - reader.seq} events behind"
    return check


async def _holds_back(store: Store, ref: QueueRef, reader: Reader, last: int, now: int) -> bool:
    if reader.seq < last - EVENTS_KEPT:
        return True
    try:
        unread = await store.events.read_events(ref, reader.cursor, 1)
    except CursorLostError:
        # The reader gets this error itself, at its next read.
        return False
    return bool(unread) and unread[0].at < now - EVENTS_AGE * 1000
