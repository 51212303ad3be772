"""The quarantine: rows that cannot be read stay where they are, in a state that no move and no read knows."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import psycopg

from penstock.core.errors import StoreError
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import QUARANTINE_LIMIT
from penstock.stores.damaged import DAMAGED, DamagedRow, unreadable_record, warn_set_aside
from penstock.stores.postgres.engine import Row
from penstock.stores.postgres.records import job_of, more_of
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.room import Room
from penstock.stores.postgres.turn import Turn
from penstock.stores.rows import JOB_COLUMNS, encode
from penstock.stores.values import QuarantinedEntry

_COLUMNS: Final = [each for each in JOB_COLUMNS.split(", ") if each not in {"ended_at", "result"}]
_CHUNK: Final = 1_000

# When it was set aside, and what was found, take the place of the last progress and of the reason.
_SET_ASIDE: Final = """
UPDATE penstock.job SET
    state = 'quarantined', token = NULL, deadline = NULL, visible_at = NULL, reason = item.what,
    progress_at = $4::bigint
FROM unnest($2::text[], $3::text[]) AS item (id, what)
WHERE job.queue = $1 AND job.id = item.id AND job.state <> 'quarantined'
RETURNING job.key
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
_EVENT: Final = """
INSERT INTO penstock.event (queue, stamp, seq, at, move, reason, jobs)
SELECT $1, pg_current_xact_id(), nextval(queue.numbers), $3::bigint, 'delete', 'DELETED', $2::text[]
FROM penstock.queue WHERE queue.n = $1
"""
_LIVE: Final = JOB_COLUMNS.replace("ended_at", "NULL AS ended_at").replace("result", "NULL AS result")
_NAMED: Final = f"SELECT {_LIVE} FROM penstock.job WHERE queue = $1 AND id = ANY($2::text[])"  # noqa: S608 (constants)
_UNREADABLE: Final = (psycopg.errors.InvalidTextRepresentation, psycopg.errors.InvalidParameterValue)
"""What the server says of text that is to be JSON and is not."""
_ALL: Final = f"""
SELECT {_LIVE}
FROM penstock.job
WHERE queue = $1 AND id > $2 AND state <> 'quarantined'
ORDER BY id LIMIT $3::bigint
"""  # noqa: S608 (constants)


class PostgresQuarantine(Room):
    """Sets jobs aside, and shows and deletes them."""

    async def _set_aside(self, queue: QueueRef, number: int, damages: Sequence[DamagedRow]) -> int:
        """Set jobs aside, and let their keys go on; how many were."""
        if not damages:
            return 0
        async with self._turn(number) as turn:
            changed = await self._set_aside_in(turn, damages)
        for job, what in damages:
            warn_set_aside(queue, job, what)
        return changed

    async def _set_aside_in(self, turn: Turn, damages: Sequence[DamagedRow]) -> int:
        ids, whats = [job for job, _ in damages], [what for _, what in damages]
        rows = await self._ask(_SET_ASIDE, turn.number, ids, whats, turn.now, on=turn.connection)
        turn.look_at(key for (key,) in rows if key is not None)
        return len(rows)

    async def _mend(self, queue: QueueRef, number: int, error: StoreError, ids: Sequence[str]) -> bool:
        """Set aside those of a failed call's jobs that cannot be read; whether that is worth another try."""
        if not isinstance(error.__cause__, _UNREADABLE):
            return False
        rows = await self._ask(_NAMED, number, list(ids))
        return bool(await self._set_aside(queue, number, _damaged(queue, rows)))

    @renumbers
    async def quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        """Jobs that were set aside, by id."""
        rows = await self._look_at(queue, _ENTRIES, after, max(limit, 0))
        return [_entry(row) for row in rows]

    @answers_absent
    @renumbers
    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        """Remove jobs that were set aside, with one event for all of them."""
        number = await self._there(queue)
        async with self._turn(number) as turn:
            rows = await self._ask(_DELETE, number, list(entries), on=turn.connection)
            gone = sorted(job for job, *_ in rows)
            if gone:
                for job, key, held_ms, more in rows:
                    if key is not None:
                        await self._ask(_FREE_KEY, number, key, job, turn.now + held_ms, on=turn.connection)
                    await self._tell_parents(queue, turn, job, more)
                for statement in (_LEAVE_KINDS, _CHILDREN):
                    await self._ask(statement, number, gone, on=turn.connection)
                await self._ask(_EVENT, number, gone, turn.now, on=turn.connection)
        return len(gone)

    async def _tell_parents(self, queue: QueueRef, turn: Turn, job: str, more: str | None) -> None:
        """Leave word for those that wait for the job, where it can be read who does."""
        try:
            parents = more_of(more).parents
        except DAMAGED:
            return
        for parent in parents:
            ending = ChildEnding(parent.id, JobRef(queue.name, job), None)
            await self._ask(_RELAY, turn.number, parent.queue, encode(ending), on=turn.connection)

    @answers_absent
    @renumbers
    async def repair(self, queue: QueueRef) -> int:
        """Read every job that has not ended, and set aside those that cannot be read."""
        number = await self._there(queue)
        return await self._set_aside(queue, number, await self._damaged_rows(queue, number))

    async def _damaged_rows(self, queue: QueueRef, number: int) -> list[DamagedRow]:
        found: list[DamagedRow] = []
        after = ""
        while rows := await self._ask(_ALL, number, after, _CHUNK):
            found += _damaged(queue, rows)
            after = rows[-1][0]
        return found


def _damaged(queue: QueueRef, rows: Sequence[Row]) -> list[DamagedRow]:
    """Those of the rows that cannot be read."""
    found: list[DamagedRow] = []
    for row in rows:
        try:
            job_of(queue, row)
        except DAMAGED as error:
            found.append((row[0], unreadable_record(error)))
    return found


def _entry(row: Row) -> QuarantinedEntry:
    fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    payload, at, what = (fields.pop(name) for name in ("payload", "progress_at", "reason"))
    return QuarantinedEntry(fields["id"], at or 0, what or "", msgspec.json.encode(fields), payload.encode())
