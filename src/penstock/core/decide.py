"""What follows from how an execution ended: a pure function of the job as it was claimed."""

from typing import Final

import msgspec

from penstock.core import moves
from penstock.core.errors import OptionError
from penstock.core.events import fingerprint
from penstock.core.job import Claimed, ExpiredLease
from penstock.core.moves import Expire, Fault, Settlement
from penstock.core.retry import MAX_DELAY_MS, Uniform
from penstock.core.states import State

MAX_ATTEMPTS: Final = "MAX_ATTEMPTS"
LEASE_EXPIRED: Final = "LEASE_EXPIRED"
TIMEOUT: Final = "TIMEOUT"
NO_HANDLER: Final = "NO_HANDLER"
ERROR: Final = "ERROR"
FAILED: Final = "FAILED"
CANCELLED: Final = "CANCELLED"
CHILD_FAILED: Final = "CHILD_FAILED"
INVALID_PAYLOAD: Final = "INVALID_PAYLOAD"
KILLED: Final = "KILLED"
EXITED: Final = "EXITED"
PROTOCOL: Final = "PROTOCOL"
NO_PROCESS: Final = "NO_PROCESS"
UNHANDLED_SOON_MS: Final = (1_000, 3_000)
"""When a job comes back whose task another live worker knows: soon, and not all of them at once."""
UNHANDLED_MS: Final = 15_000
UNHANDLED_CAP_MS: Final = 300_000
"""A task that no worker knows yet may come with a deploy, which takes longer than an error's backoff."""


class Returned(msgspec.Struct, frozen=True, gc=False):
    """The handler returned this, as JSON."""

    result: bytes | None = None


class Raised(msgspec.Struct, frozen=True):
    """The execution failed; `after_ms` is the handler's own wish for the next attempt."""

    error: str
    reason: str = ERROR
    after_ms: int | None = None


class RaisedFail(msgspec.Struct, frozen=True):
    """The handler said: do not try again."""

    error: str | None = None
    reason: str = FAILED


class Postponed(msgspec.Struct, frozen=True):
    """The handler said: later, this was no attempt."""

    delay_ms: int


class Unhandled(msgspec.Struct, frozen=True):
    """This worker does not know the task; `is_known` says that another live worker does.

    `after_ms` is how long a job may go without a handler before it is dead; `now` is the store's time.
    """

    now: int
    is_known: bool
    after_ms: int


class Interrupted(msgspec.Struct, frozen=True):
    """The execution was stopped, by the worker for reasons of its own or by a cancel; `error` says why."""

    error: str | None = None


Ending = Returned | Raised | RaisedFail | Postponed | Unhandled | Interrupted


def settle(job: Claimed, ending: Ending, uniform: Uniform) -> Settlement:
    """The settlement for a delivery that ended so."""
    match ending:
        case Returned(result):
            return moves.Complete(job.id, job.token, result)
        case RaisedFail(error, reason):
            return moves.Fail(job.id, job.token, _fault(reason, error))
        case Postponed(delay_ms):
            return moves.Snooze(job.id, job.token, check_delay_ms("snooze", delay_ms))
        case Unhandled():
            return _without_handler(job, ending, uniform)
        case Interrupted(error):
            return moves.Release(job.id, job.token, None if error is None else clean_error(error))
        case Raised(error, reason, after_ms):
            attempts = job.attempts + 1
            if attempts >= job.options.max_attempts:
                return moves.Bury(job.id, job.token, _last_fault(reason, error))
            delay = (
                job.options.backoff.delay_ms(attempts, uniform, job.last_delay_ms)
                if after_ms is None
                else check_delay_ms("retry.after", after_ms)
            )
            return moves.Retry(job.id, job.token, delay, _fault(reason, error))


def _without_handler(job: Claimed, ending: Unhandled, uniform: Uniform) -> Settlement:
    """Back without an attempt, and dead only after a long time without a handler.

    What no live worker knows waits as long as it has waited already, and a little more: 15 s, 30 s, 60 s …
    """
    waited = 0 if job.unhandled_since is None else max(0, ending.now - job.unhandled_since)
    if waited >= ending.after_ms:
        text = f"UnknownTaskError: no worker knew task {job.task!r} for {waited // 1000} s"
        return moves.Bury(job.id, job.token, _fault(NO_HANDLER, text), uses_attempt=False)
    if ending.is_known:
        delay = round(uniform(*UNHANDLED_SOON_MS))
    else:
        delay = min(UNHANDLED_CAP_MS, waited + UNHANDLED_MS)
    return moves.Snooze(job.id, job.token, delay, NO_HANDLER)


def expire(lease: ExpiredLease, uniform: Uniform) -> Expire:
    """What follows for a job whose lease ran out."""
    attempts = lease.attempts + 1
    held_by = f"worker {lease.worker} let the lease run out" if lease.worker else None
    fault = Fault(LEASE_EXPIRED, held_by, fingerprint(LEASE_EXPIRED))
    if attempts >= lease.options.max_attempts:
        return Expire(lease.id, lease.token, State.DEAD, fault)
    if lease.key is not None:
        return Expire(lease.id, lease.token, State.PENDING, fault)
    delay = lease.options.backoff.delay_ms(attempts, uniform, lease.last_delay_ms)
    return Expire(lease.id, lease.token, State.DELAYED, fault, delay)


def check_delay_ms(field: str, delay_ms: int) -> int:
    """The delay itself, or OptionError when it is negative or over seven days."""
    if not 0 <= delay_ms <= MAX_DELAY_MS:
        raise OptionError(field, delay_ms / 1000, f"seconds from 0 to {MAX_DELAY_MS // 1000}")
    return delay_ms


def _fault(reason: str, error: str | None) -> Fault:
    clean = None if error is None else clean_error(error)
    return Fault(reason, clean, fingerprint(clean))


def _last_fault(reason: str, error: str) -> Fault:
    """An ordinary error that used up the attempts is MAX_ATTEMPTS; any other reason says more than that."""
    return _fault(MAX_ATTEMPTS if reason == ERROR else reason, error)


def clean_error(error: str, limit: int = 8_000) -> str:
    """Text that every store can keep: bounded, no NUL, no lone surrogates."""
    text = error.replace("\0", "␀").encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-limit // 2 :]}"
