"""The PostgreSQL store, put together from its parts."""

from collections.abc import Sequence
from typing import ClassVar

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Enqueued, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.caller_transaction import CallerTransactions
from penstock.stores.postgres.claims import PostgresClaims
from penstock.stores.postgres.clock import PostgresClock
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.enqueue import PostgresEnqueue
from penstock.stores.postgres.event_pages import EventPages
from penstock.stores.postgres.events import PostgresEvents
from penstock.stores.postgres.flows import PostgresFlows
from penstock.stores.postgres.health import PostgresHealth
from penstock.stores.postgres.key_value import PostgresKeyValue
from penstock.stores.postgres.migrate import migrate
from penstock.stores.postgres.moves import PostgresMoves
from penstock.stores.postgres.privileges import prove
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.queues import PostgresQueues
from penstock.stores.postgres.readers import PostgresReaders
from penstock.stores.postgres.reads import PostgresReads
from penstock.stores.postgres.schedules import PostgresSchedules
from penstock.stores.postgres.upkeep import PostgresUpkeep
from penstock.stores.protocol import (
    Clock,
    EventLog,
    Flows,
    Health,
    KeyValue,
    Moves,
    Notifier,
    Quarantine,
    Queues,
    Readers,
    Reads,
    Rollups,
    Schedules,
    UpkeepReads,
    Workers,
)
from penstock.stores.rollup_entries import RollupEntries
from penstock.stores.values import Holdup
from penstock.stores.worker_entries import WorkerEntries


class PostgresStore:
    """A store in one schema of a database, used from one event loop.

    `sources` and `table` replace the SQL files and the table of transitions; for tests.
    """

    keeps_call_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = False

    def __init__(self, url: str, *, sources: dict[str, str] | None = None, table: Table = TABLE) -> None:
        backend = self.backend = Backend(url, sources=sources, table=table)
        self._users = 0
        pages = EventPages(backend)
        enqueue = PostgresEnqueue(backend)
        counting = Counting(backend)
        quarantine = PostgresQuarantine(backend, counting)
        queues = PostgresQueues(backend)
        reads = PostgresReads(backend, counting, queues, quarantine)
        claims = PostgresClaims(backend, reads, quarantine)
        readers = PostgresReaders(backend, pages)
        self.moves: Moves = PostgresMoves(backend, enqueue, claims, quarantine)
        self.flows: Flows = PostgresFlows(backend, quarantine)
        self.schedules: Schedules = PostgresSchedules(backend, enqueue)
        self.reads: Reads = reads
        self.upkeep: UpkeepReads = PostgresUpkeep(backend, counting)
        self.queues: Queues = queues
        self.key_value: KeyValue = PostgresKeyValue(backend)
        self.clock: Clock = PostgresClock(backend)
        self.workers: Workers = WorkerEntries(self.key_value, self.clock, backend.notify_soon)
        self.rollups: Rollups = RollupEntries(self.key_value, self.queues)
        self.events: EventLog = PostgresEvents(backend, pages, counting)
        self.readers: Readers = readers
        self.notifier: Notifier = backend.notifier
        self.quarantine: Quarantine = quarantine
        self.health: Health = PostgresHealth(backend, counting, quarantine)
        self._reads = reads
        self._readers = readers
        self._caller_transactions = CallerTransactions(backend)

    async def open(self) -> None:
        """Reach the server and make or migrate the schema; opened twice, it is closed by the second close."""
        if self._users == 0:
            backend = self.backend
            # Locks are of one event loop, and this one may be another than the last.
            backend.enqueue_locks = {}
            try:
                await backend.engine.open()
                backend.store_id = (await migrate(backend.engine)).store
                await prove(backend.engine)
            except BaseException:
                await backend.engine.close()
                raise
        self._users += 1

    async def close(self) -> None:
        """Close every connection."""
        if self._users == 1:
            await self.backend.notifier.close()
            await self.backend.engine.close()
        self._users = max(0, self._users - 1)

    def clone(self) -> "PostgresStore":
        """Another handle, with connections of its own."""
        backend = self.backend
        clone = PostgresStore(backend.url, sources=backend.sources, table=backend.table)
        # The projected time of one handle holds for the whole process.
        clone.backend.projected = backend.projected
        return clone

    async def enqueue_in(
        self,
        connection: object,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        *,
        blocking: bool,
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in with the caller's transaction; its commit also notifies the workers."""
        return await self._caller_transactions.enqueue(connection, queue, jobs, blocking=blocking, mode=mode)

    def is_opened(self, queue: QueueRef) -> bool:
        """True while this handle takes the queue for one that is there."""
        return queue in self.backend.numbers

    async def live_states(self, queue: QueueRef, after: str, limit: int) -> list[tuple[str, State]]:
        """The next live jobs behind an id, with their states."""
        return await self._reads.live_states(queue, after, limit)

    async def is_shut_out(self, tenant: str) -> bool:
        """True where there is a wall between tenants, and the user was not admitted to this one."""
        return await self.backend.is_shut_out(tenant)

    async def holdup(self) -> Holdup | None:
        """The oldest transaction of the whole server: events are read up to where it began."""
        return await self._readers.holdup()
