"""Between the core's values and what stands in the server: records, events, arguments and answers."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from penstock.core.errors import StoreFormatError
from penstock.core.events import Event, first_line
from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import Claimed, ExpiredLease, Job, NewJob, Options, QueueRef
from penstock.core.moves import Bury, Complete, Expire, Fail, Fault, Move, Release, Retry, Settlement, Snooze
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.columns import columns
from penstock.stores.damaged import DAMAGED, damaged, damaged_job
from penstock.stores.values import EventColumns, KeyHolder

Outcome = Applied | Refused

pack: Final = msgspec.msgpack.Encoder().encode
"""Arguments travel packed, except for payloads and the like: the server's unpacker takes no bytes."""

# Scripts write false for None: an array with a hole would not be one to them.
Text = str | bool
Number = int | bool


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


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record in the order of lua/include/fields.lua. New fields come at the end."""

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
    """Of the lease that is held; scripts leave it behind in completed jobs."""


MoveName = TypeVar("MoveName")
StateName = TypeVar("StateName")


class _Logged(msgspec.Struct, Generic[MoveName, StateName], frozen=True, array_like=True, gc=False):
    """An event in the order of lua/include/events.lua. New fields come at the end."""

    v: int
    move: MoveName
    at: int
    job: Text = False
    version: Number = False
    drive: Number = False
    source: StateName | bool = False
    target: StateName | bool = False
    task: Text = False
    key: Text = False
    priority: Number = False
    max_attempts: Number = False
    delivery: Number = False
    attempt: Number = False
    fence: Number = False
    worker: Text = False
    deadline: Number = False
    visible_at: Number = False
    reason: Text = False
    error: Text = False
    fingerprint: Text = False
    idempotency_key: Text = False
    parent: Text = False
    schedule: Text = False
    instant: Number = False
    jobs: list[str] | bool = False


_OUTCOMES: Final[Mapping[bytes, Outcome]] = {
    **{f"applied/{state}".encode(): Applied(state) for state in State},
    **{f"applied/{state}/cancel".encode(): Applied(state, True) for state in State},
    **{f"refused/{why}/".encode(): Refused(why) for why in Refusal},
    **{f"refused/{why}/{state}".encode(): Refused(why, state) for why in Refusal for state in State},
}
_CREATED: Final = {f"created/{state}".encode(): state for state in State}
_STATES: Final = {state.encode(): state for state in State}
_LOGGED_FIELDS: Final = _Logged.__struct_fields__
_read_logged: Final = msgspec.msgpack.Decoder(_Logged[Move, State]).decode
_read_loose: Final = msgspec.msgpack.Decoder(_Logged[str, str]).decode
"""Also with moves and states of later versions."""
_read_options: Final = msgspec.json.Decoder(Options).decode
read_record: Final = msgspec.msgpack.Decoder(Record).decode


def outcome(answer: bytes) -> Outcome:
    """What was answered for one item."""
    return _OUTCOMES[answer]


def key_holder(answer: bytes) -> KeyHolder | None:
    """Who holds an idempotency key, as the script says."""
    if not answer:
        return None
    job, digest, *state = answer.decode().split(" ")
    return KeyHolder(job, State(state[0]) if state else None, digest)


def enqueued(jobs: Sequence[NewJob], answers: Sequence[bytes]) -> list[Enqueued | Refused]:
    """What was answered for new jobs; one answer may be for all."""
    if len(answers) != 1:
        return [_enqueued(new, answer) for new, answer in zip(jobs, answers, strict=True)]
    created = _CREATED.get(answers[0])
    if created is None:
        return [_enqueued(new, answers[0]) for new in jobs]
    return [Enqueued(new.id, True, created) for new in jobs]


def _enqueued(new: NewJob, answer: bytes) -> Enqueued | Refused:
    created = _CREATED.get(answer)
    if created is not None:
        return Enqueued(new.id, True, created)
    if answer.startswith(b"held/"):
        _, holder, state, same, replaced = answer.split(b"/")
        return Enqueued(holder.decode(), False, _STATES.get(state), same == b"1", replaced == b"1")
    refused = _OUTCOMES[answer]
    assert isinstance(refused, Refused)  # noqa: S101 (the script has no other answer)
    return refused


def enqueue_arguments(jobs: Sequence[NewJob]) -> tuple[list[Any], list[Any]]:
    """New jobs without their payloads, as enqueue.lua takes them: their sorts, and six values for each."""
    sorts: list[tuple[Any, ...]] = []
    numbers: dict[tuple[str, int, int], int] = {}
    items: list[Any] = []
    for new in jobs:
        sort = new.task, new.priority, id(new.options)
        number = numbers.get(sort)
        if number is None:
            known, written = _written_options(new.options)
            sorts.append((new.task, new.priority, written, *known))
            number = numbers[sort] = len(sorts)
        key = new.idempotency_key
        items += (
            (new.id, new.nonce, number, False, False, _more(new))
            if key is None
            else (new.id, new.nonce, number, key, new.digest, _more(new))
        )
    return sorts, items


def short_arguments(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """The same, or where nothing else would be said of any of them: the one sort, the ids and the nonces."""
    sorts, items = enqueue_arguments(jobs)
    said = [*items[3::_WIDTH], *items[5::_WIDTH]]
    if len(sorts) == 1 and said.count(False) == len(said):
        return sorts, items[0::_WIDTH], items[1::_WIDTH]
    return sorts, items


def _more(new: NewJob) -> tuple[Any, ...] | bool:
    """What few jobs that come in bulk have: most wait at once, in no order of keys."""
    extra = _extra_arguments(new)
    if extra is None and new.key is None and not new.delay_ms and new.run_at is None:
        return False
    return new.delay_ms, new.run_at, new.key, extra


def _extra_arguments(new: NewJob) -> dict[str, Any] | None:
    extra: dict[str, Any] = {}
    if new.unique is not None:
        extra["unique"] = (new.unique.key, new.unique.rule, new.unique.window_ms)
    if new.parents:
        extra["parents"] = new.parents
    if new.awaits:
        # Named twice it is one child.
        extra["awaits"] = tuple(dict.fromkeys(new.awaits))
    if new.child_policy is not ChildPolicy.FAIL:
        extra["policy"] = new.child_policy
    if new.schedule is not None:
        extra |= {"schedule": new.schedule, "instant": new.instant}
    return extra or None


_WIDTH: Final = 6
"""Values for each new job."""
_FIRST_RESULT: Final = 4
"""The number of the argument of calls/settle.lua from which on results stand."""


def settle_arguments(settlements: Sequence[Settlement]) -> tuple[bytes, list[bytes]]:
    """Settlements in the order of calls/settle.lua, and the results, which go apart."""
    items: list[tuple[Any, ...]] = []
    results: list[bytes] = []
    for each in settlements:
        match each:
            case Complete(id=job, token=token, result=result):
                at = None if result is None else _FIRST_RESULT + len(results)
                items.append((each.move, job, token, at))
                results += [] if result is None else [result]
            case Fail(id=job, token=token, fault=fault):
                items.append((each.move, job, token, *_fault(fault)))
            case Bury(id=job, token=token, fault=fault, uses_attempt=uses_attempt):
                items.append((each.move, job, token, uses_attempt, *_fault(fault)))
            case Retry(id=job, token=token, delay_ms=delay_ms, fault=fault):
                items.append((each.move, job, token, delay_ms, *_fault(fault)))
            case Snooze(id=job, token=token, delay_ms=delay_ms, reason=reason):
                items.append((each.move, job, token, delay_ms, reason))
            case Release(id=job, token=token, error=error):
                items.append((each.move, job, token, *_error(error)))
    return pack(items), results


def expire_arguments(expiry: Expire) -> tuple[Any, ...]:
    """An expiry in the order of expire.lua."""
    return expiry.id, expiry.token, expiry.target, expiry.delay_ms, *_fault(expiry.fault)


class Damage(NamedTuple):
    """Something to set aside: a `record`, or an entry of an index without its job; see quarantine/put.lua."""

    kind: str
    entry: bytes
    job: bytes
    what: str
    digest: str = ""


def damaged_record(job: bytes, record: bytes, error: Exception) -> Damage:
    """A record that cannot be read."""
    digest = hashlib.sha1(record, usedforsecurity=False).hexdigest()
    return Damage("record", job, job, f"a record that cannot be read: {error}", digest)


def claims(answer: Sequence[Any]) -> tuple[Claims, list[Damage]]:
    """What was answered to a claim, and what of it is to be set aside."""
    jobs, expired, wait_ms, has_keys, is_more, stands, is_contended, now_us = answer
    leases, damages = expired_leases(expired, has_keys)
    try:
        claimed = [
            _claimed(jobs[at], read_record(jobs[at + 1]), jobs[at + 2]) for at in range(0, len(jobs), 3)
        ]
    except DAMAGED:
        claimed = []
        for at in range(0, len(jobs), 3):
            try:
                claimed.append(_claimed(jobs[at], read_record(jobs[at + 1]), jobs[at + 2]))
            except DAMAGED as error:
                damages.append(damaged_record(jobs[at], jobs[at + 1], error))
    is_more = bool(is_more) or bool(damages)
    return Claims(claimed, leases, wait_ms, is_more, stands, bool(is_contended), int(now_us)), damages


def handed(job: bytes, record: bytes, payload: bytes) -> Claims:
    """What a claim that stood brought. More may have come since."""
    return Claims([_claimed(job, read_record(record), payload)], is_more=True)


def _claimed(job: bytes, record: Record, payload: bytes | None) -> Claimed:
    extra = record.extra
    if payload is None:
        raise ValueError("its payload is missing")
    return Claimed(
        id=job.decode(),
        task=record.task,
        payload=payload,
        priority=record.priority,
        options=_options(record.options),
        enqueued_at=record.enqueued_at,
        drive=record.drive,
        delivery=record.delivery,
        attempts=record.attempts,
        token=record.token,  # type: ignore[arg-type] # a claim wrote one
        fence=record.fence,
        deadline=record.deadline,
        key=_text(record.key),
        last_delay_ms=_number(record.last_delay_ms),
        cancel_requested=record.cancel_requested,
        parents=extra.parents if isinstance(extra, Extra) else (),
        unhandled_since=extra.unhandled_since if isinstance(extra, Extra) else None,
    )


def expired_leases(answer: Sequence[Any], has_keys: int) -> tuple[list[ExpiredLease], list[Damage]]:
    """Leases that ran out, each as its id and record, and what of them is to be set aside."""
    leases: list[ExpiredLease] = []
    damages: list[Damage] = []
    for job, packed in zip(answer[::2], answer[1::2], strict=True):
        if packed is None:
            damages.append(Damage("active", job, job, "an entry among the active without a record"))
            continue
        try:
            record = read_record(packed)
            if isinstance(record.token, str):
                leases.append(_expired_lease(job, record, has_keys))
            else:
                damages.append(
                    Damage("active", job, job, "an entry among the active of a job without a lease")
                )
        except DAMAGED as error:
            damages.append(damaged_record(job, packed, error))
    return leases, damages


def _expired_lease(job: bytes, record: Record, has_keys: int) -> ExpiredLease:
    return ExpiredLease(
        id=job.decode(),
        token=str(record.token),
        fence=record.fence,
        attempts=record.attempts,
        options=_options(record.options),
        worker=_text(record.worker),
        last_delay_ms=_number(record.last_delay_ms),
        key=_text(record.key) if has_keys else None,
    )


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
    except DAMAGED as error:
        raise damaged_job(queue, job, error) from None


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
    except DAMAGED:
        return None


def read_whole(packed: bytes) -> Record:
    """A record, and its options looked at."""
    record = read_record(packed)
    _options(record.options)
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
    error = _text(record.error)
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
        options=_options(record.options),
        enqueued_at=record.enqueued_at,
        version=record.version,
        drive=record.drive,
        delivery=record.delivery,
        attempts=record.attempts,
        visible_at=_number(record.visible_at),
        idempotency_key=_text(record.idempotency_key),
        key=_text(record.key),
        token=_text(record.token),
        fence=record.fence,
        deadline=_number(record.deadline),
        lease_ms=_number(record.lease_ms) if record.state is State.ACTIVE else None,
        worker=_text(record.worker),
        cancel_requested=record.cancel_requested,
        last_delay_ms=_number(record.last_delay_ms),
        reason=_text(record.reason),
        error=error if error is None or error_rest is None else error + error_rest.decode(),
        fingerprint=_text(record.fingerprint),
        result=result,
        progress=progress,
        progress_at=_number(record.progress_at),
        ended_at=_number(record.ended_at),
        settled=_text(record.settled) or "",
        delay_ms=extra.delay_ms,
        run_at=extra.run_at,
        unique=None if extra.unique is None else Unique(*extra.unique),
        parents=extra.parents,
        child_policy=extra.policy,
        schedule=extra.schedule,
        instant=extra.instant,
        unhandled_since=extra.unhandled_since,
    )


def event_of(queue: QueueRef, seq: int, packed: bytes) -> Event:
    """An event out of the stream."""
    try:
        logged = _read_logged(packed)
    except DAMAGED as error:
        raise damaged(queue, seq, error) from None
    fields = {name: value for name in _LOGGED_FIELDS if (value := getattr(logged, name)) is not False}
    return Event(tenant=queue.tenant, queue=queue.name, seq=seq, **fields)


Entry = tuple[bytes, Sequence[bytes]]
"""The id of an entry of a stream, and its names and values in turn."""


def columns_of(entries: Sequence[Entry]) -> EventColumns:
    """Events of the stream field by field."""
    broken: dict[int, str] = {}
    try:
        rows = [_row(*entry) for entry in entries]
    except (ValueError, msgspec.DecodeError):
        rows = [_row_or_problem(at, entry, broken) for at, entry in enumerate(entries)]
    unknown = {
        at: {str(place): each for place, each in enumerate(later, len(_LOGGED_FIELDS) + 1)}
        for at, (_, fields) in enumerate(entries)
        if at not in broken and (later := _later(fields[1]))
    }
    found = columns(("seq", *_LOGGED_FIELDS), rows)
    said: dict[str, Sequence[Any]] = {}
    for name, values in found.items():
        kinds = set(map(type, values))
        if kinds != {bool}:
            said[name] = [None if each is False else each for each in values] if bool in kinds else values
    return EventColumns(len(rows), said, unknown=unknown, broken=broken)


def _row(number: bytes, fields: Sequence[bytes]) -> tuple[Any, ...]:
    _, packed = fields
    if not number.endswith(b"-0"):
        raise ValueError("it has a second number")
    return int(number[:-2]), *msgspec.structs.astuple(_read_loose(packed))


def _row_or_problem(at: int, entry: Entry, broken: dict[int, str]) -> tuple[Any, ...]:
    try:
        return _row(*entry)
    except (ValueError, msgspec.DecodeError) as error:
        broken[at] = f"entry {entry[0].decode()} of the stream is no event: {error}"
        return int(entry[0].partition(b"-")[0]), *(False,) * len(_LOGGED_FIELDS)


def _later(packed: bytes) -> Sequence[Any]:
    """Fields of later versions. Arrays of more than 15 have their length in two bytes, or in four."""
    head = packed[0]
    if head < _LONG or int.from_bytes(packed[1 : 3 if head == _LONG else 5]) <= len(_LOGGED_FIELDS):
        return ()
    later: list[Any] = msgspec.msgpack.decode(packed)[len(_LOGGED_FIELDS) :]
    return later


_LONG: Final = 0xDC


def _fault(fault: Fault) -> tuple[str, str | None, str | None, str | None]:
    """Reason, first line and rest of the error, fingerprint."""
    return fault.reason, *_error(fault.error), fault.fingerprint


def _error(error: str | None) -> tuple[str | None, str | None]:
    """The first line, which events carry, and the rest."""
    line = first_line(error)
    return line, None if error is None or line is None else error[len(line) :] or None


def _text(value: Text) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Number) -> int | None:
    return None if value is False else value


# A queue's jobs mostly have the same options.
@lru_cache(maxsize=256)
def _options(text: str) -> Options:
    return _read_options(text)


@lru_cache(maxsize=256)
def _written_options(options: Options) -> tuple[tuple[int, int, int], str]:
    """What scripts need to know of them, and all of them."""
    known = options.max_attempts, options.kept_ms, options.key_held_ms
    return known, msgspec.json.encode(options).decode()
