"""What happened in the queues of the service's store, as that store has folded it."""

from penstock.stores.remote.backend import Backend


class RemoteRollups:
    """Each call is one message: see `calls`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
