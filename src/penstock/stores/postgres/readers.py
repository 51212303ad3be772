"""Readers of the event logs, and the transaction that holds them back."""

from typing import Final

from penstock.core.cursors import read_cursor
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.event_pages import EventPages
from penstock.stores.postgres.renumbering import StaleNumberError, renumbers
from penstock.stores.values import Holdup, Reader

_PUT: Final = """
INSERT INTO penstock.reader (queue, name, cursor, seq, kept_until)
SELECT mine.n, $3, $4, $5::bigint, penstock.now_us($2::bigint) / 1000 + $6::bigint
FROM (SELECT queue.n FROM penstock.queue WHERE queue.n = $1 FOR KEY SHARE) AS mine
ON CONFLICT (queue, name) DO UPDATE SET
    cursor = excluded.cursor, seq = excluded.seq, kept_until = excluded.kept_until
RETURNING name, cursor, seq, kept_until
"""
_LIST: Final = "SELECT name, cursor, seq, kept_until FROM penstock.reader WHERE queue = $1"
_DELETE: Final = "DELETE FROM penstock.reader WHERE queue = $1 AND name = $2 RETURNING 1"
_DELETE_EXPIRED: Final = """
DELETE FROM penstock.reader WHERE queue = $1 AND kept_until <= penstock.now_us($2::bigint) / 1000 RETURNING 1
"""

# The oldest transaction that runs. Whether the transaction at the horizon still runs can be read once a later
# number is given out, which this statement makes sure of. A role sees when transactions of other users began
# only if it may read all statistics; a prepared transaction has no process.
_OLDEST: Final = """
WITH mine AS MATERIALIZED (SELECT pg_current_xact_id() AS xid),
oldest AS MATERIALIZED (
    SELECT pg_snapshot_xmin(seen) AS xid
    FROM mine
    CROSS JOIN pg_current_snapshot() AS seen
    WHERE pg_snapshot_xmin(seen) < mine.xid
)
SELECT running.description, (extract(epoch FROM clock_timestamp() - running.since) * 1000)::bigint
FROM oldest
LEFT JOIN LATERAL (
    SELECT
        format('process %s of %s on database %s', pid, usename, datname)
            || coalesce(' (' || nullif(application_name, '') || ')', '') AS description,
        xact_start AS since
    FROM pg_stat_activity
    WHERE backend_xid = oldest.xid::xid
    UNION ALL
    SELECT format('the prepared transaction %s of %s on database %s', gid, owner, database), prepared
    FROM pg_prepared_xacts
    WHERE transaction = oldest.xid::xid
) AS running ON true
WHERE pg_xact_status(oldest.xid) = 'in progress'
LIMIT 1
"""


class PostgresReaders:
    """The part `Readers`, and the transaction that holds all readers back."""

    def __init__(self, backend: Backend, pages: EventPages) -> None:
        self._backend = backend
        self._pages = pages

    @renumbers
    async def register_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        """Register or renew a reader."""
        check_name("reader", name)
        position = read_cursor("cursor", cursor)
        number = await self._backend.open_number(queue)
        await self._pages.read(queue, position, 0)
        if position.stamp is None:
            await self._pages.await_writers()
            position = await self._pages.locate(queue, number, position)
        columns = (name, str(position), position.seq, READER_LEASE_MS)
        rows = await self._backend.query(_PUT, number, self._backend.newest_us, *columns)
        if not rows:
            self._backend.forget_queue(queue)
            raise StaleNumberError
        return Reader(*rows[0])

    @renumbers
    async def list_readers(self, queue: QueueRef) -> list[Reader]:
        """The registered readers by name."""
        rows = await self._backend.read_queue(queue, _LIST)
        # The database may sort by the rules of a language.
        return sorted((Reader(*row) for row in rows), key=lambda reader: reader.name)

    @answers_absent
    @renumbers
    async def unregister_reader(self, queue: QueueRef, name: str) -> bool:
        """Forget a reader; False when there was none."""
        return bool(await self._backend.change_queue(queue, _DELETE, name))

    @answers_absent
    @renumbers
    async def remove_expired_readers(self, queue: QueueRef) -> int:
        """Forget the readers whose lease is over."""
        return len(await self._backend.change_queue(queue, _DELETE_EXPIRED, self._backend.newest_us))

    async def holdup(self) -> Holdup | None:
        """The oldest transaction of the whole server: events are read up to where it began."""
        rows = await self._backend.query(_OLDEST)
        return Holdup(*rows[0]) if rows else None
