"""The clock of the memory store: that of this process, or one that a test gives it."""

from penstock.stores.memory.backend import Backend


class MemoryClock:
    """Tells the time with the test kit's offset."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def now(self) -> int:
        with self._backend.lock:
            return self._backend.now()

    async def advance_clock(self, by_ms: int) -> None:
        with self._backend.lock:
            self._backend.offset_ms += by_ms
        self._backend.notifier.notify_all()
