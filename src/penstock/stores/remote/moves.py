"""The moves of jobs in the service's store."""

from collections.abc import Sequence

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.moves import Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refused
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.remote.backend import Backend
from penstock.stores.remote.claims import claim
from penstock.stores.remote.enqueue import enqueue
from penstock.stores.values import Spawn


class RemoteMoves:
    """Each call is one message; those whose items carry payloads may be several."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        return await enqueue(self._backend, queue, jobs, spawns, mode)

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
        return await claim(
            self._backend,
            queue,
            worker=worker,
            limit=limit,
            lease_ms=lease_ms,
            floor_us=floor_us,
            limits=limits,
        )

    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        return await self._backend.call_in_parts("settle", queue, "settlements", settlements)

    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        return await self._backend.call_in_parts("progress", queue, "reports", reports)
