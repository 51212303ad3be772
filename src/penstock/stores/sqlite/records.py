"""Between the core's values and the rows of this store."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.events import EVENT_VERSION, Event
from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import Claimed, ExpiredLease, Job, NewJob, Options, QueueRef
from penstock.core.limits import Declaration
from penstock.core.moves import (
    Bury,
    Complete,
    Expire,
    Fail,
    Fault,
    Move,
    Release,
    Retry,
    Settlement,
    Snooze,
)
from penstock.core.states import State
from penstock.core.unique import Unique
from penstock.stores.columns import columns, unknown
from penstock.stores.protocol import EventColumns

_ENCODER: Final = msgspec.json.Encoder()
_OPTIONS_DECODER: Final = msgspec.json.Decoder(Options)


def encode(value: Any) -> str:
    """JSON for a statement to take apart, or to keep."""
    return _ENCODER.encode(value).decode()


@lru_cache(maxsize=1024)
def options_text(options: Options) -> str:
    """The options as they are stored; queues use few different ones."""
    return encode(options)


@lru_cache(maxsize=256)
def declaration_of(text: str) -> Declaration:
    """A queue's declaration."""
    return msgspec.json.decode(text, type=Declaration)


class More(msgspec.Struct, frozen=True, omit_defaults=True):
    """What few jobs have, kept apart so that the others stay small."""

    parents: tuple[JobRef, ...] = ()
    child_policy: ChildPolicy = ChildPolicy.FAIL
    delay_ms: int = 0
    run_at: int | None = None
    unique: Unique | None = None
    schedule: str | None = None
    instant: int | None = None


_NO_MORE: Final = More()
_MORE_DECODER: Final = msgspec.json.Decoder(More)


def more_of(text: str | None) -> More:
    """What few jobs have."""
    return _NO_MORE if text is None else _MORE_DECODER.decode(text)


def _more_text(new: NewJob) -> str | None:
    if not (new.parents or new.awaits or new.unique or new.schedule):
        return None
    blocked = bool(new.awaits)
    more = More(
        new.parents,
        new.child_policy,
        new.delay_ms if blocked else 0,
        new.run_at if blocked else None,
        new.unique,
        new.schedule,
        new.instant,
    )
    return encode(more)


@lru_cache(maxsize=1024)
def options_of(text: str) -> Options:
    """The options back."""
    return _OPTIONS_DECODER.decode(text)


def stored(text: str | None) -> str | None:
    """Free text as SQLite's JSON functions carry it: they end a string at NUL."""
    if text is None or ("\0" not in text and "\\" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def restored(text: str | None) -> str | None:
    """Free text back."""
    if text is None or "\\" not in text:
        return text
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\"))


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
        _more_text(new),
    )


def key_item(new: NewJob) -> tuple[str, str, str | None, str | None]:
    """A new job as an item of enqueue.sql's steps about keys."""
    digest = None if new.idempotency_key is None else new.digest
    return new.id, new.nonce, stored(new.idempotency_key), digest


def settlement_item(settlement: Settlement) -> tuple[Any, ...]:
    """A settlement as an item of its move's file."""
    match settlement:
        case Complete(id=job, token=token, result=result):
            return (job, token, None if result is None else result.decode())
        case Fail(id=job, token=token, fault=fault) | Bury(id=job, token=token, fault=fault):
            return (job, token, *fault_item(fault))
        case Retry(id=job, token=token, fault=fault, delay_ms=delay_ms):
            return (job, token, *fault_item(fault), delay_ms)
        case Snooze(id=job, token=token, delay_ms=delay_ms):
            return (job, token, delay_ms)
        case Release(id=job, token=token, error=error):
            return (job, token, error)


def expire_item(expiry: Expire) -> tuple[Any, ...]:
    """An expiry as an item of expire.sql."""
    return (expiry.id, expiry.token, expiry.target, *fault_item(expiry.fault), expiry.delay_ms)


def fault_item(fault: Fault) -> tuple[str, str | None, str | None]:
    """A fault as part of an item."""
    return fault.reason, fault.error, fault.fingerprint


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
            parents=more_of(self.more).parents,
        )


CLAIMED_ROWS: Final = msgspec.json.Decoder(list[ClaimedRow], strict=False)

JOB_COLUMNS: Final = (
    "id, nonce, task, state, payload, priority, options, enqueued_at, version, drive, delivery, attempts, "
    "visible_at, idempotency_key, key, token, fence, deadline, worker, cancel_requested, last_delay_ms, "
    "reason, error, fingerprint, result, progress, progress_at, ended_at, settled, more"
)


def job_of(queue: QueueRef, row: tuple[Any, ...]) -> Job:
    """A record from JOB_COLUMNS."""
    fields = dict(zip(JOB_COLUMNS.split(", "), row, strict=True))
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


EXPIRED_COLUMNS: Final = "id, token, fence, attempts, options, worker, last_delay_ms, key"


def expired_of(row: tuple[Any, ...], *, keyed: bool) -> ExpiredLease:
    """A lease that ran out, from EXPIRED_COLUMNS; with its key where keys take turns."""
    fields = dict(zip(EXPIRED_COLUMNS.split(", "), row, strict=True))
    fields["options"] = options_of(fields["options"])
    fields["key"] = restored(fields["key"]) if keyed else None
    return ExpiredLease(**fields)


EVENT_COLUMNS: Final = (
    "seq, at, move, job, version, drive, source, target, task, priority, key, delivery, attempt, fence, "
    "worker, deadline, visible_at, reason, error, fingerprint, idempotency_key, max_attempts, jobs, "
    "parent, schedule, instant"
)


def event_from(queue: QueueRef, row: tuple[Any, ...]) -> Event:
    """An event from EVENT_COLUMNS."""
    fields = dict(zip(EVENT_COLUMNS.split(", "), row, strict=True))
    fields["move"] = Move(fields["move"])
    for name in ("source", "target"):
        if fields[name] is not None:
            fields[name] = State(fields[name])
    if fields["jobs"] is not None:
        fields["jobs"] = msgspec.json.decode(fields["jobs"])
    fields["idempotency_key"] = restored(fields["idempotency_key"])
    fields["key"] = restored(fields["key"])
    return Event(v=EVENT_VERSION, tenant=queue.tenant, queue=queue.name, **fields)


_KNOWN: Final = frozenset({"queue", *EVENT_COLUMNS.split(", ")})


def columns_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> EventColumns:
    """Events field by field, from all columns of their table."""
    found = columns(names, rows)
    fields = {name: values for name, values in found.items() if name in _KNOWN}
    fields["key"] = [restored(text) for text in found.get("key", ())]
    fields["idempotency_key"] = [restored(text) for text in found.get("idempotency_key", ())]
    fields["jobs"] = [None if text is None else msgspec.json.decode(text) for text in found.get("jobs", ())]
    fields["v"] = [EVENT_VERSION] * len(rows)
    return EventColumns(len(rows), fields, unknown=unknown(found, _KNOWN, len(rows)))
