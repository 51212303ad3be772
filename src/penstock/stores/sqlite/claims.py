"""Leasing jobs, and naming leases that ran out: what cannot be read is set aside in the same transaction."""

import sqlite3
from typing import Any, Final

import msgspec

from penstock.core.job import Claimed, ExpiredLease, QueueRef
from penstock.core.moves import Move
from penstock.stores.damaged import READING, DamagedRow, unreadable_record
from penstock.stores.sqlite.quarantine import set_aside
from penstock.stores.sqlite.reads import read_expired
from penstock.stores.sqlite.records import CLAIMED_ROWS, ClaimedRow
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.sqlite.turn import Turn

_TOUCHED: Final = f"""
SELECT {", ".join(ClaimedRow.__struct_fields__)}
FROM temp.touched JOIN job ON job.n = touched.n ORDER BY touched.i
"""  # noqa: S608 (constants)
_TAKE_BACK: Final = "UPDATE job SET version = version - 1, delivery = delivery - 1 WHERE queue = ? AND id = ?"
_DROP: Final = "DELETE FROM temp.touched WHERE n IN (SELECT n FROM job WHERE queue = ? AND id = ?)"


def claim(turn: Turn, limit: int, **params: Any) -> tuple[list[Claimed], bool]:
    """Lease up to so many jobs, where keys take turns in rounds; and whether some were set aside instead."""
    has_keys = turn.limits.declared.mode.has_keys
    pick = "pick_keys" if has_keys else "pick"
    if has_keys:
        turn.limits.release_held()
    jobs: list[Claimed] = []
    damages: list[DamagedRow] = []
    taken = 0
    while taken < limit and (picked := turn.pick(Move.CLAIM, pick, limit=limit - taken)):
        turn.run(Move.CLAIM, "change", taken=taken, **params)
        taken += picked
        try:
            jobs += [row.claimed() for row in CLAIMED_ROWS.decode(turn.one(Move.CLAIM, "answer"))]
        except (*READING, sqlite3.OperationalError):
            claimed, damaged = _one_by_one(turn)
            jobs += claimed
            damages += damaged
            _leave_out(turn, damaged)
            if not claimed:
                # Nobody's turn was used.
                turn.limits.refresh()
                continue
        turn.tell(Move.CLAIM)
        if not has_keys:
            break
        turn.limits.serve()
    return jobs, bool(damages)


def recover(turn: Turn, queue: QueueRef, limit: int) -> list[ExpiredLease]:
    """Leases that ran out; those of jobs that cannot be read are set aside."""
    leases, damages = read_expired(turn.connection, queue, turn.now, limit)
    set_aside(turn, damages)
    return leases


def _one_by_one(turn: Turn) -> tuple[list[Claimed], list[DamagedRow]]:
    """The jobs that were picked, and those of them that cannot be read."""
    jobs: list[Claimed] = []
    damages: list[DamagedRow] = []
    for row in fetch(turn.connection, _TOUCHED):
        try:
            jobs.append(msgspec.convert(row, ClaimedRow, strict=False).claimed())
        except READING as error:
            damages.append((str(row[0]), unreadable_record(error)))
    return jobs, damages


def _leave_out(turn: Turn, damages: list[DamagedRow]) -> None:
    """Set these aside as if they had not been picked."""
    for job, _ in damages:
        turn.connection.execute(_TAKE_BACK, (turn.number, job))
        turn.connection.execute(_DROP, (turn.number, job))
    turn.run(Move.PROGRESS, "renumber")
    set_aside(turn, damages)
