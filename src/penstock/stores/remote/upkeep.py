"""Which queues of the service's store need upkeep, and which have something to claim."""

from penstock.stores.remote.backend import Backend


class RemoteUpkeep:
    """Each call is one message: see `calls`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
