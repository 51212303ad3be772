"""Events, as clients read them over HTTP."""

from datetime import datetime

import msgspec

from penstock.core.events import Event
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.service.wire.times import at, moment


class EventView(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"source": "from", "target": "to"},
):
    """One transition of one job. `cursor` is where the next read begins."""

    cursor: str
    queue: str
    seq: int
    move: Move
    at: datetime
    job: str | None = None
    version: int | None = None
    drive: int | None = None
    source: State | None = None
    target: State | None = None
    task: str | None = None
    key: str | None = None
    priority: int | None = None
    delivery: int | None = None
    attempt: int | None = None
    fence: int | None = None
    worker: str | None = None
    deadline: datetime | None = None
    visible_at: datetime | None = None
    reason: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    parent: str | None = None
    schedule: str | None = None
    instant: datetime | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    jobs: list[str] | None = None


class EventPage(msgspec.Struct, frozen=True):
    """Events in the queue's order; `next` is the `after` of the next read, also where nothing came."""

    events: list[EventView]
    next: str


_SAME = [
    name for name in EventView.__struct_fields__ if name not in ("at", "deadline", "visible_at", "instant")
]


def event_view(event: Event) -> EventView:
    """The view of an event, with times by RFC 3339."""
    return EventView(
        at=moment(event.at),
        deadline=at(event.deadline),
        visible_at=at(event.visible_at),
        instant=at(event.instant),
        **{name: getattr(event, name) for name in _SAME},
    )
