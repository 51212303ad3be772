"""What the tables of SQLite and PostgreSQL have in common: values as text, items of moves, and columns."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import ExpiredLease, NewJob, Options, QueueRef
from penstock.core.limits import Declaration
from penstock.core.moves import Bury, Complete, Expire, Fail, Fault, Release, Retry, Settlement, Snooze
from penstock.core.unique import Unique
from penstock.stores.corruption import ROW_ERRORS, queue_error

_ENCODER: Final = msgspec.json.Encoder()
_OPTIONS_DECODER: Final = msgspec.json.Decoder(Options)


def encode(value: Any) -> str:
    """JSON for a statement to take apart, or to keep."""
    return _ENCODER.encode(value).decode()


@lru_cache(maxsize=1024)
def options_text(options: Options) -> str:
    """The options as they are stored; queues use few different ones."""
    return encode(options)


@lru_cache(maxsize=1024)
def options_of(text: str) -> Options:
    """The options back."""
    return _OPTIONS_DECODER.decode(text)


@lru_cache(maxsize=256)
def declaration_of(text: str) -> Declaration:
    """A queue's declaration."""
    return msgspec.json.decode(text, type=Declaration)


def read_declaration(queue: QueueRef, text: str | None) -> Declaration | None:
    """The declaration in the queue's own row; DamagedQueueError where it is none."""
    if text is None:
        return None
    try:
        return declaration_of(text)
    except ROW_ERRORS as error:
        raise queue_error(queue, error, "its row of the table queue") from error


class More(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields that few jobs have, stored as JSON in the column `more`, so that other rows stay small."""

    parents: tuple[JobRef, ...] = ()
    child_policy: ChildPolicy = ChildPolicy.FAIL
    delay_ms: int = 0
    run_at: int | None = None
    unique: Unique | None = None
    schedule: str | None = None
    instant: int | None = None
    unhandled_since: int | None = None
    headers: dict[str, str] | None = None


_NO_MORE: Final = More()
_MORE_DECODER: Final = msgspec.json.Decoder(More)


def more_of(text: str | None) -> More:
    """The rarely set fields of a job, from the column `more`."""
    return _NO_MORE if text is None else _MORE_DECODER.decode(text)


def more_text(new: NewJob, unique: Unique | None) -> str | None:
    """The rarely set fields of a job for the column `more`; None for a job that has none."""
    if not (new.parents or new.awaits or new.unique or new.schedule or new.headers):
        return None
    blocked = bool(new.awaits)
    more = More(
        new.parents,
        new.child_policy,
        new.delay_ms if blocked else 0,
        new.run_at if blocked else None,
        unique,
        new.schedule,
        new.instant,
        headers=new.headers,
    )
    return encode(more)


def headers_text(headers: dict[str, str] | None) -> str | None:
    """Headers for a statement that replaces those of a job."""
    return None if headers is None else encode(headers)


def stored(text: str | None) -> str | None:
    """Free text as databases can keep it: without NUL, at which SQLite's JSON functions end a string."""
    if text is None or ("\0" not in text and "\\" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def restored(text: str | None) -> str | None:
    """Free text back."""
    if text is None or "\\" not in text:
        return text
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\"))


def settlement_item(settlement: Settlement) -> tuple[Any, ...]:
    """A settlement as an item of its move's file."""
    match settlement:
        case Complete(id=job, token=token, result=result):
            return (job, token, None if result is None else result.decode())
        case Fail(id=job, token=token, fault=fault):
            return (job, token, *fault_item(fault))
        case Bury(id=job, token=token, fault=fault, uses_attempt=uses_attempt):
            return (job, token, *fault_item(fault), int(uses_attempt))
        case Retry(id=job, token=token, fault=fault, delay_ms=delay_ms):
            return (job, token, *fault_item(fault), delay_ms)
        case Snooze(id=job, token=token, delay_ms=delay_ms, reason=reason):
            return (job, token, delay_ms, reason)
        case Release(id=job, token=token, error=error):
            return (job, token, error)


def expire_item(expiry: Expire) -> tuple[Any, ...]:
    """An expiry as an item of expire.sql."""
    return (expiry.id, expiry.token, expiry.target, *fault_item(expiry.fault), expiry.delay_ms)


def fault_item(fault: Fault) -> tuple[str, str | None, str | None]:
    """A fault as part of an item."""
    return fault.reason, fault.error, fault.fingerprint


QUARANTINED: Final = "quarantined"
"""The state of rows that were set aside: no move and no read but those of the quarantine sees them."""

JOB_COLUMNS: Final = (
    "id, nonce, task, state, payload, priority, options, enqueued_at, version, drive, delivery, attempts, "
    "visible_at, idempotency_key, key, token, fence, deadline, lease_ms, worker, cancel_requested, "
    "last_delay_ms, reason, error, fingerprint, result, progress, progress_at, ended_at, settled, more"
)


EXPIRED_COLUMNS: Final = "id, token, fence, attempts, options, worker, last_delay_ms, key, more"


def expired_of(row: tuple[Any, ...], *, keyed: bool) -> ExpiredLease:
    """An expired lease, from a row of EXPIRED_COLUMNS; with its key in a keyed queue."""
    fields = dict(zip(EXPIRED_COLUMNS.split(", "), row, strict=True))
    fields["options"] = options_of(fields["options"])
    # Decoded only to notice a damaged row here: the move `expire` reads the column in the database.
    more_of(fields.pop("more"))
    fields["key"] = restored(fields["key"]) if keyed else None
    return ExpiredLease(**fields)


EVENT_COLUMNS: Final = (
    "seq, at, move, job, version, drive, source, target, task, priority, key, delivery, attempt, fence, "
    "worker, deadline, visible_at, reason, error, fingerprint, idempotency_key, max_attempts, jobs, "
    "parent, schedule, instant"
)
