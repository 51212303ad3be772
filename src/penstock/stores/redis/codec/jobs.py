"""The record of a job, and the job that is put together from it."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.errors import StoreFormatError
from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import Job, Options, QueueRef
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.corruption import DECODE_ERRORS, job_error
from penstock.stores.redis.codec.values import Number, Text, number_or_none, text_or_none


class Extra(msgspec.Struct, frozen=True):
    """What few jobs have. `left` counts the children that a blocked job still waits for."""

    unique: tuple[str, UniqueRule, int] | None = None
    parents: tuple[JobRef, ...] = ()
    policy: ChildPolicy = ChildPolicy.FAIL
    schedule: str | None = None
    instant: int | None = None
    delay_ms: int = 0
    run_at: int | None = None
    left: int = 0
    unhandled_since: int | None = None
    headers: dict[str, str] | None = None


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as scripts write it: false is None. New fields come at the end."""

    state: State
    version: int
    place: int
    task: str
    priority: int
    key: Text
    drive: int
    delivery: int
    attempts: int
    fence: int
    token: Text
    deadline: Number
    worker: Text
    cancel_requested: bool
    visible_at: Number
    last_delay_ms: Number
    reason: Text
    error: Text
    fingerprint: Text
    ended_at: Number
    progress_at: Number
    settled: Text
    enqueued_at: int
    retention_ms: int
    idempotency_key: Text
    key_held_ms: int
    nonce: str
    options: str
    extra: Extra | bool
    lease_ms: Number = False
    """Of the lease that is held. In records of earlier versions completed jobs have it too."""


RECORD_FIELDS: Final = Record.__struct_fields__
_decode_options: Final = msgspec.json.Decoder(Options).decode
read_record: Final = msgspec.msgpack.Decoder(Record).decode


def job_of(
    queue: QueueRef,
    job: str,
    packed: bytes,
    payload: bytes | None,
    result: bytes | None,
    error_rest: bytes | None,
    progress: bytes | None,
) -> Job:
    """The record of a job, put together with what stands apart from it; StoreFormatError where damaged."""
    try:
        return _job_of(queue, job, packed, payload, result, error_rest, progress)
    except DECODE_ERRORS as error:
        raise job_error(queue, job, error) from None


def job_or_none(queue: QueueRef, *parts: Any) -> Job | None:
    """The same; None where it is damaged."""
    try:
        return job_of(queue, *parts)
    except StoreFormatError:
        return None


def record_or_none(packed: bytes) -> Record | None:
    """A record; None where it is damaged."""
    try:
        return read_whole(packed)
    except DECODE_ERRORS:
        return None


def read_whole(packed: bytes) -> Record:
    """A record, and its options looked at."""
    record = read_record(packed)
    read_options(record.options)
    return record


def _job_of(
    queue: QueueRef,
    job: str,
    packed: bytes,
    payload: bytes | None,
    result: bytes | None,
    error_rest: bytes | None,
    progress: bytes | None,
) -> Job:
    record = read_record(packed)
    if payload is None:
        raise ValueError("its payload is missing")
    error = text_or_none(record.error)
    extra = record.extra if isinstance(record.extra, Extra) else Extra()
    return Job(
        tenant=queue.tenant,
        queue=queue.name,
        id=job,
        nonce=record.nonce,
        task=record.task,
        state=record.state,
        payload=payload,
        priority=record.priority,
        options=read_options(record.options),
        enqueued_at=record.enqueued_at,
        version=record.version,
        drive=record.drive,
        delivery=record.delivery,
        attempts=record.attempts,
        visible_at=number_or_none(record.visible_at),
        idempotency_key=text_or_none(record.idempotency_key),
        key=text_or_none(record.key),
        token=text_or_none(record.token),
        fence=record.fence,
        deadline=number_or_none(record.deadline),
        lease_ms=number_or_none(record.lease_ms) if record.state is State.ACTIVE else None,
        worker=text_or_none(record.worker),
        cancel_requested=record.cancel_requested,
        last_delay_ms=number_or_none(record.last_delay_ms),
        reason=text_or_none(record.reason),
        error=error if error is None or error_rest is None else error + error_rest.decode(),
        fingerprint=text_or_none(record.fingerprint),
        result=result,
        progress=progress,
        progress_at=number_or_none(record.progress_at),
        ended_at=number_or_none(record.ended_at),
        settled=text_or_none(record.settled) or "",
        delay_ms=extra.delay_ms,
        run_at=extra.run_at,
        unique=None if extra.unique is None else Unique(*extra.unique),
        parents=extra.parents,
        child_policy=extra.policy,
        schedule=extra.schedule,
        instant=extra.instant,
        unhandled_since=extra.unhandled_since,
        headers=extra.headers,
    )


# A queue's jobs mostly have the same options.
@lru_cache(maxsize=256)
def read_options(text: str) -> Options:
    """The options of a record."""
    return _decode_options(text)
