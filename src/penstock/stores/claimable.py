"""From when a claim may find something in a queue. Shared by all stores."""

import msgspec


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store reads of one queue. Times are Unix milliseconds, None where there is none."""

    has_pending: bool
    """A job waits to be claimed; where the store knows, one that no limit of its key holds back."""
    visible_at: int | None = None
    """When the first delayed job may be claimed."""
    held_until: int | None = None
    """When the first key that its rate holds back goes on."""
    is_paused: bool = False
    paused_until: int | None = None


def claimable_at(facts: ClaimFacts, *, now: int, within_ms: int) -> int | None:
    """When a claim may find something; None when it will not by then."""
    at = min((each for each in (facts.visible_at, facts.held_until) if each is not None), default=None)
    if facts.has_pending:
        at = now
    if at is not None and facts.is_paused:
        at = None if facts.paused_until is None else max(at, facts.paused_until)
    return at if at is not None and at <= now + within_ms else None
