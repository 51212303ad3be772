"""A job as it is handed in, as it is stored, and as a worker gets it."""

import hashlib
from typing import Final

import msgspec

from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.retry import DEFAULT_MAX_ATTEMPTS, Backoff
from penstock.core.states import State
from penstock.core.unique import Unique

DEFAULT_TENANT: Final = "default"
DEFAULT_PRIORITY: Final = 5
DAY_MS: Final = 24 * 3600 * 1000


class QueueRef(msgspec.Struct, frozen=True):
    """One queue of one tenant."""

    tenant: str
    name: str

    def __str__(self) -> str:
        return self.name if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.name}"


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What travels with a job so that any process can decide about it."""

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = Backoff()
    timeout_ms: int = 300_000
    retention_ms: int = DAY_MS
    key_retention_ms: int | None = None
    result_retention_ms: int | None = None

    @property
    def kept_ms(self) -> int:
        """How long an ended job stays: as long as itself or its result is wanted."""
        return max(self.retention_ms, self.result_retention_ms or 0)

    @property
    def key_held_ms(self) -> int:
        """How long the idempotency key outlives the job's record."""
        return self.retention_ms if self.key_retention_ms is None else self.key_retention_ms


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job on its way into the store. The client makes `id` and `nonce`: the same pair is the same job."""

    id: str
    nonce: str
    task: str
    payload: bytes
    priority: int = DEFAULT_PRIORITY
    delay_ms: int = 0
    run_at: int | None = None
    idempotency_key: str | None = None
    key: str | None = None
    options: Options = Options()
    unique: Unique | None = None
    awaits: tuple[JobRef, ...] = ()
    parents: tuple[JobRef, ...] = ()
    child_policy: ChildPolicy = ChildPolicy.FAIL
    schedule: str | None = None
    instant: int | None = None
    headers: dict[str, str] | None = None

    @property
    def digest(self) -> str:
        """Equal for the same work: task and payload."""
        return hashlib.blake2b(self.task.encode() + b"\0" + self.payload, digest_size=16).hexdigest()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a job. Times are Unix milliseconds of the store's clock; fences count microseconds."""

    tenant: str
    queue: str
    id: str
    nonce: str
    task: str
    state: State
    payload: bytes
    priority: int
    options: Options
    enqueued_at: int
    version: int = 1
    drive: int = 1
    delivery: int = 0
    attempts: int = 0
    visible_at: int | None = None
    idempotency_key: str | None = None
    key: str | None = None
    token: str | None = None
    fence: int = 0
    deadline: int | None = None
    lease_ms: int | None = None
    """How long the lease was claimed or renewed for, the longest of these; None without a lease."""
    worker: str | None = None
    cancel_requested: bool = False
    last_delay_ms: int | None = None
    reason: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    result: bytes | None = None
    progress: bytes | None = None
    progress_at: int | None = None
    ended_at: int | None = None
    settled: str = ""
    delay_ms: int = 0
    run_at: int | None = None
    unique: Unique | None = None
    parents: tuple[JobRef, ...] = ()
    child_policy: ChildPolicy = ChildPolicy.FAIL
    schedule: str | None = None
    instant: int | None = None
    unhandled_since: int | None = None
    """Since when no worker that claimed the job knew its task."""
    headers: dict[str, str] | None = None

    @property
    def ref(self) -> QueueRef:
        """The queue the job is in."""
        return QueueRef(self.tenant, self.queue)


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job with its lease, as a worker gets it from a claim."""

    id: str
    task: str
    payload: bytes
    priority: int
    options: Options
    enqueued_at: int
    drive: int
    delivery: int
    attempts: int
    token: str
    fence: int
    deadline: int
    key: str | None = None
    last_delay_ms: int | None = None
    cancel_requested: bool = False
    parents: tuple[JobRef, ...] = ()
    unhandled_since: int | None = None
    headers: dict[str, str] | None = None

    @property
    def attempt(self) -> int:
        """The number of the execution now running."""
        return self.attempts + 1


class ExpiredLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that ran out, with what the core needs to decide what follows."""

    id: str
    token: str
    fence: int
    attempts: int
    options: Options
    worker: str | None = None
    last_delay_ms: int | None = None
    key: str | None = None
    """Set where keys take turns: the job then goes back to the front of its key, without backoff."""
