"""Which duties of a queue are due, by the first entry of each of its indexes. Shared by all stores."""

import msgspec

from penstock.stores.values import DueQueue, Duty


class UpkeepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store reads of one queue. Times are Unix milliseconds, None where the index is empty."""

    visible_at: int | None = None
    """When the first delayed job may be claimed."""
    first_deadline: int | None = None
    has_far_lease: bool = False
    """True where a lease has ended because the clock was set back."""
    next_instant: int | None = None
    """The first instant of its schedules that are not paused."""
    has_relays: bool = False
    prune_at: int | None = None
    """When the first ended job, or what is remembered of one, need not be kept any longer."""
    events: int = 0
    """How many events it keeps, or a higher number."""


def due_queue(
    name: str, facts: UpkeepFacts, *, now: int, within_ms: int, events_kept: int | None
) -> DueQueue | None:
    """The duties of a queue that are due by then; None when it needs no upkeep."""
    until, due = now + within_ms, dict[Duty, int]()
    for duty, at in (
        (Duty.PROMOTE, facts.visible_at),
        (Duty.RECOVER, facts.first_deadline),
        (Duty.FIRE, facts.next_instant),
        (Duty.PRUNE, facts.prune_at),
    ):
        if at is not None and at <= until:
            due[duty] = at
    if facts.has_far_lease:
        due[Duty.RECOVER] = now
    if facts.has_relays:
        due[Duty.RELAY] = now
    if events_kept is not None and facts.events > events_kept:
        due[Duty.TRIM] = now
    return DueQueue(name, due) if due else None
