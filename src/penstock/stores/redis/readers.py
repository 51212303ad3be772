"""The registered readers of a queue's events: a hash with the lease and the cursor of each."""

from typing import Final

from penstock.core.cursors import read_cursor
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.events import RedisEvents
from penstock.stores.redis.keys import keys_of
from penstock.stores.values import Reader

_SCRIPT: Final = "queues/readers"


class RedisReaders:
    """Registers, renews and forgets readers."""

    def __init__(self, backend: Backend, events: RedisEvents) -> None:
        self._backend = backend
        self._server = backend.server
        self._events = events

    async def register_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        check_name("reader", name)
        place = read_cursor("cursor", cursor)
        place = read_cursor("cursor", await self._events.cursor_after(queue, str(place), 0))
        kept_until = await self._backend.run(queue, _SCRIPT, "keep", name, str(place), READER_LEASE_MS)
        return Reader(name, str(place), place.seq, int(kept_until))

    async def list_readers(self, queue: QueueRef) -> list[Reader]:
        found = await self._server.command("HGETALL", keys_of(queue).readers)
        return [_reader(*each) for each in sorted(found.items())]

    async def unregister_reader(self, queue: QueueRef, name: str) -> bool:
        return bool(await self._server.command("HDEL", keys_of(queue).readers, name))

    @answers_absent
    async def remove_expired_readers(self, queue: QueueRef) -> int:
        return int(await self._backend.run_if_there(queue, _SCRIPT, "forget"))


def _reader(name: bytes, entry: bytes) -> Reader:
    kept_until, _, cursor = entry.decode().partition(" ")
    return Reader(name.decode(), cursor, read_cursor("cursor", cursor).seq, int(kept_until))
