"""The quarantine: rows that cannot be read stay where they are, in a state that no move and no read knows."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core.job import ExpiredLease, QueueRef
from penstock.core.moves import Move
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import QUARANTINE_LIMIT, RECOVER_LIMIT
from penstock.stores.damaged import DamagedRow, warn_set_aside
from penstock.stores.rows import JOB_COLUMNS, encode
from penstock.stores.sqlite.check import damaged_rows
from penstock.stores.sqlite.clock import read_now
from penstock.stores.sqlite.reads import read_expired
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.sqlite.turn import Turn
from penstock.stores.sqlite.turns import Turns
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


def set_aside(turn: Turn, damages: Sequence[DamagedRow]) -> int:
    """Set jobs aside, and let their keys go on; how many were."""
    changed = 0
    for job, what in damages:
        changed += turn.connection.execute(_SET_ASIDE, (what, turn.now, turn.number, job)).rowcount
        if turn.limits.declared.mode.has_keys:
            turn.limits.touch(key for (key,) in fetch(turn.connection, _KEY, (turn.number, job)))
        warn_set_aside(turn.queue, job, what)
    return changed


class SqliteQuarantine(Turns):
    """Sets jobs aside, and shows and deletes them."""

    @answers_absent
    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        """Leases that ran out, oldest first; those of jobs that cannot be read are set aside."""
        leases, damages = await self._read(
            lambda connection: read_expired(connection, queue, read_now(connection, queue), limit)
        )
        if damages:
            await self._turn(queue, lambda turn: set_aside(turn, damages), makes=False)
        return leases

    async def quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        """Jobs that were set aside, by id."""
        params = queue.tenant, queue.name, after, max(limit, 0)
        return [
            _entry(row) for row in await self._read(lambda connection: fetch(connection, _ENTRIES, params))
        ]

    @answers_absent
    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        """Remove jobs that were set aside, with one event for all of them."""

        def move(turn: Turn) -> int:
            turn.connection.execute("DELETE FROM temp.touched")
            gone = turn.connection.execute(_PICK, (turn.number, encode(entries))).rowcount
            if gone:
                if turn.has_flows:
                    turn.relay_endings(gone=True)
                turn.run(Move.DELETE, "keys")
                turn.run(Move.DELETE, "children")
                turn.tell_once(Move.DELETE, [job for (job,) in turn.connection.execute(_GONE)])
                turn.run(Move.DELETE, "change")
            return gone

        return await self._turn(queue, move, makes=False)

    @answers_absent
    async def repair(self, queue: QueueRef) -> int:
        """Read every job, and set aside those that cannot be read."""
        return await self._turn(
            queue,
            lambda turn: set_aside(turn, damaged_rows(turn.connection, queue, turn.number)),
            makes=False,
        )


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
