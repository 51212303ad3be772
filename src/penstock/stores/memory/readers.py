"""Who reads the events of the memory store, and how far."""

from penstock.core.cursors import Cursor, read_cursor
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.events import find_event
from penstock.stores.values import Reader


class MemoryReaders:
    """Registers readers under a lease."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def register_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        check_name("reader", name)
        position = read_cursor("cursor", cursor)
        with self._backend.lock:
            ledger = self._backend.ledger(queue)
            there = find_event(ledger, position)
            if there is not None:
                position = Cursor(position.seq, there.mark)
            reader = Reader(name, str(position), position.seq, self._backend.now() + READER_LEASE_MS)
            ledger.readers[name] = reader
            return reader

    async def list_readers(self, queue: QueueRef) -> list[Reader]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            readers = {} if ledger is None else ledger.readers
            return [readers[name] for name in sorted(readers)]

    @answers_absent
    async def unregister_reader(self, queue: QueueRef, name: str) -> bool:
        with self._backend.lock:
            return self._backend.existing(queue).readers.pop(name, None) is not None

    @answers_absent
    async def remove_expired_readers(self, queue: QueueRef) -> int:
        with self._backend.lock:
            readers, now = self._backend.existing(queue).readers, self._backend.now()
            over = [name for name, reader in readers.items() if reader.kept_until <= now]
            for name in over:
                del readers[name]
            return len(over)
