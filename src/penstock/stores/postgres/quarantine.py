"""The quarantine: rows that cannot be read stay where they are, in a state that no move and no read knows."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import psycopg

from penstock.core.errors import StoreError
from penstock.core.events import DELETED
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import QUARANTINE_LIMIT
from penstock.stores.corruption import DECODE_ERRORS, CorruptRow, unreadable_record, warn_set_aside
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.codec import job_of, more_of
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.engine import Row
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import JOB_COLUMNS, encode
from penstock.stores.values import QuarantinedEntry

_COLUMNS: Final = [each for each in JOB_COLUMNS.split(", ") if each not in {"ended_at", "result"}]
_CHUNK: Final = 1_000

# The time when it was set aside and the damage that was found are kept as time of progress and as reason.
# No event tells of it: what it does to the counts is noted apart.
_SET_ASIDE: Final = """
WITH picked AS MATERIALIZED (
    SELECT job.id, job.state, item.reason
    FROM unnest($2::text[], $3::text[]) AS item (id, reason)
    JOIN penstock.job ON job.queue = $1 AND job.id = item.id AND job.state <> 'quarantined'
    FOR UPDATE OF job
),
changed AS (
    UPDATE penstock.job SET
        state = 'quarantined', token = NULL, deadline = NULL, visible_at = NULL, reason = picked.reason,
        progress_at = $4::bigint
    FROM picked
    WHERE job.queue = $1 AND job.id = picked.id AND job.state <> 'quarantined'
    RETURNING job.key, picked.state AS was
),
removed_counts AS (
    INSERT INTO penstock.removed_count (queue, state, many)
    SELECT $1, changed.was, count(*) FROM changed GROUP BY changed.was
)
SELECT changed.key FROM changed
"""
_ENTRIES: Final = f"""
SELECT {", ".join(_COLUMNS)} FROM penstock.job
WHERE queue = $1 AND state = 'quarantined' AND id > $2
ORDER BY id LIMIT $3::bigint
"""  # noqa: S608 (constants)
_DELETE: Final = """
DELETE FROM penstock.job WHERE queue = $1 AND state = 'quarantined' AND id = ANY($2::text[])
RETURNING id, idempotency_key, key_held_ms, more
"""
_FREE_KEY: Final = """
UPDATE penstock.idempotency SET until = $4::bigint WHERE queue = $1 AND key = $2 AND job = $3
"""
_LEAVE_KINDS: Final = "UPDATE penstock.kind SET is_left = true WHERE queue = $1 AND job = ANY($2::text[])"
_CHILDREN: Final = "DELETE FROM penstock.child WHERE queue = $1 AND parent = ANY($2::text[])"
_RELAY: Final = "INSERT INTO penstock.relay (queue, target, what, body) VALUES ($1, $2, 'ended', $3)"
# Those jobs were in no count any more.
_EVENT: Final = """
WITH written AS (
    INSERT INTO penstock.event (queue, stamp, seq, at, move, reason, jobs)
    SELECT $1, pg_current_xact_id(), nextval(queue.numbers), $3::bigint, 'delete', $4, $2::text[]
    FROM penstock.queue WHERE queue.n = $1
    RETURNING seq
)
INSERT INTO penstock.removed_count (queue, seq, state, many)
SELECT $1, written.seq, 'quarantined', 0 FROM written
"""
_LIVE: Final = JOB_COLUMNS.replace("ended_at", "NULL AS ended_at").replace("result", "NULL AS result")
_NAMED: Final = f"SELECT {_LIVE} FROM penstock.job WHERE queue = $1 AND id = ANY($2::text[])"  # noqa: S608 (constants)
_UNREADABLE: Final = (psycopg.errors.InvalidTextRepresentation, psycopg.errors.InvalidParameterValue)
"""Errors of the server for text that is to be JSON and is not."""
_ALL: Final = f"""
SELECT {_LIVE}
FROM penstock.job
WHERE queue = $1 AND id > $2 AND state <> 'quarantined'
ORDER BY id LIMIT $3::bigint
"""  # noqa: S608 (constants)


class PostgresQuarantine:
    """The part `Quarantine`: sets jobs aside, and shows and deletes them."""

    def __init__(self, backend: Backend, counting: Counting) -> None:
        self._backend = backend
        self._counting = counting

    async def set_aside(self, queue: QueueRef, number: int, damages: Sequence[CorruptRow]) -> int:
        """Set jobs aside, and let their keys go on; how many were."""
        if not damages:
            return 0
        async with self._backend.queue_transaction(number) as transaction:
            changed = await self._set_aside_in(transaction, damages)
        for job, reason in damages:
            warn_set_aside(queue, job, reason)
        return changed

    async def _set_aside_in(self, transaction: QueueTransaction, damages: Sequence[CorruptRow]) -> int:
        ids, reasons = [job for job, _ in damages], [reason for _, reason in damages]
        rows = await self._backend.query(
            _SET_ASIDE, transaction.number, ids, reasons, transaction.now, on=transaction.connection
        )
        transaction.check_keys(key for (key,) in rows if key is not None)
        return len(rows)

    async def mend(self, queue: QueueRef, number: int, error: StoreError, ids: Sequence[str]) -> bool:
        """Set aside those of a failed call's jobs that cannot be read; whether that is worth another try."""
        if not isinstance(error.__cause__, _UNREADABLE):
            return False
        rows = await self._backend.query(_NAMED, number, list(ids))
        return bool(await self.set_aside(queue, number, _damaged(queue, rows)))

    @renumbers
    async def list_quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        """Jobs that were set aside, by id."""
        rows = await self._backend.read_queue(queue, _ENTRIES, after, max(limit, 0))
        return [_entry(row) for row in rows]

    @answers_absent
    @renumbers
    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        """Remove jobs that were set aside, with one event for all of them."""
        number = await self._backend.require_number(queue)
        async with self._backend.queue_transaction(number) as transaction:
            rows = await self._backend.query(_DELETE, number, list(entries), on=transaction.connection)
            gone = sorted(job for job, *_ in rows)
            if gone:
                for job, key, held_ms, more in rows:
                    if key is not None:
                        await self._backend.query(
                            _FREE_KEY, number, key, job, transaction.now + held_ms, on=transaction.connection
                        )
                    await self._relay_to_parents(queue, transaction, job, more)
                for statement in (_LEAVE_KINDS, _CHILDREN):
                    await self._backend.query(statement, number, gone, on=transaction.connection)
                await self._backend.query(
                    _EVENT, number, gone, transaction.now, DELETED, on=transaction.connection
                )
        return len(gone)

    async def _relay_to_parents(
        self, queue: QueueRef, transaction: QueueTransaction, job: str, more: str | None
    ) -> None:
        """Write relay entries for the parents of the job, where these can be read."""
        try:
            parents = more_of(more).parents
        except DECODE_ERRORS:
            return
        for parent in parents:
            ending = ChildEnding(parent.id, JobRef(queue.name, job), None)
            await self._backend.query(
                _RELAY, transaction.number, parent.queue, encode(ending), on=transaction.connection
            )

    @answers_absent
    @renumbers
    async def repair(self, queue: QueueRef) -> int:
        """Read every job that has not ended and set aside those that cannot be read; mend wrong counts."""
        number = await self._backend.require_number(queue)
        changed = await self.set_aside(queue, number, await self.damaged_rows(queue, number))
        if await self._counting.compare(number):
            await self._counting.recount(number)
        return changed

    async def damaged_rows(self, queue: QueueRef, number: int) -> list[CorruptRow]:
        found: list[CorruptRow] = []
        after = ""
        while rows := await self._backend.query(_ALL, number, after, _CHUNK):
            found += _damaged(queue, rows)
            after = rows[-1][0]
        return found


def _damaged(queue: QueueRef, rows: Sequence[Row]) -> list[CorruptRow]:
    """Those of the rows that cannot be read."""
    found: list[CorruptRow] = []
    for row in rows:
        try:
            job_of(queue, row)
        except DECODE_ERRORS as error:
            found.append((row[0], unreadable_record(error)))
    return found


def _entry(row: Row) -> QuarantinedEntry:
    fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    payload, at, reason = (fields.pop(name) for name in ("payload", "progress_at", "reason"))
    return QuarantinedEntry(
        fields["id"], at or 0, reason or "", msgspec.json.encode(fields), payload.encode()
    )
