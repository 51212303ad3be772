"""The queues of the service's store."""

from penstock.stores.remote.backend import Backend


class RemoteQueues:
    """Each call is one message: see `calls`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
