"""What the service's store is, and its fsck."""

import msgspec

from penstock.stores.remote.backend import Backend
from penstock.stores.values import StoreInfo


class RemoteHealth:
    """Each call is one message."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def info(self) -> StoreInfo:
        info: StoreInfo = await self._backend.call("info", None)
        # The service says what its store is, and only this process knows the way to the service.
        return msgspec.structs.replace(info, url=self._backend.target.shown)
