"""Claims, heartbeats and settlements, as a worker in any language sends them."""

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
from penstock.service.wire.jobs import JobOutcome, Limit, raw
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


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claim up to `limit` jobs for a worker.

    With `wait`, the response waits so many seconds for the first job.
    """

    worker: WorkerName
    limit: Limit = 1
    lease: Lease = DEFAULT_LEASE
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    fence_floor: Annotated[int, Meta(ge=0, lt=FENCE_LIMIT)] = 0
    """The lowest fence: `now_us` of the worker's newest claim, plus the time its boot clock counted since."""


class ClaimedJobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job with its lease. Every heartbeat and settlement of the job repeats the `token`."""

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
    headers: dict[str, str] = {}
    tenant: str | None = None
    """The tenant of the job, where an operator claims for many tenants."""


class ClaimResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claimed jobs.

    `due_in` says in how many seconds the next job becomes claimable, as far as is known.
    """

    jobs: list[ClaimedJobView]
    due_in: float | None = None
    now_us: int = 0
    """The store's time in microseconds, from which the floor of the next claim's fences is counted."""


class LeaseHeartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lease to renew."""

    id: Id
    token: Token


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases to renew for `lease` seconds from now."""

    beats: Annotated[list[LeaseHeartbeat], Meta(min_length=1, max_length=1_000)]
    lease: Lease = DEFAULT_LEASE


class ProgressReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a running job, as any JSON value."""

    id: Id
    token: Token
    value: msgspec.Raw


class ProgressRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Progress reports of running jobs."""

    reports: Annotated[list[ProgressReport], Meta(min_length=1, max_length=1_000)]


def _nothing() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class CompleteSettlement(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="complete", tag_field="how"
):
    """The job is completed; `result` is any JSON value."""

    id: Id
    token: Token
    result: msgspec.Raw = msgspec.field(default_factory=_nothing)


class FailSettlement(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fail", tag_field="how"
):
    """The job failed for good and gets no further attempt."""

    id: Id
    token: Token
    error: Error | None = None
    reason: Reason = "FAILED"


class RetrySettlement(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="retry", tag_field="how"
):
    """The attempt failed: run the job again after `delay` seconds, or after the delay of its own backoff.

    After its last attempt the job becomes a dead letter.
    """

    id: Id
    token: Token
    error: Error = ""
    reason: Reason = "ERROR"
    delay: Delay | None = None


class SnoozeSettlement(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="snooze", tag_field="how"
):
    """The job runs again after `delay` seconds, and no attempt is used."""

    id: Id
    token: Token
    delay: Delay


class ReleaseSettlement(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="release", tag_field="how"
):
    """The worker gives the job back unfinished, as when it stops. No attempt is used."""

    id: Id
    token: Token
    error: Error | None = None


AnySettlement = CompleteSettlement | FailSettlement | RetrySettlement | SnoozeSettlement | ReleaseSettlement


class SettleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settlements of deliveries."""

    settlements: Annotated[list[AnySettlement], Meta(min_length=1, max_length=1_000)]


class JobOutcomeList(msgspec.Struct, frozen=True):
    """The outcome of each item, in the order of the request."""

    outcomes: list[JobOutcome]


def claimed_view(job: Claimed, tenant: str | None = None) -> ClaimedJobView:
    """The view of a claimed job for its worker."""
    return ClaimedJobView(
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
        headers=job.headers or {},
        tenant=tenant,
    )


def outcome(job: str, answer: Applied | Refused) -> JobOutcome:
    """The outcome that the store reports for one job."""
    if isinstance(answer, Applied):
        return JobOutcome(job, True, answer.state, answer.cancel_requested)
    return JobOutcome(job, False, answer.state, why=answer.why)
