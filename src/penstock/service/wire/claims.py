"""Claims, heartbeats and settlements as a worker in any language says them."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.clocks import FENCE_LIMIT
from penstock.core.flows import JobRef
from penstock.core.job import Claimed
from penstock.core.names import WORKER_FORM
from penstock.core.outcomes import Applied, Refused
from penstock.core.retry import MAX_DELAY_MS
from penstock.service.limits import LONGEST_WAIT
from penstock.service.wire.jobs import Limit, Outcome, raw
from penstock.service.wire.patterns import whole
from penstock.service.wire.times import moment

Token = Annotated[str, whole(r"[A-Za-z0-9._-]{1,128}")]
Id = Annotated[str, whole(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")]
Reason = Annotated[str, whole(r"[A-Z][A-Z0-9_]{0,63}", "A word in capitals")]
Error = Annotated[str, Meta(max_length=20_000)]
Lease = Annotated[float, Meta(ge=1, le=3_600, description="Seconds")]
Delay = Annotated[float, Meta(ge=0, le=MAX_DELAY_MS // 1000, description="Seconds")]
WorkerName = Annotated[str, whole(WORKER_FORM)]
DEFAULT_LEASE = 30.0


class ClaimWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to `limit` jobs for a worker; with `wait`, not before there is one or that time is over."""

    worker: WorkerName
    limit: Limit = 1
    lease: Lease = DEFAULT_LEASE
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    fence_floor: Annotated[int, Meta(ge=0, lt=FENCE_LIMIT)] = 0
    """The lowest fence: `now_us` of the newest claim, and what a boot clock counted since."""


class ClaimedView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job with its lease: `token` is shown with every heartbeat and settlement of it."""

    id: str
    task: str
    payload: msgspec.Raw | msgspec.UnsetType
    token: str
    attempt: int
    max_attempts: int
    delivery: int
    drive: int
    priority: int
    fence: int
    timeout: float
    enqueued_at: datetime
    lease_until: datetime
    key: str | None = None
    cancel_requested: bool = False
    parents: list[JobRef] = []
    tenant: str | None = None
    """Whose it is, where an operator claims for many."""


class ClaimsView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a claim brought. `due_in` is when something more becomes claimable, as far as is known."""

    jobs: list[ClaimedView]
    due_in: float | None = None
    now_us: int = 0
    """The store's time in microseconds, from which the floor of the next claim's fences is counted."""


class LeaseBeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lease to renew."""

    id: Id
    token: Token


class Heartbeats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases that go on from now for so long."""

    beats: Annotated[list[LeaseBeat], Meta(min_length=1, max_length=1_000)]
    lease: Lease = DEFAULT_LEASE


class ProgressReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a job is: any JSON."""

    id: Id
    token: Token
    value: msgspec.Raw


class ProgressReports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Progress of some jobs."""

    reports: Annotated[list[ProgressReport], Meta(min_length=1, max_length=1_000)]


def _nothing() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class CompleteWish(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="complete", tag_field="how"
):
    """The work is done; `result` is any JSON."""

    id: Id
    token: Token
    result: msgspec.Raw = msgspec.field(default_factory=_nothing)


class FailWish(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fail", tag_field="how"
):
    """It went wrong, and will not go right: no attempt more."""

    id: Id
    token: Token
    error: Error | None = None
    reason: Reason = "FAILED"


class RetryWish(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="retry", tag_field="how"
):
    """It went wrong: once more after `delay` seconds, by the job's own backoff if that is not said.

    The last attempt makes it a dead letter.
    """

    id: Id
    token: Token
    error: Error = ""
    reason: Reason = "ERROR"
    delay: Delay | None = None


class SnoozeWish(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="snooze", tag_field="how"
):
    """Not now: again after `delay` seconds. No attempt is used."""

    id: Id
    token: Token
    delay: Delay


class ReleaseWish(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="release", tag_field="how"
):
    """Given back unfinished, as when a worker stops. No attempt is used."""

    id: Id
    token: Token
    error: Error | None = None


SettleWish = CompleteWish | FailWish | RetryWish | SnoozeWish | ReleaseWish


class Settlements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How some deliveries ended."""

    settlements: Annotated[list[SettleWish], Meta(min_length=1, max_length=1_000)]


class Outcomes(msgspec.Struct, frozen=True):
    """What became of each, in their order."""

    outcomes: list[Outcome]


def claimed_view(job: Claimed, tenant: str | None = None) -> ClaimedView:
    """The job as its worker gets it."""
    return ClaimedView(
        id=job.id,
        task=job.task,
        payload=raw(job.payload),
        token=job.token,
        attempt=job.attempt,
        max_attempts=job.options.max_attempts,
        delivery=job.delivery,
        drive=job.drive,
        priority=job.priority,
        fence=job.fence,
        timeout=job.options.timeout_ms / 1000,
        enqueued_at=moment(job.enqueued_at),
        lease_until=moment(job.deadline),
        key=job.key,
        cancel_requested=job.cancel_requested,
        parents=list(job.parents),
        tenant=tenant,
    )


def outcome(job: str, answer: Applied | Refused) -> Outcome:
    """One answer of the store."""
    if isinstance(answer, Applied):
        return Outcome(job, True, answer.state, answer.cancel_requested)
    return Outcome(job, False, answer.state, why=answer.why)
