"""The SQLite store: its parts, over one backend."""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table
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
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.clock import SqliteClock
from penstock.stores.sqlite.events import SqliteEvents
from penstock.stores.sqlite.flows import SqliteFlows
from penstock.stores.sqlite.health import SqliteHealth
from penstock.stores.sqlite.key_value import SqliteKeyValue
from penstock.stores.sqlite.moves import SqliteMoves
from penstock.stores.sqlite.notifier import SqliteNotifier
from penstock.stores.sqlite.quarantine import SqliteQuarantine
from penstock.stores.sqlite.queues import SqliteQueues
from penstock.stores.sqlite.readers import SqliteReaders
from penstock.stores.sqlite.reads import SqliteReads
from penstock.stores.sqlite.schedules import SqliteSchedules
from penstock.stores.sqlite.upkeep import SqliteUpkeep
from penstock.stores.values import Durability
from penstock.stores.worker_entries import WorkerEntries


class SqliteStore:
    """A store in one file. `sources` and `table` replace the SQL files and the table of moves; for tests."""

    keeps_call_order: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = False

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = Durability.POWER,
        busy_timeout: float = 60.0,
        sources: dict[str, str] | None = None,
        table: Table = TABLE,
    ) -> None:
        if durability not in {Durability.POWER, Durability.SERVER}:
            raise OptionError("durability", str(durability), "power or server")
        self._backend = Backend(
            Path(path), Durability(durability), busy_timeout, sources=sources, table=table
        )
        self._users = 0
        self._opening = threading.Lock()
        self.moves: Moves = SqliteMoves(self._backend)
        self.flows: Flows = SqliteFlows(self._backend)
        self.schedules: Schedules = SqliteSchedules(self._backend)
        self._reads = SqliteReads(self._backend)
        self.reads: Reads = self._reads
        self.upkeep: UpkeepReads = SqliteUpkeep(self._backend)
        self.queues: Queues = SqliteQueues(self._backend)
        self.key_value: KeyValue = SqliteKeyValue(self._backend)
        self.clock: Clock = SqliteClock(self._backend)
        self.workers: Workers = WorkerEntries(self.key_value, self.clock, self._backend.notify_soon)
        self.rollups: Rollups = RollupEntries(self.key_value, self.queues)
        self.events: EventLog = SqliteEvents(self._backend)
        self.readers: Readers = SqliteReaders(self._backend)
        self.notifier: Notifier = SqliteNotifier(self._backend)
        self.quarantine: Quarantine = SqliteQuarantine(self._backend)
        self.health: Health = SqliteHealth(self._backend)

    def files(self) -> list[Path]:
        """The database and what SQLite keeps beside it."""
        path = self._backend.engine.path
        return [each for end in ("", "-wal", "-shm") if (each := path.with_name(path.name + end)).exists()]

    async def live_states(self, queue: QueueRef, after: str, limit: int) -> list[tuple[str, State]]:
        """The next live jobs behind an id, with their states."""
        return await self._reads.live_states(queue, after, limit)

    async def open(self) -> None:
        """Open the file, making or migrating it; a store opened twice is closed by the second close."""
        wanted: Future[None] = Future()
        try:
            await asyncio.to_thread(self._open_if, wanted)
        except asyncio.CancelledError:
            # The thread goes on all the same, and closes again what nobody wants; unless it was through.
            if not wanted.cancel():
                await asyncio.to_thread(self._close)
            raise

    def _open_if(self, wanted: "Future[None]") -> None:
        self._open()
        if not wanted.set_running_or_notify_cancel():
            self._close()

    def _open(self) -> None:
        with self._opening:
            if self._users == 0:
                self._backend.open()
            self._users += 1

    async def close(self) -> None:
        """Finish what was handed in and close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._opening:
            if self._users == 1:
                self._backend.close()
            self._users = max(0, self._users - 1)

    def clone(self) -> "SqliteStore":
        """The store itself: its threads serve every event loop."""
        return self
