"""What a store can do, in small parts by who needs them. Calls carry lists, answered item by item."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol, runtime_checkable

from penstock.core.events import Event
from penstock.core.flows import Child, ChildEnding
from penstock.core.job import ExpiredLease, Job, NewJob, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.moves import Beat, Expire, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refused
from penstock.core.rollups import Deltas
from penstock.core.states import State
from penstock.stores.bounds import (
    DAMAGED_EVENT_LIMIT,
    DUE_LIMIT,
    ENTRY_LIMIT,
    PROMOTE_LIMIT,
    PRUNE_LIMIT,
    QUARANTINE_LIMIT,
    RECOVER_LIMIT,
    RELAY_LIMIT,
    SCHEDULE_LIMIT,
)
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.values import (
    Adoption,
    ClaimablePage,
    DamagedEvent,
    DuePage,
    EventColumns,
    Finding,
    Firing,
    HeldLease,
    Holdup,
    KeyHolder,
    KeyInfo,
    KeyValueEntry,
    NotifiedQueues,
    OrderKind,
    Page,
    Pause,
    QuarantinedEntry,
    Query,
    QueueContents,
    QueueInfo,
    Reader,
    Relay,
    RollupPage,
    RollupPosition,
    SeenVersion,
    Spawn,
    StoredSchedule,
    StoreInfo,
    Topic,
    WorkerEntry,
    WorkerOrder,
)


class Subscription(Protocol):
    """Notified when something may have happened. A notification during no wait is kept for the next one."""

    async def wait(self, timeout: float) -> bool:
        """True as soon as there is a notification; False after `timeout` seconds."""
        ...


class TenantSubscription(Protocol):
    """A subscription to all queues of a tenant. A notification during no wait is kept for the next one."""

    async def wait(self, timeout: float) -> NotifiedQueues:
        """The queues that it rang for since the last wait, as soon as there are any.

        Neither a queue nor `for_all` after `timeout` seconds.
        """
        ...


class Moves(Protocol):
    """The moves of jobs. Each is one atomic guarded operation per job, with its event."""

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in; the queue is opened if it is new. Accepted means durable.

        A caller that knows the queue names its `mode`: jobs that are not there yet are refused where the
        queue is in another one.

        `spawns` become relay entries in the same operation, so that a flow over several queues is taken in
        whole; a repeated call writes none again. The queue's length is looked at for the job they come with:
        later, without spawns, jobs with parents or children are taken in also where the queue is full.
        """
        ...

    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        """Make due jobs claimable; how many were."""
        ...

    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        """Promote what is due, lease up to `limit` jobs to the worker, and name leases that ran out.

        No fence is lower than `floor_us`, unless that lies more than an hour above the store's time. A store
        takes the time that it projects itself as floor where that is higher.

        `limits` bound the due jobs that are promoted, the leases that are named, and the entries of jobs that
        are gone which the claim passes over.
        """
        ...

    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        """Renew leases; `cancel_requested` tells of a cancel."""
        ...

    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        """Keep the newest progress of running jobs."""
        ...

    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        """End deliveries. The same token and move again gets the same answer."""
        ...

    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        """Apply what was decided for leases that ran out."""
        ...

    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Take back what waits; ask what runs to stop."""
        ...

    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Give dead, failed and cancelled jobs a new life."""
        ...

    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Remove jobs that are not running; `state` is what they were."""
        ...

    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        """Remove ended jobs and keys whose time is over; how many jobs were."""
        ...


class Flows(Protocol):
    """Jobs that wait for other jobs."""

    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        """Tell parents of their children's endings; a parent that waits for nothing more is unblocked.

        Refused where the parent is gone or does not wait (any longer) for this child: nothing was changed.
        """
        ...

    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        """Give blocked parents more children."""
        ...

    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        """Let a running job add children under its lease: its parents will wait for them too."""
        ...

    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        """The children of a job, in the order it named them.

        With `after`, without the first so many of them; with `limit`, at most so many. Children keep their
        order, and new ones come last: so a page begins where the one before it ended. Results are left out
        unless they are asked for.
        """
        ...

    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        """What waits to be carried over, oldest first: the entries with a higher number than `after`."""
        ...

    async def delete_relay_entries(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        """Forget entries that were carried over."""
        ...


class Schedules(Protocol):
    """Schedules, each with the queue of its jobs."""

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        """Keep a schedule; one of that name is replaced, and keeps what it fired last."""
        ...

    async def remove_schedule(self, queue: QueueRef, name: str) -> bool: ...

    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool: ...

    async def list_schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        """The schedules of a tenant, by queue and name: those of these names, or all.

        What a name costs does not grow with the number of schedules.
        """
        ...

    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        """Schedules whose next instant has come, oldest first; not the paused ones."""
        ...

    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        """Take in the jobs of an instant and move the schedule on; False when someone else did.

        Also False where the queue cannot take them all in: the schedule then stays due.
        """
        ...


class Reads(Protocol):
    """Looking without touching."""

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]: ...

    async def find(self, queue: QueueRef, query: Query) -> Page: ...

    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        """Which job holds each idempotency key now; None where an enqueue would create one."""
        ...

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state, zeros included."""
        ...

    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs, of its key where keys take turns, will be claimed before this one."""
        ...

    async def oldest(self, queue: QueueRef) -> int | None:
        """When the oldest pending job was enqueued, of the first ones to be claimed; None without any."""
        ...

    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        """Leases that ran out, oldest first."""
        ...

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        """Leases of the queue, or those of one worker."""
        ...


class UpkeepReads(Protocol):
    """Which of many queues need upkeep, and which have something to claim."""

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        """In which of these queues a claim may find a job now or in the next `within_ms` milliseconds.

        Paused queues have nothing to claim until their pause ends. Queues that are not there are passed over.
        The answer is a hint: limits may hold back what waits, and nothing may rest on it being complete.
        """
        ...

    async def due_queues(
        self,
        tenant: str,
        names: Sequence[str] | None = None,
        *,
        within_ms: int = 0,
        events_kept: int | None = None,
        after: str = "",
        limit: int = DUE_LIMIT,
    ) -> DuePage:
        """Which queues of a tenant need upkeep now or in the next `within_ms` milliseconds.

        Looks at the queues with these names, or at the next `limit` or so of all that the tenant has: `after`
        is the `next` of the page before. Queues that are not there are passed over. With `events_kept`,
        queues that keep more events than that are due for trimming. The answer is a hint: nothing may rest on
        it being complete, and a store may know of some of the work only when it is attempted.
        """
        ...


class Queues(Protocol):
    """The queues themselves.

    Calls that can only find nothing where there is no queue do not make one: see `stores.absent`.
    """

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        ...

    async def find_queue(self, queue: QueueRef) -> QueueInfo | None: ...

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""
        ...

    async def list_tenants(self) -> list[str]:
        """The tenants that have queues, by name."""
        ...

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        """Delete a queue that has no job, no schedule and no relay entry for another queue, in one operation.

        The answer is empty when the queue was deleted; otherwise it says what is still there, and nothing was
        changed. None when there is no such queue. Its declaration, pause, key rules, idempotency keys,
        registered readers and events go with it. What opens a queue of this name later makes another one: its
        number and its `made` are new, and cursors of the old events are lost there.
        """
        ...

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        """Compare with what is stored, and write what was agreed; DeclarationError on a mismatch."""
        ...

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        """Change a key's own limit or weight in one operation; what the rule does not name stays.

        None takes both back.
        """
        ...

    async def list_keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""
        ...

    async def pause_queue(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        """Stop claims, for so long if given; None resumes. The store's clock sets `at` and `until`."""
        ...


class KeyValue(Protocol):
    """Small entries of a tenant that are no jobs, by name, in a namespace for each kind.

    A namespace is there as soon as it has an entry. With `expected`, a call changes something only where
    that is the version of the entry now; 0 says that there is none.
    """

    async def put_entry(
        self, tenant: str, namespace: str, name: str, body: bytes, *, expected: int | None = None
    ) -> KeyValueEntry | None:
        """Put an entry in the place of the one of that name; None when that was not as expected."""
        ...

    async def get_entry(self, tenant: str, namespace: str, name: str) -> KeyValueEntry | None: ...

    async def list_entries(
        self, tenant: str, namespace: str, *, after: str = "", limit: int = ENTRY_LIMIT
    ) -> list[KeyValueEntry]:
        """Entries by name: the first ones, or those that follow a name."""
        ...

    async def delete_entry(
        self, tenant: str, namespace: str, name: str, *, expected: int | None = None
    ) -> bool:
        """Delete an entry; False when there was none, or it was not as expected."""
        ...


class Workers(Protocol):
    """The worker processes of a tenant, each registered under a lease of its own."""

    async def register_worker(self, tenant: str, worker: WorkerEntry, lease_ms: int) -> None:
        """Register a worker, or renew its lease; an entry of the same name is replaced."""
        ...

    async def unregister_worker(self, tenant: str, worker: str) -> bool:
        """Remove a worker that ends; False when it was not registered."""
        ...

    async def list_workers(self, tenant: str) -> list[WorkerEntry]:
        """The workers whose lease holds, by name."""
        ...

    async def order_worker(
        self, tenant: str, worker: str, order: OrderKind, *, by: str | None = None
    ) -> bool:
        """Leave an order for a registered worker and notify it; the order is gone with the worker.

        It is for the process that is registered now, not for one of its name that starts later. False when
        no such worker is registered, or it is of a version that takes no orders.
        """
        ...

    async def worker_order(self, tenant: str, worker: str, instance: str) -> WorkerOrder | None:
        """The order for this worker process, if there is one."""
        ...

    async def list_versions(self, tenant: str) -> list[SeenVersion]:
        """The versions of code that workers ran in the last 30 days, the one seen first last."""
        ...


class Rollups(Protocol):
    """What happened in a queue by the minute and by the hour, folded from its events."""

    async def rollup_position(self, queue: QueueRef) -> RollupPosition | None:
        """Up to where the events of a queue were folded; None where there is no queue."""
        ...

    async def fold(self, queue: QueueRef, from_cursor: str, to_cursor: str, deltas: Deltas) -> bool:
        """Add what the events between two cursors add, and move the position on, in one step.

        False, and nothing was changed, where the position is not `from_cursor` (any longer).
        """
        ...

    async def list_rollups(
        self, queue: QueueRef, span_ms: int, since: int, limit: int = ENTRY_LIMIT
    ) -> RollupPage:
        """The rollups of spans that began at a time or later, oldest first; none of those without events."""
        ...

    async def expire_rollups(self, queue: QueueRef, now: int) -> int:
        """Remove a batch of rollups whose time is over by then; how many were."""
        ...


class EventLog(Protocol):
    """Every transition, in the queue's order."""

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow: those after the cursor of an event, or those with a higher number.

        CursorLostError when some of them were trimmed, or when the cursor's event is not in this log. Events
        that somebody has damaged are passed over with a warning; `damaged_events` names them.
        """
        ...

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read, in the order of their numbers."""
        ...

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to and with the one at the cursor `through`, without a record of each.

        CursorLostError as for `events`. Events that cannot be read, or only in part, are among them.
        """
        ...

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of up to `limit` events that follow, of all if None.

        If none follows, it is that of `after` itself: as it was given, or in full where its event is kept. It
        waits for no writer, and is found in the same time however much stands in the log. CursorLostError as
        for `events`.
        """
        ...

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor after which the first event of this time, or of a later one, comes."""
        ...

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest; (n + 1, n) when none is kept."""
        ...

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to this number, whoever reads them; how many were.

        A store that keeps the events of a call together keeps all of those which go beyond the number.
        """
        ...


class Readers(Protocol):
    """Who reads a queue's events: each reader is registered under a lease, so that trimming waits for it."""

    async def register_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        """Register a reader that has read up to here, or renew it, for READER_LEASE_MS.

        CursorLostError as for `events`: nothing was changed.
        """
        ...

    async def list_readers(self, queue: QueueRef) -> list[Reader]:
        """The registered readers by name; also those whose lease is over and that were not forgotten yet."""
        ...

    async def unregister_reader(self, queue: QueueRef, name: str) -> bool:
        """Forget a reader; False when there was none."""
        ...

    async def remove_expired_readers(self, queue: QueueRef) -> int:
        """Forget the readers whose lease is over; how many were."""
        ...


@runtime_checkable
class HasHoldups(Protocol):
    """A store where something else on the server can hold back the readers of events."""

    async def holdup(self) -> Holdup | None:
        """Who does at this moment; None when nobody does."""
        ...


@runtime_checkable
class ListsStates(Protocol):
    """A store that goes through the live jobs of a queue once to list them, not once for each page."""

    async def live_states(self, queue: QueueRef, after: str, limit: int) -> list[tuple[str, State]]:
        """The next live jobs behind an id, in the store's order of ids, with their states. "" begins."""
        ...


@runtime_checkable
class HasTenantIsolation(Protocol):
    """A store that may restrict a user to some tenants."""

    async def is_shut_out(self, tenant: str) -> bool:
        """True when the user of this store sees nothing of the tenant, whatever is there."""
        ...


class Notifier(Protocol):
    """Hints that spare polling. A notification may come for nothing; a fallback poll always runs."""

    def subscribe(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Subscription]: ...

    def subscribe_tenant(self, tenant: str) -> AbstractAsyncContextManager[TenantSubscription]:
        """Notified where a job of any queue of the tenant became claimable, or will be sooner than before.

        One subscription, however many queues there are.
        """
        ...


class Clock(Protocol):
    """The one place time comes from."""

    async def now(self) -> int:
        """Unix milliseconds by the store's clock, with the test kit's offset."""
        ...

    async def advance_clock(self, by_ms: int) -> None:
        """Turn the clock; for tests. Kept in the store, and reported by `doctor`."""
        ...


class Quarantine(Protocol):
    """What somebody has damaged from outside, and the store has set aside so that work goes on.

    Moves set aside what they come across. It is kept until people delete it, or the queue.
    """

    async def list_quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        """Entries by id: the first ones, or those that follow an id."""
        ...

    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        """Forget what was set aside, by id; how many entries were. Jobs that the log knows get an event."""
        ...

    async def repair(self, queue: QueueRef) -> int:
        """Look through the whole queue and set aside what is damaged; how many entries were changed."""
        ...


class Health(Protocol):
    """The store's fsck."""

    async def info(self) -> StoreInfo: ...

    async def check(self, queue: QueueRef) -> list[Finding]:
        """Records and indexes agree, no lease without record, counts add up."""
        ...


class HasMoves(Protocol):
    @property
    def moves(self) -> Moves: ...


class HasFlows(Protocol):
    @property
    def flows(self) -> Flows: ...


class HasSchedules(Protocol):
    @property
    def schedules(self) -> Schedules: ...


class HasReads(Protocol):
    @property
    def reads(self) -> Reads: ...


class HasUpkeep(Protocol):
    @property
    def upkeep(self) -> UpkeepReads: ...


class HasQueues(Protocol):
    @property
    def queues(self) -> Queues: ...


class HasKeyValue(Protocol):
    @property
    def key_value(self) -> KeyValue: ...


class HasWorkers(Protocol):
    @property
    def workers(self) -> Workers: ...


class HasRollups(Protocol):
    @property
    def rollups(self) -> Rollups: ...


class HasEvents(Protocol):
    @property
    def events(self) -> EventLog: ...


class HasReaders(Protocol):
    @property
    def readers(self) -> Readers: ...


class HasNotifier(Protocol):
    @property
    def notifier(self) -> Notifier: ...


class HasClock(Protocol):
    @property
    def clock(self) -> Clock: ...


class HasQuarantine(Protocol):
    @property
    def quarantine(self) -> Quarantine: ...


class HasHealth(Protocol):
    @property
    def health(self) -> Health: ...


class Store(
    HasMoves,
    HasFlows,
    HasSchedules,
    HasReads,
    HasUpkeep,
    HasQueues,
    HasKeyValue,
    HasWorkers,
    HasRollups,
    HasEvents,
    HasReaders,
    HasNotifier,
    HasClock,
    HasQuarantine,
    HasHealth,
    Protocol,
):
    """A store as its parts. Opened before use, closed after; safe to use from one event loop.

    `keeps_call_order` says that enqueues made one after the other, without waiting, take effect in their
    order. `numbers_in_order` says that a queue's events are read in the order of their numbers and of time,
    without gaps; otherwise this holds for the events of one job, by their versions. `is_server` says that
    another process does the store's work while this one goes on with its own.
    """

    keeps_call_order: ClassVar[bool]
    numbers_in_order: ClassVar[bool]
    is_server: ClassVar[bool]

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def clone(self) -> "Store":
        """A handle on the same store for an event loop in another thread, opened and closed on its own."""
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store that also takes jobs in within a transaction of the caller's."""

    def is_opened(self, queue: QueueRef) -> bool:
        """False where the queue has to be opened before `enqueue_in`, as after it was deleted elsewhere."""
        ...

    async def enqueue_in(
        self,
        connection: object,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        *,
        blocking: bool,
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in; they are there, and workers are woken, once the caller's transaction commits.

        The queue has to be open already. With `blocking` the connection is one that blocks, and the coroutine
        never waits for anything else; without, it is one that is awaited. TransactionError for any other.
        """
        ...
