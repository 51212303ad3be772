"""What a record looks like after a move that was allowed: the table's effects, as pure functions."""

from typing import Any, Final, assert_never

from msgspec.structs import replace

from penstock.core.clocks import next_fence
from penstock.core.decide import CANCELLED, CHILD_FAILED
from penstock.core.flows import JobRef
from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.moves import (
    Bury,
    Complete,
    Expire,
    Fail,
    Fault,
    Release,
    Retry,
    Settlement,
    Snooze,
)
from penstock.core.outcomes import SETTLED_LIMIT, settlement_note
from penstock.core.states import State

PROGRESS_EVERY_MS: Final = 1_000
"""At most one progress event per job in this time; the value itself is always kept."""

_NO_FAULT: Final = {"reason": None, "error": None, "fingerprint": None}


def enqueued(queue: QueueRef, new: NewJob, now: int) -> Job:
    """The record of a new job."""
    visible_at = now + new.delay_ms if new.run_at is None else new.run_at
    blocked = bool(new.awaits)
    waits = visible_at > now and not blocked
    return Job(
        tenant=queue.tenant,
        queue=queue.name,
        id=new.id,
        nonce=new.nonce,
        task=new.task,
        state=State.BLOCKED if blocked else State.DELAYED if waits else State.PENDING,
        payload=new.payload,
        priority=new.priority,
        options=new.options,
        enqueued_at=now,
        visible_at=visible_at if waits else None,
        idempotency_key=new.idempotency_key,
        key=new.key,
        delay_ms=new.delay_ms if blocked else 0,
        run_at=new.run_at if blocked else None,
        unique=new.unique,
        parents=new.parents,
        child_policy=new.child_policy,
        schedule=new.schedule,
        instant=new.instant,
        headers=new.headers,
    )


def promoted(job: Job) -> Job:
    """Claimable now."""
    return _moved(job, State.PENDING)


def unblocked(job: Job, now: int, *, fails: bool, child: JobRef) -> Job:
    """Its last child ended; or one did without success, and the parent's policy is to fail with it."""
    if fails:
        return _ended(job, State.FAILED, now, reason=CHILD_FAILED, error=child_failed(child))
    visible_at = now + job.delay_ms if job.run_at is None else job.run_at
    if visible_at > now:
        return _moved(job, State.DELAYED, visible_at=visible_at)
    return _moved(job, State.PENDING)


def child_failed(child: JobRef) -> str:
    """What a parent that failed with its child says of it."""
    return f"child {child} ended without success"


def replaced(job: Job, new: NewJob, now: int) -> Job:
    """Debounced: the newer work in the older job's place, and the wait begins again."""
    visible_at = now + new.delay_ms if new.run_at is None else new.run_at
    waits = visible_at > now
    state = State.DELAYED if waits else State.PENDING
    return _moved(
        job, state, payload=new.payload, headers=new.headers, visible_at=visible_at if waits else None
    )


def claimed(
    job: Job, *, token: str, worker: str, now: int, now_us: int, lease_ms: int, floor_us: int = 0
) -> Job:
    """Leased to the worker."""
    return _moved(
        job,
        State.ACTIVE,
        token=token,
        worker=worker,
        fence=next_fence(job.fence, now_us, floor_us),
        delivery=job.delivery + 1,
        deadline=now + lease_ms,
        lease_ms=lease_ms,
    )


def renewed(job: Job, now: int, lease_ms: int) -> Job:
    """Held for longer; no transition, so the version stays."""
    deadline = max(job.deadline or 0, now + lease_ms)
    return replace(job, deadline=deadline, lease_ms=max(job.lease_ms or 0, lease_ms))


def reported(job: Job, value: bytes, now: int) -> tuple[Job, bool]:
    """With the newest progress; True when it is time for an event."""
    if job.progress_at is not None and job.progress_at <= now < job.progress_at + PROGRESS_EVERY_MS:
        return replace(job, progress=value), False
    return _moved(job, State.ACTIVE, progress=value, progress_at=now), True


def settled(job: Job, settlement: Settlement, now: int) -> Job:
    """After the worker's own word; cancelled if that was asked for and the work is not done."""
    match settlement:
        case Complete(result=result):
            after = _ended(job, State.COMPLETED, now, result=result, **_NO_FAULT)
        case Fail(fault=fault):
            after = _ended(job, State.FAILED, now, **_fault(fault))
        case _ if job.cancel_requested:
            after = _cancelled(job, now, settlement)
        case Retry(delay_ms=delay_ms, fault=fault):
            failed = _failed(job, fault) | {"unhandled_since": None}
            after = _waiting(job, now, delay_ms, last_delay_ms=delay_ms, **failed)
        case Bury(fault=fault, uses_attempt=uses_attempt):
            after = _ended(job, State.DEAD, now, **_failed(job, fault, uses_attempt))
        case Snooze(delay_ms=delay_ms, reason=None):
            after = _waiting(job, now, delay_ms, unhandled_since=None)
        case Snooze(delay_ms=delay_ms, reason=reason):
            since = now if job.unhandled_since is None else job.unhandled_since
            after = _waiting(job, now, delay_ms, reason=reason, unhandled_since=since)
        case Release():
            after = _moved(job, State.PENDING)
        case _:
            assert_never(settlement)
    note = settlement_note(settlement.token, settlement.move, after.state)
    return replace(after, settled=(job.settled + note)[-SETTLED_LIMIT:])


def expired(job: Job, expiry: Expire, now: int) -> Job:
    """After its lease ran out."""
    if job.cancel_requested:
        return _cancelled(job, now, expiry)
    failed = _failed(job, expiry.fault) | {"unhandled_since": None}
    match expiry.target:
        case State.DEAD:
            return _ended(job, State.DEAD, now, **failed)
        case State.DELAYED:
            return _waiting(job, now, expiry.delay_ms, last_delay_ms=expiry.delay_ms, **failed)
        case _:
            return _moved(job, State.PENDING, **failed)


def cancelled(job: Job, now: int) -> Job:
    """Taken back, or with the request noted while it runs."""
    if job.state is State.ACTIVE:
        return replace(job, cancel_requested=True, version=job.version + 1)
    return _ended(job, State.CANCELLED, now, reason=CANCELLED)


def redriven(job: Job) -> Job:
    """A new life with the old policy."""
    return _moved(
        job,
        State.PENDING,
        drive=job.drive + 1,
        attempts=0,
        cancel_requested=False,
        last_delay_ms=None,
        ended_at=None,
        unhandled_since=None,
        **_NO_FAULT,
    )


def _moved(job: Job, state: State, **changes: Any) -> Job:
    fields: dict[str, Any] = {"visible_at": None}
    if state is not State.ACTIVE:
        fields |= {"token": None, "deadline": None, "lease_ms": None}
    return replace(job, state=state, version=job.version + 1, **(fields | changes))


def _waiting(job: Job, now: int, delay_ms: int, **changes: Any) -> Job:
    return _moved(job, State.DELAYED, visible_at=now + delay_ms, **changes)


def _ended(job: Job, state: State, now: int, **changes: Any) -> Job:
    return _moved(job, state, ended_at=now, **changes)


def _cancelled(job: Job, now: int, change: Settlement | Expire) -> Job:
    failed: dict[str, Any] = {}
    if isinstance(change, Retry | Bury | Expire):
        failed = _failed(job, change.fault, not isinstance(change, Bury) or change.uses_attempt)
    if isinstance(change, Release) and change.error is not None:
        failed = {"error": change.error}
    return _ended(job, State.CANCELLED, now, **(failed | {"reason": CANCELLED}))


def _failed(job: Job, fault: Fault, uses_attempt: bool = True) -> dict[str, Any]:
    return {"attempts": job.attempts + uses_attempt, **_fault(fault)}


def _fault(fault: Fault) -> dict[str, Any]:
    return {"reason": fault.reason, "error": fault.error, "fingerprint": fault.fingerprint}
