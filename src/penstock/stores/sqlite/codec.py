"""Between the core's values and the rows of this store."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from penstock.core.errors import DamagedQueueError
from penstock.core.events import EVENT_VERSION, Event
from penstock.core.job import Claimed, Job, NewJob, QueueRef
from penstock.core.states import State
from penstock.stores.columns import columns, unknown
from penstock.stores.corruption import DECODE_ERRORS, ROW_ERRORS, event_error, job_error
from penstock.stores.rows import (
    EVENT_COLUMNS,
    JOB_COLUMNS,
    more_of,
    more_text,
    options_of,
    options_text,
    restored,
    stored,
)
from penstock.stores.values import EventColumns


def new_row(index: int, new: NewJob, now: int) -> tuple[Any, ...]:
    """A new job as a row of enqueue.sql."""
    options = new.options
    visible_at = now + new.delay_ms if new.run_at is None else new.run_at
    blocked = bool(new.awaits)
    waits = visible_at > now and not blocked
    return (
        index,
        new.id,
        new.nonce,
        new.task,
        "blocked" if blocked else "delayed" if waits else "pending",
        new.priority,
        visible_at if waits else None,
        stored(new.idempotency_key),
        stored(new.key),
        options_text(options),
        options.max_attempts,
        options.kept_ms,
        options.key_held_ms,
        new.payload.decode(),
        more_text(new, new.unique),
    )


def key_item(new: NewJob) -> tuple[str, str, str | None, str | None]:
    """A new job as an item of enqueue.sql's steps about keys."""
    digest = None if new.idempotency_key is None else new.digest
    return new.id, new.nonce, stored(new.idempotency_key), digest


class ClaimedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row of claim.sql's answer."""

    id: str
    task: str
    payload: str
    priority: int
    options: str
    enqueued_at: int
    drive: int
    delivery: int
    attempts: int
    token: str
    fence: int
    deadline: int
    key: str | None
    last_delay_ms: int | None
    cancel_requested: bool
    more: str | None

    def claimed(self) -> Claimed:
        """The same for a worker."""
        more = more_of(self.more)
        return Claimed(
            id=self.id,
            task=self.task,
            payload=self.payload.encode(),
            priority=self.priority,
            options=options_of(self.options),
            enqueued_at=self.enqueued_at,
            drive=self.drive,
            delivery=self.delivery,
            attempts=self.attempts,
            token=self.token,
            fence=self.fence,
            deadline=self.deadline,
            key=restored(self.key),
            last_delay_ms=self.last_delay_ms,
            cancel_requested=self.cancel_requested,
            parents=more.parents,
            unhandled_since=more.unhandled_since,
            headers=more.headers,
        )


CLAIMED_ROWS: Final = msgspec.json.Decoder(list[ClaimedRow], strict=False)


_KINDS: Final[dict[str, type]] = {
    **dict.fromkeys(("id", "nonce", "task", "state", "payload", "options", "settled"), str),
    **dict.fromkeys(("priority", "enqueued_at", "version", "drive", "delivery", "attempts", "fence"), int),
}


def job_of(queue: QueueRef, row: tuple[Any, ...]) -> Job:
    """A record from JOB_COLUMNS."""
    fields = dict(zip(JOB_COLUMNS.split(", "), row, strict=True))
    for name, kind in _KINDS.items():
        if not isinstance(fields[name], kind):
            raise TypeError(f"its {name} is a {type(fields[name]).__name__}")
    for name in ("payload", "result", "progress"):
        if fields[name] is not None:
            fields[name] = fields[name].encode()
    fields["state"] = State(fields["state"])
    fields["options"] = options_of(fields["options"])
    fields["cancel_requested"] = bool(fields["cancel_requested"])
    fields["idempotency_key"] = restored(fields["idempotency_key"])
    fields["key"] = restored(fields["key"])
    more = msgspec.structs.asdict(more_of(fields.pop("more")))
    return Job(tenant=queue.tenant, queue=queue.name, **fields, **more)


def job_or_error(queue: QueueRef, row: tuple[Any, ...]) -> Job:
    """The same; StoreFormatError where it is damaged."""
    try:
        return job_of(queue, row)
    except ROW_ERRORS as error:
        raise job_error(queue, str(row[0]), error) from None


def job_or_none(queue: QueueRef, row: tuple[Any, ...]) -> Job | None:
    """The same; None where it is damaged."""
    try:
        return job_of(queue, row)
    except ROW_ERRORS:
        return None


def event_from(queue: QueueRef, row: tuple[Any, ...]) -> Event:
    """An event from EVENT_COLUMNS; StoreFormatError where a value is of another type, as files allow."""
    fields = dict(zip(EVENT_COLUMNS.split(", "), row, strict=True))
    try:
        if fields["jobs"] is not None:
            fields["jobs"] = _JOBS.decode(fields["jobs"])
        fields["idempotency_key"] = _restored(fields["idempotency_key"])
        fields["key"] = _restored(fields["key"])
        # The names under which an event goes out into the world.
        fields["from"], fields["to"] = fields.pop("source"), fields.pop("target")
        return msgspec.convert(
            {"v": EVENT_VERSION, "tenant": queue.tenant, "queue": queue.name, **fields}, Event
        )
    except DECODE_ERRORS as error:
        raise event_error(queue, row[0], error) from None


_FIELDS: Final = frozenset(EVENT_COLUMNS.split(", "))
_JOBS: Final = msgspec.json.Decoder(list[str])


def columns_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> EventColumns:
    """Events field by field, from all columns of their table; values of other types as they stand there."""
    found = columns(names, rows)
    extras = unknown(found, {"queue", *_FIELDS}, len(rows))
    broken: dict[int, str] = {}
    fields = {name: values for name, values in found.items() if name in _FIELDS}
    for name in ("key", "idempotency_key"):
        fields[name] = [_restored(each) for each in found.get(name, ())]
    fields["jobs"] = jobs = list(found.get("jobs", ()))
    for at, text in enumerate(jobs):
        try:
            jobs[at] = None if text is None else _JOBS.decode(text)
        except DECODE_ERRORS:
            jobs[at] = None
            extras.setdefault(at, {})["jobs"] = text
            broken[at] = "jobs is no list of ids: see extra"
    fields["v"] = [EVENT_VERSION] * len(rows)
    return EventColumns(len(rows), fields, unknown=extras, broken=broken)


def _restored(value: Any) -> Any:
    """Free text back; a file may hold other values in its place."""
    return restored(value) if isinstance(value, str) else value


def check_numbers(queue: QueueRef, numbers: Iterable[object]) -> None:
    """DamagedQueueError where a number of the queue's own row is of another type, as files allow."""
    for number in numbers:
        if number is not None and type(number) is not int:
            raise DamagedQueueError(
                f"queue {queue} cannot be read: its row of the table queue has {number!r} for a number"
            )


def check_texts(queue: QueueRef, texts: Iterable[object]) -> None:
    """DamagedQueueError where a text of the queue's own row is of another type."""
    for text in texts:
        if text is not None and not isinstance(text, str):
            raise DamagedQueueError(
                f"queue {queue} cannot be read: its row of the table queue has {text!r} for a text"
            )
