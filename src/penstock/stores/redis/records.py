"""Between the core's values and what stands in the server: records, events, arguments and answers."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.errors import StoreFormatError
from penstock.core.events import Event, first_line
from penstock.core.job import Claimed, ExpiredLease, Job, NewJob, Options, QueueRef
from penstock.core.moves import Bury, Complete, Expire, Fail, Fault, Release, Retry, Settlement, Snooze
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused
from penstock.core.states import State

Outcome = Applied | Refused
Record = Mapping[bytes, bytes]

pack: Final = msgspec.msgpack.Encoder().encode
"""Arguments travel packed, except for payloads and the like: the server's unpacker takes no bytes."""

_OUTCOMES: Final[Mapping[bytes, Outcome]] = {
    **{f"applied/{state}".encode(): Applied(state) for state in State},
    **{f"applied/{state}/cancel".encode(): Applied(state, True) for state in State},
    **{f"refused/{why}/".encode(): Refused(why) for why in Refusal},
    **{f"refused/{why}/{state}".encode(): Refused(why, state) for why in Refusal for state in State},
}
_CREATED: Final = {f"created/{state}".encode(): state for state in State}
_STATES: Final = {state.encode(): state for state in State}
_unpack_event: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode
_read_options: Final = msgspec.json.Decoder(Options).decode


def outcome(answer: bytes) -> Outcome:
    """What was answered for one item."""
    return _OUTCOMES[answer]


def enqueued(new: NewJob, answer: bytes | list[Any]) -> Enqueued | Refused:
    """What was answered for a new job."""
    if not isinstance(answer, bytes):
        holder, state, same = answer
        return Enqueued(holder.decode(), False, _STATES.get(state), bool(same))
    state = _CREATED.get(answer)
    if state is not None:
        return Enqueued(new.id, True, state)
    refused = _OUTCOMES[answer]
    assert isinstance(refused, Refused)  # noqa: S101 (the script has no other answer)
    return refused


def enqueue_arguments(new: NewJob) -> tuple[Any, ...]:
    """A new job without its payload, in the order of enqueue.lua."""
    options = new.options
    return (
        new.id,
        new.nonce,
        new.task,
        new.priority,
        new.delay_ms,
        new.run_at,
        new.idempotency_key,
        None if new.idempotency_key is None else new.digest,
        new.key,
        _written_options(options),
        options.max_attempts,
        options.kept_ms,
        options.key_held_ms,
    )


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
            case Fail(id=job, token=token, fault=fault) | Bury(id=job, token=token, fault=fault):
                items.append((each.move, job, token, *_fault(fault)))
            case Retry(id=job, token=token, delay_ms=delay_ms, fault=fault):
                items.append((each.move, job, token, delay_ms, *_fault(fault)))
            case Snooze(id=job, token=token, delay_ms=delay_ms):
                items.append((each.move, job, token, delay_ms))
            case Release(id=job, token=token, error=error):
                items.append((each.move, job, token, *_error(error)))
    return pack(items), results


def expire_arguments(expiry: Expire) -> tuple[Any, ...]:
    """An expiry in the order of expire.lua."""
    return expiry.id, expiry.token, expiry.target, expiry.delay_ms, *_fault(expiry.fault)


def claims(answer: Sequence[Any]) -> Claims:
    """What was answered to a claim."""
    jobs, expired, wait_ms = answer
    return Claims([_claimed(job) for job in jobs], [expired_lease(lease) for lease in expired], wait_ms)


def _claimed(answer: Sequence[Any]) -> Claimed:
    (job, task, payload, priority, options, enqueued_at, drive, delivery, attempts) = answer[:9]
    (token, fence, deadline, key, last_delay_ms, cancel_requested) = answer[9:]
    return Claimed(
        id=job.decode(),
        task=task.decode(),
        payload=payload,
        priority=priority,
        options=_options(options),
        enqueued_at=enqueued_at,
        drive=drive,
        delivery=delivery,
        attempts=attempts,
        token=token.decode(),
        fence=fence,
        deadline=deadline,
        key=_text(key),
        last_delay_ms=last_delay_ms,
        cancel_requested=cancel_requested is not None,
    )


def expired_lease(answer: Sequence[Any]) -> ExpiredLease:
    """A lease that ran out, in the order of lua/include/expired.lua."""
    job, token, fence, attempts, options, worker, last_delay_ms = answer
    if token is None or options is None:
        raise StoreFormatError(f"job {job.decode()} has a lease and no record; run the store's check")
    return ExpiredLease(
        id=job.decode(),
        token=token.decode(),
        fence=int(fence),
        attempts=int(attempts),
        options=_options(options),
        worker=_text(worker),
        last_delay_ms=_number(last_delay_ms),
    )


def job_of(queue: QueueRef, job: str, record: Record) -> Job | None:
    """The record of a job; None if there is none."""
    if not record:
        return None
    get = record.get
    error, rest = get(b"error"), get(b"error_rest", b"")
    return Job(
        tenant=queue.tenant,
        queue=queue.name,
        id=job,
        nonce=record[b"nonce"].decode(),
        task=record[b"task"].decode(),
        state=_STATES[record[b"state"]],
        payload=record[b"payload"],
        priority=int(record[b"priority"]),
        options=_options(record[b"options"]),
        enqueued_at=int(record[b"enqueued_at"]),
        version=int(record[b"version"]),
        drive=int(record[b"drive"]),
        delivery=int(record[b"delivery"]),
        attempts=int(record[b"attempts"]),
        visible_at=_number(get(b"visible_at")),
        idempotency_key=_text(get(b"idempotency_key")),
        key=_text(get(b"key")),
        token=_text(get(b"token")),
        fence=int(record[b"fence"]),
        deadline=_number(get(b"deadline")),
        worker=_text(get(b"worker")),
        cancel_requested=b"cancel_requested" in record,
        last_delay_ms=_number(get(b"last_delay_ms")),
        reason=_text(get(b"reason")),
        error=None if error is None else (error + rest).decode(),
        fingerprint=_text(get(b"fingerprint")),
        result=get(b"result"),
        progress=get(b"progress"),
        progress_at=_number(get(b"progress_at")),
        ended_at=_number(get(b"ended_at")),
        settled=_text(get(b"settled")) or "",
    )


def event_of(queue: QueueRef, seq: int, packed: bytes) -> Event:
    """An event out of the stream."""
    fields = _unpack_event(packed)
    return msgspec.convert({**fields, "tenant": queue.tenant, "queue": queue.name, "seq": seq}, Event)


def _fault(fault: Fault) -> tuple[str, str | None, str | None, str | None]:
    """Reason, first line and rest of the error, fingerprint."""
    return fault.reason, *_error(fault.error), fault.fingerprint


def _error(error: str | None) -> tuple[str | None, str | None]:
    """The first line, which events carry, and the rest."""
    line = first_line(error)
    return line, None if error is None or line is None else error[len(line) :] or None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _number(value: bytes | None) -> int | None:
    return None if value is None else int(value)


# A queue's jobs mostly have the same options.
@lru_cache(maxsize=256)
def _options(text: bytes) -> Options:
    return _read_options(text)


@lru_cache(maxsize=256)
def _written_options(options: Options) -> str:
    return msgspec.json.encode(options).decode()
