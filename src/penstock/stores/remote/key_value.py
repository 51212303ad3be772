"""The key-value entries of the service's store."""

from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.remote.backend import Backend
from penstock.stores.values import KeyValueEntry
from penstock.stores.wire import ANSWER_BYTES, MOST_ASKED


class RemoteKeyValue:
    """Each call is one message; a list is one for each part of its answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def list_entries(
        self, tenant: str, namespace: str, *, after: str = "", limit: int = ENTRY_LIMIT
    ) -> list[KeyValueEntry]:
        found: list[KeyValueEntry] = []
        while True:
            part, size = await self._backend.call_sized(
                "list_entries",
                tenant,
                namespace=namespace,
                after=after,
                limit=min(limit - len(found), MOST_ASKED),
            )
            found += part
            if not part or size < ANSWER_BYTES or len(found) >= limit:
                return found
            after = found[-1].name
