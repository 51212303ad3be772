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
from penstock.stores.protocol import EventColumns, Spawn

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
    if text is None:
        return _NO_MORE
    more = _MORE_DECODER.decode(text)
    if more.unique is None or "\\" not in more.unique.key:
        return more
    unique = msgspec.structs.replace(more.unique, key=restored(more.unique.key) or "")
    return msgspec.structs.replace(more, unique=unique)


def _more_text(new: NewJob) -> str | None:
    if not (new.parents or new.awaits or new.unique or new.schedule):
        return None
    blocked = bool(new.awaits)
    unique = new.unique
    if unique is not None:
        # The server reads this JSON, too, and cannot have NUL in it, however it is written.
        unique = msgspec.structs.replace(unique, key=stored(unique.key) or "")
    more = More(
        new.parents,
        new.child_policy,
        new.delay_ms if blocked else 0,
        new.run_at if blocked else None,
        unique,
        new.schedule,
        new.instant,
    )
    return encode(more)


@lru_cache(maxsize=1024)
def options_of(text: str) -> Options:
    """The options back."""
    return _OPTIONS_DECODER.decode(text)


def stored(text: str | None) -> str | None:
    """Free text as PostgreSQL can keep it: without NUL."""
    if text is None or ("\0" not in text and "\\" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def restored(text: str | None) -> str | None:
    """Free text back."""
    if text is None or "\\" not in text:
        return text
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\"))


def new_columns(jobs: Sequence[NewJob]) -> list[list[Any]]:
    """New jobs as the items of enqueue.sql."""
    options = [new.options for new in jobs]
    return [
        [new.id for new in jobs],
        [new.nonce for new in jobs],
        [new.task for new in jobs],
        [bool(new.awaits) for new in jobs],
        [new.priority for new in jobs],
        [new.delay_ms for new in jobs],
        [new.run_at for new in jobs],
        [stored(new.idempotency_key) for new in jobs],
        [None if new.idempotency_key is None else new.digest for new in jobs],
        [stored(new.key) for new in jobs],
        [options_text(each) for each in options],
        [each.max_attempts for each in options],
        [each.kept_ms for each in options],
        [each.key_held_ms for each in options],
        [new.payload.decode() for new in jobs],
        [_more_text(new) for new in jobs],
    ]


def spawn_columns(spawns: Sequence[Spawn]) -> tuple[list[str], list[str]]:
    """Jobs for other queues as the items of their relay entries."""
    return [each.queue for each in spawns], [encode(each.job) for each in spawns]


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


def claimed_of(row: Sequence[Any]) -> Claimed:
    """A job of claim.sql's answer, from its id on."""
    return Claimed(
        id=row[0],
        task=row[1],
        payload=row[2].encode(),
        priority=row[3],
        options=options_of(row[4]),
        enqueued_at=row[5],
        drive=row[6],
        delivery=row[7],
        attempts=row[8],
        token=row[9],
        fence=row[10],
        deadline=row[11],
        key=restored(row[12]),
        last_delay_ms=row[13],
        cancel_requested=row[14],
        parents=more_of(row[15]).parents,
    )


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
    fields["idempotency_key"] = restored(fields["idempotency_key"])
    fields["key"] = restored(fields["key"])
    return Event(v=EVENT_VERSION, tenant=queue.tenant, queue=queue.name, **fields)


_KNOWN: Final = frozenset({"stamp", *EVENT_COLUMNS.split(", ")})


def columns_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> EventColumns:
    """Events field by field, from all columns of their table."""
    found = columns(names, rows)
    fields = {name: values for name, values in found.items() if name in _KNOWN}
    fields["key"] = [restored(text) for text in found.get("key", ())]
    fields["idempotency_key"] = [restored(text) for text in found.get("idempotency_key", ())]
    fields["v"] = [EVENT_VERSION] * len(rows)
    stamps = found.get("stamp", ())
    return EventColumns(len(rows), fields, stamps, unknown(found, _KNOWN, len(rows)))
