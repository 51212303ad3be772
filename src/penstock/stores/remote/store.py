"""The store behind a service: its parts, over one backend."""

from typing import ClassVar

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
from penstock.stores.remote.address import parse
from penstock.stores.remote.backend import Backend
from penstock.stores.remote.calls import completed
from penstock.stores.remote.clock import RemoteClock
from penstock.stores.remote.events import RemoteEvents
from penstock.stores.remote.flows import RemoteFlows
from penstock.stores.remote.health import RemoteHealth
from penstock.stores.remote.key_value import RemoteKeyValue
from penstock.stores.remote.moves import RemoteMoves
from penstock.stores.remote.notifier import RemoteNotifier
from penstock.stores.remote.quarantine import RemoteQuarantine
from penstock.stores.remote.queues import RemoteQueues
from penstock.stores.remote.readers import RemoteReaders
from penstock.stores.remote.reads import RemoteReads
from penstock.stores.remote.rollups import RemoteRollups
from penstock.stores.remote.schedules import RemoteSchedules
from penstock.stores.remote.upkeep import RemoteUpkeep
from penstock.stores.remote.workers import RemoteWorkers
from penstock.stores.values import Holdup


class RemoteStore:
    """A store behind a service. `token` wins over one that the url or the settings have."""

    keeps_call_order: ClassVar[bool] = False
    is_server: ClassVar[bool] = True
    numbers_in_order: bool = False
    """As the service's store says, once this one is open."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self._url = url
        self._token = token
        self._backend = backend = Backend(parse(url, token))
        self.moves: Moves = completed(RemoteMoves(backend), "moves", backend)
        self.flows: Flows = completed(RemoteFlows(backend), "flows", backend)
        self.schedules: Schedules = completed(RemoteSchedules(backend), "schedules", backend)
        self.reads: Reads = completed(RemoteReads(backend), "reads", backend)
        self.upkeep: UpkeepReads = completed(RemoteUpkeep(backend), "upkeep", backend)
        self.queues: Queues = completed(RemoteQueues(backend), "queues", backend)
        self.key_value: KeyValue = completed(RemoteKeyValue(backend), "key_value", backend)
        self.clock: Clock = completed(RemoteClock(backend), "clock", backend)
        self.workers: Workers = completed(RemoteWorkers(backend), "workers", backend)
        self.rollups: Rollups = completed(RemoteRollups(backend), "rollups", backend)
        self.events: EventLog = completed(RemoteEvents(backend), "events", backend)
        self.readers: Readers = completed(RemoteReaders(backend), "readers", backend)
        self._notifier = RemoteNotifier(backend.listen)
        self.notifier: Notifier = self._notifier
        self.quarantine: Quarantine = completed(RemoteQuarantine(backend), "quarantine", backend)
        self.health: Health = completed(RemoteHealth(backend), "health", backend)

    def __repr__(self) -> str:
        return f"RemoteStore({self._backend.target.shown!r})"

    async def open(self) -> None:
        """Connect, and see that there is a service which accepts the token."""
        hello = await self._backend.open()
        self.numbers_in_order = hello.numbers_in_order

    async def close(self) -> None:
        """Close every connection."""
        await self._notifier.close()
        await self._backend.close()

    def clone(self) -> "RemoteStore":
        """Another client of the same service."""
        clone = RemoteStore(self._url, token=self._token)
        # What one of them was told holds for the process.
        clone._backend.projected = self._backend.projected
        return clone

    async def holdup(self) -> Holdup | None:
        """Who holds back the readers of events on the server of the service's store."""
        found: Holdup | None = await self._backend.call("holdup", None)
        return found
