"""Flows in the service's store."""

from penstock.core.flows import Child
from penstock.core.job import QueueRef
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.remote.backend import Backend
from penstock.stores.values import Relay
from penstock.stores.wire import ANSWER_BYTES, MOST_ASKED


class RemoteFlows:
    """Each call is one message for each part of its answer: a service bounds answers by their bytes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        found: list[Child] = []
        left = limit
        while True:
            part, size = await self._backend.call_sized(
                "children",
                queue,
                job=job,
                after=after + len(found),
                limit=None if left is None else min(left, MOST_ASKED),
                results=results,
            )
            found += part
            left = None if limit is None else limit - len(found)
            # Without results a part is bounded by its number alone.
            if not part or (size < ANSWER_BYTES and results) or (left is not None and left < 1):
                return found

    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        found: list[Relay] = []
        while True:
            part, size = await self._backend.call_sized(
                "list_relay_entries", queue, limit=min(limit - len(found), MOST_ASKED), after=after
            )
            found += part
            if not part or size < ANSWER_BYTES or len(found) >= limit:
                return found
            after = found[-1].number
