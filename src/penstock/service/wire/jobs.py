"""Jobs, as requests create them and responses show them."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.errors import PayloadError
from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.headers import MOST_HEADERS
from penstock.core.job import Job
from penstock.core.payload import PAYLOAD_LIMIT, Description, check_json, decode_json
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.core.unique import UniqueRule
from penstock.service.problems import Problem
from penstock.service.wire.patterns import whole
from penstock.service.wire.times import at, moment
from penstock.tasks.call import Call
from penstock.tasks.options import JobOptions

Seconds = Annotated[float, Meta(ge=0, le=315_619_200, description="Seconds")]
Delays = Annotated[list[Seconds], Meta(max_length=1_000)]
Moment = Annotated[datetime, Meta(tz=True)]
Key = Annotated[str, Meta(min_length=1, max_length=512)]
Name = Annotated[str, whole(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Priority = Annotated[int, Meta(ge=0, le=9)] | Literal["critical", "high", "normal", "low"]


def no_arguments() -> msgspec.Raw:
    """A payload without arguments."""
    return msgspec.Raw(b"{}")


class BackoffOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the delay between attempts grows; times are seconds."""

    shape: Literal["exponential", "linear", "fixed"] = "exponential"
    base: Seconds = 0.5
    cap: Seconds = 30.0
    jitter: Literal["full", "equal", "none", "decorrelated"] = "full"

    @property
    def backoff(self) -> Backoff:
        """As the queue keeps it."""
        if self.shape == "fixed":
            return Backoff.fixed(self.base, self.jitter)
        return getattr(Backoff, self.shape)(self.base, self.cap, self.jitter)  # type: ignore[no-any-return]


class JobFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of a job to create: task, arguments by name, and options."""

    task: Name
    payload: msgspec.Raw = msgspec.field(default_factory=no_arguments)
    """The arguments by name: a JSON object."""
    priority: Annotated[int, Meta(ge=0, le=9)] | Literal["critical", "high", "normal", "low"] | UnsetType = (
        UNSET
    )
    delay: Seconds | UnsetType = UNSET
    run_at: Moment | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    backoff: BackoffOptions | Delays | str | UnsetType = UNSET
    """A shape, the name of a preset, or a list of delays in seconds."""
    timeout: Seconds | UnsetType = UNSET
    retention: Seconds | UnsetType = UNSET
    key_retention: Seconds | UnsetType = UNSET
    result_retention: Seconds | UnsetType = UNSET
    key: Key | UnsetType = UNSET
    """The concurrency key."""
    headers: Annotated[dict[str, str], Meta(max_length=MOST_HEADERS)] | UnsetType = UNSET
    """Small texts by name that no rule reads. The header traceparent of the request is one of them."""

    def call(self, queue: str, **more: Any) -> Call[Any]:
        """The call that creates this job."""
        given = {
            name: value
            for name in self.__struct_fields__
            if name not in _NO_OPTIONS and (value := getattr(self, name)) is not UNSET
        }
        if isinstance(self.backoff, BackoffOptions):
            given["backoff"] = self.backoff.backoff
        options = JobOptions.of(given | more).checked()  # type: ignore[arg-type]
        return Call(
            task=self.task, queue=queue, payload=arguments(self.payload), options=options, decode=_as_it_is
        )


class JobCreate(JobFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job to create. An idempotency key or `unique` keeps it from being created twice."""

    id: Name | UnsetType = UNSET
    idempotency_key: Key | UnsetType = UNSET
    """A second request with the same key returns the same job. The header Idempotency-Key can set it too."""
    strict: bool | UnsetType = UNSET
    """Refuse a known idempotency key that comes with another payload."""
    unique: Literal["waiting", "live"] | UnsetType = UNSET
    throttle: Seconds | UnsetType = UNSET
    debounce: Seconds | UnsetType = UNSET
    unique_key: Key | UnsetType = UNSET


class JobCreateInQueue(JobCreate, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job to create in the queue that it names."""

    queue: Name


class JobBatchCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to create, in any queues of the tenant."""

    jobs: Annotated[list[JobCreateInQueue], Meta(min_length=1, max_length=1_000)]


class JobCreated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that a request created; `created` is false where an earlier job stands for it."""

    id: str
    queue: str
    created: bool
    same_payload: bool = True
    replaced: bool = False


class JobCreateResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The created job, or the problem that prevented it."""

    job: JobCreated | None = None
    problem: Problem | None = None


class JobBatchResult(msgspec.Struct, frozen=True):
    """One result per job, in the order of the request."""

    outcomes: list[JobCreateResult]


class UniqueRuleView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rule that keeps other jobs of the same kind out."""

    key: str
    rule: UniqueRule
    window: float | None = None


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job. Empty fields are left out; payload and result are included only on request."""

    id: str
    queue: str
    task: str
    state: State
    priority: int
    attempts: int
    max_attempts: int
    delivery: int
    drive: int
    version: int
    enqueued_at: datetime
    visible_at: datetime | None = None
    ended_at: datetime | None = None
    lease_until: datetime | None = None
    worker: str | None = None
    cancel_requested: bool = False
    key: str | None = None
    idempotency_key: str | None = None
    reason: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    unique: UniqueRuleView | None = None
    parents: list[JobRef] = []
    child_policy: ChildPolicy | None = None
    schedule: str | None = None
    instant: datetime | None = None
    headers: dict[str, str] = {}
    progress: msgspec.Raw | UnsetType = UNSET
    result: msgspec.Raw | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET


class JobPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of jobs, the newest first.

    `next` is the `after` of the next page, and missing on the last page.
    """

    jobs: list[JobView]
    next: str | None = None


class JobOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one job. Where it was not `applied`, `why` is lost, missing or state."""

    id: str
    applied: bool
    state: State | None = None
    cancel_requested: bool = False
    why: str | None = None


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job is where it is, in sentences."""

    id: str
    queue: str
    state: State
    because: list[str]


class JobResultView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended, and its result; `is_ended` is false where the wait ended first."""

    id: str
    queue: str
    state: State
    is_ended: bool
    result: msgspec.Raw | UnsetType = UNSET
    reason: str | None = None
    error: str | None = None


def job_view(job: Job, *, payload: bool = False, result: bool = False) -> JobView:
    """The view of a job, without its token and nonce."""
    unique = job.unique
    return JobView(
        id=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.options.max_attempts,
        delivery=job.delivery,
        drive=job.drive,
        version=job.version,
        enqueued_at=moment(job.enqueued_at),
        visible_at=at(job.visible_at),
        ended_at=at(job.ended_at),
        lease_until=at(job.deadline),
        worker=job.worker,
        cancel_requested=job.cancel_requested,
        key=job.key,
        idempotency_key=job.idempotency_key,
        reason=job.reason,
        error=job.error,
        fingerprint=job.fingerprint,
        unique=None
        if unique is None
        else UniqueRuleView(unique.key, unique.rule, unique.window_ms / 1000 or None),
        parents=list(job.parents),
        child_policy=job.child_policy if job.state is State.BLOCKED else None,
        schedule=job.schedule,
        instant=at(job.instant),
        headers=job.headers or {},
        progress=raw(job.progress),
        result=raw(job.result) if result else UNSET,
        payload=raw(job.payload) if payload else UNSET,
    )


def raw(value: bytes | None) -> msgspec.Raw | UnsetType:
    """The stored JSON unchanged.

    Bytes that are no JSON become a JSON string, since a store takes any bytes.
    """
    if value is None:
        return UNSET
    try:
        value.decode()
        return msgspec.json.decode(value, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(value.decode("utf-8", "replace")))


def arguments(payload: msgspec.Raw) -> bytes:
    """The bytes of a payload; PayloadError unless they are strict JSON with arguments by name."""
    encoded = bytes(payload)
    value = checked_json("payload", encoded)
    if type(value) is not dict:
        raise PayloadError(
            "payload", Description(type(value).__name__), "a JSON object: the arguments by name"
        )
    return encoded


def checked_json(field: str, encoded: bytes, most: int = PAYLOAD_LIMIT) -> Any:
    """The decoded value of JSON that a job carries; PayloadError where it is too large or invalid."""
    if len(encoded) > most:
        raise PayloadError(field, Description(f"{len(encoded)} bytes"), f"at most {most} bytes")
    value = decode_json(field, encoded)
    check_json(field, value)
    return value


def _as_it_is(result: bytes | None) -> bytes | None:
    return result


_NO_OPTIONS: Final = frozenset({"task", "payload", "queue", "name", "after", "child_policy"})
