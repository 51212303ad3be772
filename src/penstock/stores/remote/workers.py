"""The workers that the service's store has registered."""

from penstock.stores.remote.backend import Backend


class RemoteWorkers:
    """Each call is one message: see `calls`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
