"""The quarantine: rows that cannot be read stay where they are, in a state that no move and no read knows."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import QUARANTINE_LIMIT
from penstock.stores.corruption import CorruptRow, warn_set_aside
from penstock.stores.rows import JOB_COLUMNS, encode
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.check import damaged_rows, recount, wrong_counts
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import QuarantinedEntry

_COLUMNS: Final = JOB_COLUMNS.split(", ")

# When it was set aside, and what was found, take the place of the last progress and of the reason.
_SET_ASIDE: Final = """
UPDATE job SET
    state = 'quarantined', token = NULL, deadline = NULL, visible_at = NULL, reason = ?, progress_at = ?
WHERE queue = ? AND id = ? AND state <> 'quarantined'
"""
_KEY: Final = "SELECT key FROM job WHERE queue = ? AND id = ? AND typeof(key) = 'text'"
_ENTRIES: Final = f"""
SELECT {JOB_COLUMNS} FROM job
WHERE queue = (SELECT n FROM queue WHERE tenant = ? AND name = ?) AND state = 'quarantined' AND id > ?
ORDER BY id LIMIT ?
"""  # noqa: S608 (constants)
_PICK: Final = """
INSERT INTO temp.touched (n, source, item)
SELECT n, state, 0 FROM job
WHERE queue = ? AND state = 'quarantined' AND id IN (SELECT value FROM json_each(?))
ORDER BY id
"""
_GONE: Final = "SELECT job.id FROM temp.touched JOIN job ON job.n = touched.n ORDER BY touched.i"


def set_aside(transaction: QueueTransaction, damages: Sequence[CorruptRow]) -> int:
    """Set jobs aside, and let their keys go on; how many were."""
    changed = 0
    for job, what in damages:
        changed += transaction.connection.execute(
            _SET_ASIDE, (what, transaction.now, transaction.number, job)
        ).rowcount
        if transaction.limits.declared.mode.has_keys:
            transaction.limits.touch(
                key for (key,) in fetch(transaction.connection, _KEY, (transaction.number, job))
            )
        warn_set_aside(transaction.queue, job, what)
    return changed


class SqliteQuarantine:
    """Shows, deletes and makes jobs that are set aside."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def list_quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        """Jobs that were set aside, by id."""
        params = queue.tenant, queue.name, after, max(limit, 0)
        return [
            _entry(row)
            for row in await self._backend.read(lambda connection: fetch(connection, _ENTRIES, params))
        ]

    @answers_absent
    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        """Remove jobs that were set aside, with one event for all of them."""

        def move(transaction: QueueTransaction) -> int:
            transaction.connection.execute("DELETE FROM temp.touched")
            gone = transaction.connection.execute(_PICK, (transaction.number, encode(entries))).rowcount
            if gone:
                if transaction.has_flows:
                    transaction.relay_endings(gone=True)
                transaction.run(Move.DELETE, "keys")
                transaction.run(Move.DELETE, "children")
                transaction.write_shared_event(
                    Move.DELETE, [job for (job,) in transaction.connection.execute(_GONE)]
                )
                transaction.run(Move.DELETE, "change")
            return gone

        return await self._backend.transact(queue, move, creates=False)

    @answers_absent
    async def repair(self, queue: QueueRef) -> int:
        """Read every job and set aside those that cannot be read; mend counts that are wrong."""

        def mend(transaction: QueueTransaction) -> int:
            connection, number = transaction.connection, transaction.number
            changed = set_aside(transaction, damaged_rows(connection, queue, number))
            if wrong_counts(connection, number):
                recount(connection, number)
            return changed

        return await self._backend.transact(queue, mend, creates=False)


def _entry(row: tuple[Any, ...]) -> QuarantinedEntry:
    fields = dict(zip(_COLUMNS, row, strict=True))
    payload, at, what = (fields.pop(name) for name in ("payload", "progress_at", "reason"))
    shown = {name: repr(each) if isinstance(each, bytes) else each for name, each in fields.items()}
    return QuarantinedEntry(
        str(fields["id"]),
        at if isinstance(at, int) else 0,
        str(what),
        msgspec.json.encode(shown),
        payload if isinstance(payload, bytes) else None if payload is None else str(payload).encode(),
    )
