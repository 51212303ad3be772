"""The schedules of the service's store."""

from penstock.stores.remote.backend import Backend
from penstock.stores.values import StoredSchedule


class RemoteSchedules:
    """Each call is one message."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        # The schedule itself says whose it is.
        await self._backend.call("put_schedule", schedule.queue.tenant, schedule=schedule)
