"""How commands print jobs, their children and their events."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.cli.output import local, span, utc, without_none
from penstock.core.events import Event
from penstock.core.flows import Child
from penstock.core.job import Job
from penstock.core.states import State
from penstock.core.unique import Unique

MAX_CHILDREN: Final = 5


def job_document(job: Job, *, payload: bool = False) -> dict[str, Any]:
    """The record of a job as JSON: times as RFC 3339, without lease token, with payload only on request."""
    return without_none(
        id=job.id,
        tenant=job.tenant,
        queue=job.queue,
        task=job.task,
        state=job.state,
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.options.max_attempts,
        delivery=job.delivery,
        drive=job.drive,
        version=job.version,
        enqueued_at=utc(job.enqueued_at),
        visible_at=utc(job.visible_at),
        ended_at=utc(job.ended_at),
        worker=job.worker,
        fence=job.fence or None,
        lease_until=utc(job.deadline),
        cancel_requested=job.cancel_requested or None,
        key=job.key,
        idempotency_key=job.idempotency_key,
        reason=job.reason,
        error=job.error,
        fingerprint=job.fingerprint,
        unique=None if job.unique is None else _unique_document(job.unique),
        parents=[str(parent) for parent in job.parents] or None,
        child_policy=job.child_policy if job.state is State.BLOCKED else None,
        schedule=job.schedule,
        instant=utc(job.instant),
        headers=job.headers or None,
        progress=_raw_json(job.progress),
        result=_raw_json(job.result),
        payload=_raw_json(job.payload) if payload else None,
    )


def job_fields(job: Job, now: int, *, payload: bool) -> list[tuple[str, object]]:
    """The record of a job as names and values for people."""
    attempts = f"{job.attempts} of {job.options.max_attempts} used"
    return [
        ("id", job.id),
        ("queue", str(job.ref)),
        ("task", job.task),
        ("state", job.state),
        ("cancel", "requested" if job.cancel_requested else None),
        ("priority", job.priority),
        ("attempts", f"{attempts}, drive {job.drive}" if job.drive > 1 else attempts),
        ("deliveries", job.delivery),
        ("enqueued", _moment(job.enqueued_at, now)),
        ("visible", _moment(job.visible_at, now)),
        ("ended", _moment(job.ended_at, now)),
        ("worker", job.worker),
        ("lease until", _moment(job.deadline, now)),
        ("fence", job.fence or None),
        ("key", job.key),
        ("idempotency key", job.idempotency_key),
        ("unique", None if job.unique is None else _unique_text(job.unique)),
        ("schedule", None if job.schedule is None else f"{job.schedule}, for {local(job.instant)}"),
        ("parents", ", ".join(map(str, job.parents)) or None),
        ("headers", _headers_text(job)),
        ("reason", job.reason),
        ("error", job.error),
        ("fingerprint", job.fingerprint),
        ("progress", _text(job.progress)),
        ("result", _text(job.result)),
        ("payload", _text(job.payload) if payload else f"{len(job.payload)} bytes, shown with --payload"),
    ]


def _headers_text(job: Job) -> str | None:
    return ", ".join(f"{name}={value}" for name, value in (job.headers or {}).items()) or None


def child_document(child: Child) -> dict[str, Any]:
    """A child as JSON: how it ended, and whether its parent counts it as done."""
    return without_none(queue=child.ref.queue, id=child.ref.id, done=child.is_done, ended_as=child.state)


def child_fields(children: Sequence[Child]) -> list[tuple[str, object]]:
    """The children as a name and a value for people; none for a job without children."""
    if not children:
        return []
    left = sum(not child.is_done for child in children)
    names = ", ".join(str(child.ref) for child in children[:MAX_CHILDREN])
    more = f" and {len(children) - MAX_CHILDREN} more" if len(children) > MAX_CHILDREN else ""
    return [("children", f"{len(children)}, {left} left: {names}{more}")]


def event_line(event: Event, *, queue: bool = True) -> str:
    """An event as one line for people."""
    what = (
        f"{event.source or '–'} → {event.target or 'gone'}" if event.job else f"{len(event.jobs or [])} jobs"
    )
    parts = [
        local(event.at),
        f"{event.queue}#{event.seq}" if queue else f"#{event.seq}",
        event.move.ljust(9),
        event.job if queue else None,
        what,
        event.task if queue else None,
        f"attempt {event.attempt}" if event.attempt is not None else None,
        f"by {event.worker}" if event.worker else None,
        f"visible {local(event.visible_at)}" if event.visible_at is not None else None,
        ": ".join(part for part in (event.reason, event.error) if part) or None,
    ]
    return "  ".join(part for part in parts if part)


def states_of(text: str | None) -> frozenset[State]:
    """The states in text such as pending,delayed."""
    from penstock.core.errors import OptionError

    out = set()
    for part in (text or "").replace(" ", "").split(","):
        if part and part not in set(State):
            raise OptionError("--state", part, f"some of {', '.join(State)}, joined by commas")
        if part:
            out.add(State(part))
    return frozenset(out)


def _moment(at: int | None, now: int) -> str | None:
    if at is None:
        return None
    return f"{local(at)} ({span(now - at)} ago)" if at <= now else f"{local(at)} (in {span(at - now)})"


def _unique_document(unique: Unique) -> dict[str, Any]:
    window = unique.window_ms / 1000 if unique.window_ms else None
    return without_none(key=unique.key, rule=unique.rule, window_s=window)


def _unique_text(unique: Unique) -> str:
    window = f" for {span(unique.window_ms)}" if unique.window_ms else ""
    return f"{unique.rule}{window}, as {unique.key}"


def _raw_json(value: bytes | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
