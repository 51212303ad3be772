"""The memory store: its parts, over one backend."""

from collections.abc import Callable
from typing import ClassVar

from penstock.core.transitions import TABLE, Table
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.clock import MemoryClock
from penstock.stores.memory.events import MemoryEvents
from penstock.stores.memory.flows import MemoryFlows
from penstock.stores.memory.health import MemoryHealth
from penstock.stores.memory.key_value import MemoryKeyValue
from penstock.stores.memory.moves import MemoryMoves
from penstock.stores.memory.notifier import MemoryNotifier
from penstock.stores.memory.quarantine import MemoryQuarantine
from penstock.stores.memory.queues import MemoryQueues
from penstock.stores.memory.readers import MemoryReaders
from penstock.stores.memory.reads import MemoryReads
from penstock.stores.memory.schedules import MemorySchedules
from penstock.stores.memory.upkeep import MemoryUpkeep
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
from penstock.stores.worker_entries import WorkerEntries


class MemoryStore:
    """A store for tests. `table` is the table of moves; only tests of the tests pass another."""

    keeps_call_order: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = False

    def __init__(self, *, table: Table = TABLE, clock_us: Callable[[], int] | None = None) -> None:
        backend = Backend(table=table, clock_us=clock_us)
        self.moves: Moves = MemoryMoves(backend)
        self.flows: Flows = MemoryFlows(backend)
        self.schedules: Schedules = MemorySchedules(backend)
        self.reads: Reads = MemoryReads(backend)
        self.upkeep: UpkeepReads = MemoryUpkeep(backend)
        self.queues: Queues = MemoryQueues(backend)
        self.key_value: KeyValue = MemoryKeyValue(backend)
        self.clock: Clock = MemoryClock(backend)
        self.workers: Workers = WorkerEntries(self.key_value, self.clock, backend.notify_soon)
        self.rollups: Rollups = RollupEntries(self.key_value, self.queues)
        self.events: EventLog = MemoryEvents(backend)
        self.readers: Readers = MemoryReaders(backend)
        self.notifier: Notifier = MemoryNotifier(backend)
        self.quarantine: Quarantine = MemoryQuarantine()
        self.health: Health = MemoryHealth(backend)

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do: another handle may still be in use."""

    def clone(self) -> "MemoryStore":
        """The store itself: it is safe in every thread."""
        return self
