"""The event log of the service's store."""

from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.remote.backend import Backend
from penstock.stores.wire import MOST_ASKED


class RemoteEvents:
    """Each call is one message; very many events are read by several."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        found: list[Event] = await self._read(queue, after, limit)
        while (left := limit - len(found)) > 0 and found and len(found) % MOST_ASKED == 0:
            part = await self._read(queue, found[-1].cursor or found[-1].seq, left)
            if not part:
                break
            found = [*found, *part]
        return found

    async def _read(self, queue: QueueRef, after: str | int, limit: int) -> list[Event]:
        events: list[Event] = await self._backend.call(
            "read_events", queue, after=after, limit=min(limit, MOST_ASKED)
        )
        return events
