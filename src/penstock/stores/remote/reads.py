"""Looking at the jobs of the service's store: answers that come in pages are followed to their end."""

from collections.abc import Sequence

import msgspec

from penstock.core.job import Job, QueueRef
from penstock.stores.remote.backend import Backend
from penstock.stores.values import Page, Query
from penstock.stores.wire import MOST_ASKED


class RemoteReads:
    """Each call is one message for each page of its answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        found: list[Job | None] = await self._backend.call("get", queue, ids=ids)
        while found and len(found) < len(ids):
            part = await self._backend.call("get", queue, ids=ids[len(found) :])
            if not part:
                break
            found = [*found, *part]
        return found

    async def find(self, queue: QueueRef, query: Query) -> Page:
        found = await self._page(queue, query)
        while (left := query.limit - len(found.jobs)) > 0 and found.next is not None:
            following = msgspec.structs.replace(query, limit=left, after=found.next)
            part = await self._page(queue, following)
            found = Page([*found.jobs, *part.jobs], part.next)
        return found

    async def _page(self, queue: QueueRef, query: Query) -> Page:
        if query.limit > MOST_ASKED:
            query = msgspec.structs.replace(query, limit=MOST_ASKED)
        page: Page = await self._backend.call("find", queue, query=query)
        return page
