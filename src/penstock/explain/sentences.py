"""Why a job is not running, as sentences: a pure function of facts about the job."""

from typing import Final

from penstock.core.clocks import has_ended
from penstock.core.decide import CHILD_FAILED, LEASE_EXPIRED, NO_HANDLER
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.explain.formatting import local, span
from penstock.explain.job_facts import JobFacts
from penstock.explain.reasons import child_reasons, limit_reasons, worker_reasons

__all__ = ["JobFacts", "explain"]

IDLE_MS: Final = 5_000
"""If a job is pending for longer than this and no lease is held, no worker runs on the queue."""


def explain(facts: JobFacts) -> list[str]:
    """The sentences, the most important first."""
    return _by_state(facts) + _schedule(facts)


def _by_state(facts: JobFacts) -> list[str]:
    match facts.job.state:
        case State.PENDING:
            return _pending(facts)
        case State.DELAYED:
            return _delayed(facts)
        case State.ACTIVE:
            return _active(facts)
        case State.BLOCKED:
            return child_reasons(facts) + _paused(facts)
        case _:
            return _ended(facts)


def _pending(facts: JobFacts) -> list[str]:
    since = facts.job.enqueued_at if facts.last is None else facts.last.at
    waited = facts.now - since
    ahead = f"{facts.ahead} {'job' if facts.ahead == 1 else 'jobs'} ahead" if facts.ahead else "next in line"
    has_keys = facts.declaration is not None and facts.declaration.mode.has_keys
    line = f"key {facts.job.key!r} of queue {facts.job.queue!r}" if has_keys else f"queue {facts.job.queue!r}"
    if paused := _paused(facts):
        return [f"waiting: {paused[0]}, {ahead}", *limit_reasons(facts)]
    out = [f"waiting: pending for {span(waited)}, {ahead} in {line}"]
    if reasons := limit_reasons(facts):
        out += reasons
    elif facts.leases:
        held = "1 lease is" if facts.leases == 1 else f"{facts.leases} leases are"
        out.append(f"workers are busy: {held} held in this queue")
    elif waited >= IDLE_MS:
        out.append(
            "no worker seems to be running: none holds a lease in this queue, "
            f"and the oldest pending job is at least {span(waited)} old"
        )
    else:
        out.append("no worker holds a lease in this queue just now")
    out += worker_reasons(facts)
    if facts.last is not None and facts.last.move is Move.RELEASE:
        out.append(f"worker {facts.last.worker} released it unfinished; that used no attempt")
    if facts.last is not None and facts.last.move is Move.REDRIVE:
        out.append(f"it was redriven at {local(facts.last.at)}: this is drive {facts.job.drive}")
    return out + _failures(facts)


def _delayed(facts: JobFacts) -> list[str]:
    job, at = facts.job, facts.job.visible_at or 0
    when = f"until {local(at)} (in {span(at - facts.now)})"
    if at <= facts.now:
        due = f"since {local(at)} ({span(facts.now - at)} ago)"
        out = [f"waiting: due {due}; it becomes pending with the next claim or tick{_no_worker_text(facts)}"]
    else:
        out = [f"waiting: delayed {when} {_why_delayed(facts)}"]
    out += _paused(facts) + worker_reasons(facts)
    return out if job.attempts == 0 else out + _failures(facts)


def _why_delayed(facts: JobFacts) -> str:
    job, move = facts.job, None if facts.last is None else facts.last.move
    if job.reason == NO_HANDLER and job.unhandled_since is not None:
        since = f"since {local(job.unhandled_since)} ({span(facts.now - job.unhandled_since)})"
        return f"because no worker that claimed it {since} knew its task {job.task!r}: start one that does"
    if move is Move.SNOOZE or (move is None and job.delivery and not job.attempts):
        return "because its handler snoozed it"
    if move is Move.EXPIRE or (move is None and job.reason == LEASE_EXPIRED):
        return "because its lease expired and it is retried"
    if move is Move.RETRY or (move is None and job.attempts):
        return "because it is retried after an error"
    return "because it was scheduled for then"


def _active(facts: JobFacts) -> list[str]:
    job = facts.job
    claimed = facts.last if facts.last is not None and facts.last.move is Move.CLAIM else None
    # The fence is the store's time in µs at the claim, unless two claims fell into one microsecond.
    since = claimed.at if claimed is not None else job.fence // 1000
    deadline = job.deadline or 0
    if has_ended(job.deadline, job.lease_ms, facts.now):
        ago = span(facts.now - deadline)
        what = "the next claim or tick in this queue gives the job another attempt or buries it"
        out = [f"waiting for recovery: worker {job.worker} let its lease run out {ago} ago; {what}"]
    else:
        lease = f"its lease ends in {span(deadline - facts.now)} unless renewed"
        held = f"{local(since)} ({span(facts.now - since)})"
        out = [f"running: worker {job.worker} has had it since {held}; {lease}"]
    if job.cancel_requested:
        out.append("a cancel was requested: it ends as cancelled unless the handler finishes first")
    return out + _failures(facts)


def _ended(facts: JobFacts) -> list[str]:
    job = facts.job
    at = f"{local(job.ended_at)} ({span(facts.now - (job.ended_at or facts.now))} ago)"
    tries = f"{job.attempts} of {job.options.max_attempts} attempts"
    match job.state:
        case State.COMPLETED:
            return [f"ended: completed at {at}, on delivery {job.delivery}; it never runs again"]
        case State.FAILED:
            why = (
                "a job it waited for ended without success, and it did not run"
                if job.reason == CHILD_FAILED
                else "its handler said not to try again"
            )
            out = [f"ended: failed at {at} ({job.reason}): {why}"]
        case State.DEAD:
            out = [f"ended: dead since {at} ({job.reason}) after {tries}"]
        case _:
            out = [f"ended: cancelled at {at}"]
    if job.error:
        out.append(f"the last error was: {job.error.partition(chr(10))[0]}")
    out.append(f"to run it again: penstock jobs retry {job.queue}/{job.id}")
    return out


def _schedule(facts: JobFacts) -> list[str]:
    job = facts.job
    if job.schedule is None:
        return []
    at = "" if job.instant is None else f" for {local(job.instant)}"
    return [f"schedule {job.schedule!r} enqueued it{at}"]


def _failures(facts: JobFacts) -> list[str]:
    job = facts.job
    if not job.attempts:
        return []
    error = f"{job.reason}: {job.error.partition(chr(10))[0]}" if job.error else (job.reason or "an error")
    return [f"{job.attempts} of {job.options.max_attempts} attempts are used; the last ended with {error}"]


def _paused(facts: JobFacts) -> list[str]:
    pause = facts.pause
    if pause is None or (pause.until is not None and pause.until <= facts.now):
        return []
    by = f" by {pause.by}" if pause.by else ""
    reason = f' ("{pause.reason}")' if pause.reason else ""
    until = ""
    if pause.until is not None:
        until = f" until {local(pause.until)} (for another {span(pause.until - facts.now)})"
    return [f"queue {facts.job.queue!r} is paused since {local(pause.at)}{by}{until}{reason}"]


def _no_worker_text(facts: JobFacts) -> str:
    late = facts.now - (facts.job.visible_at or facts.now)
    return "" if facts.leases or late < IDLE_MS else "; no worker seems to be running"
