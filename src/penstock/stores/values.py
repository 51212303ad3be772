"""What goes into a store and comes out of it, beside jobs."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from penstock.core.clocks import ClockStep
from penstock.core.errors import InvalidError
from penstock.core.events import mark_of
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.names import check_name
from penstock.core.rollups import FoldState, Row
from penstock.core.states import State
from penstock.stores.bounds import ENTRY_BYTES

EVERYONE: Final = "*"
"""Stands for a tenant in key-value entries of the service itself. No tenant can be called so."""


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why nothing is claimed from a queue. `until` is None when someone has to resume it."""

    at: int
    reason: str | None = None
    by: str | None = None
    until: int | None = None


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue as the store knows it. `number` stands in the ids of its jobs and is unique per tenant."""

    queue: QueueRef
    number: int
    pause: Pause | None = None
    declaration: Declaration | None = None
    made: str = ""
    """Another one after the queue was deleted, or the store lost it, and it was made anew.

    Empty where that cannot be, and for a queue from before stores kept this."""
    arrival_us: int = 0
    """When the next start would be on time by the queue's rate."""
    clock_step: ClockStep | None = None
    """How the store's clock was last set back, as far as this queue saw it; None when it never was."""
    fault: str | None = None
    """In lists: why the queue's own entry cannot be read. All else but its name is unknown then."""

    def held_until(self, now: int) -> int | None:
        """Until when the queue's rate holds jobs back; None when it does not."""
        rate = None if self.declaration is None else self.declaration.rate
        # What goes within this millisecond is not held back.
        if rate is None or rate.tokens(self.arrival_us, now * 1000 + 999):
            return None
        return -(-rate.opens_us(self.arrival_us) // 1000)

    @property
    def mode(self) -> Mode:
        """How its jobs share its workers; global until declared otherwise."""
        return Mode.GLOBAL if self.declaration is None else self.declaration.mode


class QueueContents(msgspec.Struct, frozen=True):
    """What a queue holds that must be gone before the queue can be deleted.

    `jobs` counts its jobs by state, `relays` what other queues have to take in from it.
    """

    jobs: dict[State, int] = msgspec.field(default_factory=dict)
    schedules: int = 0
    relays: int = 0

    @property
    def found(self) -> dict[str, int]:
        """How many of each kind there are; kinds of which there is none are left out."""
        counts = {**{str(state): self.jobs.get(state, 0) for state in State}}
        counts |= {"schedules": self.schedules, "relays": self.relays}
        return {kind: count for kind, count in counts.items() if count}

    @property
    def is_empty(self) -> bool:
        """True when nothing keeps the queue from being deleted."""
        return not self.found

    def __str__(self) -> str:
        words = {"schedules": ("schedule", "schedules"), "relays": ("relay entry", "relay entries")}
        parts = []
        for kind, count in self.found.items():
            one, many = words.get(kind, (f"{kind} job", f"{kind} jobs"))
            parts.append(f"{count} {one if count == 1 else many}")
        return " and ".join(", ".join(parts).rsplit(", ", 1)) or "nothing"


class KeyInfo(msgspec.Struct, frozen=True):
    """A key that has waiting or running jobs, or a rule of its own."""

    key: str
    waiting: int
    active: int
    limit: int
    weight: int
    held_until: int | None = None


class Spawn(msgspec.Struct, frozen=True):
    """A job for another queue of the same tenant, taken in together with this queue's."""

    queue: str
    job: NewJob


class Adoption(msgspec.Struct, frozen=True):
    """More children for a parent that still waits."""

    parent: str
    children: tuple[JobRef, ...]


class Relay(msgspec.Struct, frozen=True):
    """Something for another queue to take in: a job, more children, or the ending of a child.

    Entries of a queue are carried over in the order of their numbers; once more changes nothing.
    """

    number: int
    queue: str
    what: NewJob | Adoption | ChildEnding


class StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule as its queue keeps it. `body` is the schedule itself, opaque to the store.

    `next_at` is the instant it fires next, None when never again; `last_at` the one it fired last.
    """

    queue: QueueRef
    name: str
    body: bytes
    next_at: int | None
    last_at: int | None = None
    paused: bool = False


class Firing(msgspec.Struct, frozen=True):
    """A schedule's instant has come: its jobs, and its next. Holds while `at` is the next one."""

    name: str
    at: int
    jobs: tuple[NewJob, ...]
    next_at: int | None
    last_at: int | None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list. Newest first: by ending if all states asked for are endings, else by enqueue.

    `since` is the earliest such time, in Unix milliseconds. `after` is the `next` of the page before.
    Payloads and results that are not asked for are left out, empty and None: they may be large.
    """

    states: frozenset[State] = frozenset()
    task: str | None = None
    limit: int = 100
    after: str | None = None
    payloads: bool = True
    results: bool = True
    key: str | None = None
    since: int | None = None
    oldest_first: bool = False

    @property
    def is_by_end(self) -> bool:
        """True when jobs are listed by their endings, because all states asked for are endings."""
        return bool(self.states) and all(state.is_ended for state in self.states)


class Page(msgspec.Struct, frozen=True):
    """Some jobs, and where the next ones begin; None at the end."""

    jobs: list[Job]
    next: str | None = None


class KeyHolder(msgspec.Struct, frozen=True):
    """The job that holds an idempotency key. `state` is None once its record is gone.

    `digest` is the one of the work that it was enqueued for, as `NewJob.digest` makes it.
    """

    id: str
    state: State | None
    digest: str


class HeldLease(msgspec.Struct, frozen=True):
    """A lease as the store has it."""

    id: str
    token: str
    worker: str
    deadline: int


class Reader(msgspec.Struct, frozen=True):
    """A registered reader of a queue's events. It has read up to `seq`, and `cursor` is where it goes on."""

    name: str
    cursor: str
    seq: int
    kept_until: int


class EventColumns(msgspec.Struct, frozen=True):
    """Events as they stand in the store, field by field, in the order of the log.

    `fields` has one value for each of them, None where it says nothing, under the names of `Event`; a field
    that none of them has may be left out. `stamps` are there where the log is ordered by them. What this
    version does not know is in `unknown`, and why an event cannot be read in `broken`, both by index; `ends`
    has the last number of a range of events that cannot be read and is one row.
    """

    count: int
    fields: Mapping[str, Sequence[Any]]
    stamps: Sequence[int] = ()
    unknown: Mapping[int, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    broken: Mapping[int, str] = msgspec.field(default_factory=dict)
    ends: Mapping[int, int] = msgspec.field(default_factory=dict)

    def cursors(self, queue: QueueRef) -> list[str]:
        """The cursor of each; of one that cannot be read its number alone, or the last one of its range."""
        log, nothing = f"{queue.tenant}/{queue.name}", [None] * self.count
        named = ("seq", "at", "move", "job", "version", "jobs")
        rows = zip(*(self.fields.get(name, nothing) for name in named), strict=True)
        found = [f"{row[0]}-{mark_of(log, *row)}" for row in rows]
        if self.stamps:
            return [f"{stamp}-{cursor}" for stamp, cursor in zip(self.stamps, found, strict=True)]
        for index in self.broken:
            found[index] = str(self.ends.get(index, self.fields["seq"][index]))
        return found


class KeyValueEntry(msgspec.Struct, frozen=True):
    """A key-value entry. `body` is opaque to the store.

    `version` is another one after each change, higher than those before, and never used again.
    """

    name: str
    body: bytes
    version: int


def check_entry_name(tenant: str, namespace: str, name: str | None = None) -> None:
    """InvalidNameError where an entry cannot be at such a place."""
    if tenant != EVERYONE:
        check_name("tenant", tenant)
    check_name("namespace", namespace)
    if name is not None:
        check_name("name", name)


def check_body(body: bytes) -> None:
    """InvalidError where a body is too large to be kept."""
    if len(body) > ENTRY_BYTES:
        raise InvalidError("body", f"{len(body)} bytes", f"at most {ENTRY_BYTES} bytes")


class WorkerState(StrEnum):
    """What a worker process is doing."""

    IDLE = "idle"
    """No slot is taken."""
    BUSY = "busy"
    """At least one slot is taken."""
    SHUTTING_DOWN = "shutting_down"
    """The worker claims no more, and ends once its jobs have ended."""


class RunningJob(msgspec.Struct, frozen=True):
    """A job that a worker executes. `since` is when the worker claimed it, by the store's clock."""

    queue: str
    id: str
    task: str
    attempt: int
    since: int


class WorkerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker process as it is registered: where it runs, its queues with their slots, and its tasks.

    Of very many, only the first are named; `more_queues` and `more_tasks` are how many others there are. The
    same holds for `jobs`, oldest first, and for `busy`, the taken slots of the queues that have any: `taken`
    is the number of taken slots of all queues. `version` is Penstock's, `app_version` the app's own.
    `instance` is another one each time a worker starts, also under the same name. Ages are of the moment
    `renewed_at` at which the entry was last renewed, by the store's clock; the store sets it. The entry of a
    worker of another version may lack some of this.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: dict[str, int]
    tasks: tuple[str, ...]
    more_queues: int = 0
    more_tasks: int = 0
    instance: str | None = None
    app_version: str | None = None
    state: WorkerState | None = None
    slots: int = 0
    taken: int = 0
    busy: dict[str, int] = msgspec.field(default_factory=dict)
    done: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Of the queues that did anything: executions that ended, and milliseconds that slots were taken for."""
    jobs: tuple[RunningJob, ...] = ()
    more_jobs: int = 0
    memory: int | None = None
    """Resident memory of the worker process, in bytes; processes of handlers are not counted."""
    uptime_ms: int | None = None
    poll_age_ms: int | None = None
    """Time since the worker last asked the store for jobs."""
    loop_lag_ms: int | None = None
    """The longest time for which the event loop was held up since the last renewal."""
    renewed_at: int = 0

    @property
    def started_at(self) -> int | None:
        """When the worker started, by the store's clock."""
        return None if self.uptime_ms is None else self.renewed_at - self.uptime_ms

    @property
    def polled_at(self) -> int | None:
        """When the worker last asked the store for jobs, by the store's clock."""
        return None if self.poll_age_ms is None else self.renewed_at - self.poll_age_ms

    def serves(self, queue: str) -> bool:
        """True when the worker serves the queue, or may: of very many, not all are named."""
        return queue in self.queues or self.more_queues > 0

    def knows(self, task: str) -> bool:
        """True when the worker knows the task, or may."""
        return task in self.tasks or self.more_tasks > 0


class RollupPosition(msgspec.Struct, frozen=True):
    """Up to where the events of a queue were folded, and what the next step needs to know of those before."""

    cursor: str
    state: FoldState


class SpanRollup(msgspec.Struct, frozen=True):
    """What happened in a queue in a span of time that begins at `at`, by task."""

    at: int
    rows: dict[str, Row]


class RollupPage(msgspec.Struct, frozen=True):
    """Rollups of some spans, oldest first; `next` is the time from which the next page begins."""

    spans: list[SpanRollup]
    next: int | None = None


class OrderKind(StrEnum):
    """What a worker can be ordered to do."""

    DRAIN = "drain"
    """Claim no more, finish the jobs that run, and end."""
    STOP = "stop"
    """End at once: handlers are told to stop, and jobs that do not end are given back."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """An order for one worker process. `kind` is text: a newer version may know other orders."""

    kind: str
    at: int
    by: str | None = None


class SeenVersion(msgspec.Struct, frozen=True):
    """A version of the code that workers ran, and when it was seen. `version` is Penstock's own."""

    app_version: str | None
    version: str
    first_seen: int
    last_seen: int


class Holdup(msgspec.Struct, frozen=True):
    """Why newer events cannot be read yet: who holds them back, and for how long, where that is known."""

    who: str | None
    age_ms: int | None


class Duty(StrEnum):
    """Upkeep of a queue that no worker does for a job of its own."""

    PROMOTE = "promote"
    RECOVER = "recover"
    FIRE = "fire"
    RELAY = "relay"
    PRUNE = "prune"
    FOLD = "fold"
    """Fold new events into the rollups. Due for every queue that is visited, and named by no store."""
    TRIM = "trim"


class DueQueue(msgspec.Struct, frozen=True):
    """A queue that needs upkeep: each duty with the time, in Unix milliseconds, from which it is due."""

    name: str
    due: dict[Duty, int]


class DuePage(msgspec.Struct, frozen=True):
    """Queues of a tenant that need upkeep, by the store's time `now`.

    `next` is where the next page begins, None at the end. `unreachable` are queues on a server that did not
    answer while others did.
    """

    queues: list[DueQueue]
    now: int
    next: str | None = None
    unreachable: list[str] = msgspec.field(default_factory=list)


class ClaimablePage(msgspec.Struct, frozen=True):
    """Queues in which a claim may find something, by the store's time `now`.

    Each with the time, in Unix milliseconds, from which it may. `unreachable` are queues on a server that did
    not answer while others did.
    """

    queues: dict[str, int]
    now: int
    unreachable: list[str] = msgspec.field(default_factory=list)


class NotifiedQueues(msgspec.Struct, frozen=True):
    """The queues that a notification was of; `for_all` says that it may have been any queue."""

    queues: frozenset[str] = frozenset()
    for_all: bool = False


class Durability(StrEnum):
    """What an accepted job survives."""

    MEMORY = "memory"
    PROCESS = "process"
    SERVER = "server"
    POWER = "power"
    REPLICATED = "replicated"


class Replication(msgspec.Struct, frozen=True):
    """How a server shares its writes with its replicas, and how many of them must have them."""

    replicas: int
    """Replicas that are connected now."""
    wait_replicas: int
    """An enqueue is accepted when so many replicas have it."""
    min_replicas_to_write: int
    """The server refuses every write while fewer replicas than this keep up."""


class StoreInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a store says of itself. `url` carries no secrets."""

    kind: str
    url: str
    durability: Durability
    server_version: str
    schema_version: int
    clock_offset_ms: int
    replication: Replication | None = None
    """None where the store has no replicas that Penstock knows of."""


class Finding(msgspec.Struct, frozen=True):
    """Something in the store that should not be."""

    what: str
    job: str | None = None


class QuarantinedEntry(msgspec.Struct, frozen=True):
    """Something damaged that the store has set aside; `what` was found, and when.

    `record` and `payload` are what was left of the job, as its store writes them; None for what was missing.
    """

    id: str
    at: int
    what: str
    record: bytes | None = None
    payload: bytes | None = None


class DamagedEvent(msgspec.Struct, frozen=True):
    """An event of the log that cannot be read, by its number, and why; or all up to the number `last`."""

    seq: int
    why: str
    last: int | None = None


class Topic(StrEnum):
    """What a notification is about."""

    READY = "ready"
    """A job became claimable, or will be sooner than before."""
    ENDED = "ended"
    """A job ended."""
    CONTROL = "control"
    """A worker of the queue is asked for something: to cancel a job that it runs, or to follow an order."""
