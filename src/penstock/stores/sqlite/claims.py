"""Leasing jobs, and naming leases that ran out: what cannot be read is set aside in the same transaction."""

import secrets
import sqlite3
from typing import Any, Final

import msgspec

from penstock.core.clocks import is_floor_ignored
from penstock.core.job import Claimed, ExpiredLease, QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.corruption import ROW_ERRORS, CorruptRow, unreadable_record
from penstock.stores.projection import ProjectedTime
from penstock.stores.rows import EXPIRED_COLUMNS, expired_of
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.clock import FAR_LEASE, LEASE_PARAMS, STEPPED, read_now
from penstock.stores.sqlite.codec import CLAIMED_ROWS, ClaimedRow
from penstock.stores.sqlite.quarantine import set_aside
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.sqlite.queues import named, read_queue
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import Topic

_TOUCHED: Final = f"""
SELECT {", ".join(ClaimedRow.__struct_fields__)}
FROM temp.touched JOIN job ON job.n = touched.n ORDER BY touched.i
"""  # noqa: S608 (constants)
_TAKE_BACK: Final = "UPDATE job SET version = version - 1, delivery = delivery - 1 WHERE queue = ? AND id = ?"
_DROP: Final = "DELETE FROM temp.touched WHERE n IN (SELECT n FROM job WHERE queue = ? AND id = ?)"
_ANY_EXPIRED: Final = f"""
SELECT
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active') <= :now
    OR (
        {STEPPED}
        AND EXISTS (SELECT 1 FROM job WHERE job.queue = queue.n AND state = 'active' AND {FAR_LEASE})
    )
FROM queue WHERE tenant = :tenant AND name = :name
"""  # noqa: S608 (constants)


_NEXT_DUE: Final = """
SELECT
    (SELECT min(visible_at) FROM job WHERE job.queue = queue.n AND state = 'delayed'),
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active'),
    iif(paused_until > :now, paused_until, NULL),
    (SELECT min(held_until) FROM lane WHERE lane.queue = queue.n AND held_until IS NOT NULL)
FROM queue WHERE tenant = :tenant AND name = :name
"""
_ANY_PENDING = """
SELECT 1 FROM job JOIN queue ON job.queue = queue.n
WHERE queue.tenant = ? AND queue.name = ? AND job.state = 'pending' LIMIT 1
"""

_EXPIRED: Final = f"""
SELECT {EXPIRED_COLUMNS} FROM job
WHERE queue = (SELECT n FROM queue WHERE tenant = :tenant AND name = :name) AND state = 'active'
    AND (deadline <= :now OR {FAR_LEASE})
ORDER BY deadline, id LIMIT :limit
"""  # noqa: S608 (constants)


class SqliteClaims:
    """Promotes what is due, and leases jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._projected = ProjectedTime()

    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int,
        limits: ClaimLimits,
    ) -> Claims:
        """Promote, lease, and name leases that ran out."""
        tokens, floor_us = secrets.token_hex(16 * limit), self._projected.floor_us(floor_us)

        def move(transaction: QueueTransaction) -> Claims:
            promote(transaction, limits.promote_limit)
            transaction.limits.refresh()
            allowed = min(limit, transaction.limits.allowance())
            floor = 0 if is_floor_ignored(transaction.now_us, floor_us) else floor_us
            jobs, is_more = lease(
                transaction, allowed, tokens=tokens, worker=worker, lease_ms=lease_ms, floor_us=floor
            )
            transaction.notifications.clear()
            opens = transaction.limits.use_rate(len(jobs))
            due = [
                at
                for at in (_next_due(transaction.connection, queue, transaction.now), opens)
                if at is not None
            ]
            late = _any_expired(transaction.connection, queue, transaction.now)
            expired = recover(transaction, queue, limits.recover_limit) if late else []
            wait = max(0, min(due) - transaction.now) if due else None
            return Claims(jobs, expired, wait, is_more, now_us=transaction.now_us)

        def peek(connection: sqlite3.Connection) -> Claims | None:
            now = read_now(connection, queue)
            due = _next_due(connection, queue, now)
            if (due is not None and due <= now) or _any_expired(connection, queue, now):
                return None
            waiting = connection.execute(_ANY_PENDING, (queue.tenant, queue.name)).fetchone()
            return None if waiting else Claims([], [], None if due is None else due - now)

        claims = await self._backend.transact(queue, move, peek, creates=False)
        if claims.now_us:
            self._projected.observe(claims.now_us, floor_us)
        return claims


def promote(transaction: QueueTransaction, limit: int) -> int:
    """Make due jobs claimable; how many were."""
    moved = transaction.pick(Move.PROMOTE, limit=limit)
    if moved:
        transaction.run(Move.PROMOTE, "change")
        transaction.write_events(Move.PROMOTE)
        transaction.notifications.add(Topic.READY)
    return moved


def lease(transaction: QueueTransaction, limit: int, **params: Any) -> tuple[list[Claimed], bool]:
    """Lease up to so many jobs, where keys take turns in rounds; and whether some were set aside instead."""
    has_keys = transaction.limits.declared.mode.has_keys
    pick = "pick_keys" if has_keys else "pick"
    if has_keys:
        transaction.limits.release_held()
    jobs: list[Claimed] = []
    damages: list[CorruptRow] = []
    taken = 0
    while taken < limit and (picked := transaction.pick(Move.CLAIM, pick, limit=limit - taken)):
        transaction.run(Move.CLAIM, "change", taken=taken, **params)
        taken += picked
        try:
            jobs += [row.claimed() for row in CLAIMED_ROWS.decode(transaction.value(Move.CLAIM, "answer"))]
        except (*ROW_ERRORS, sqlite3.OperationalError):
            claimed, damaged = _one_by_one(transaction)
            jobs += claimed
            damages += damaged
            _leave_out(transaction, damaged)
            if not claimed:
                # No key has used its turn.
                transaction.limits.refresh()
                continue
        transaction.write_events(Move.CLAIM)
        if not has_keys:
            break
        transaction.limits.serve()
    return jobs, bool(damages)


def recover(transaction: QueueTransaction, queue: QueueRef, limit: int) -> list[ExpiredLease]:
    """Leases that ran out; those of jobs that cannot be read are set aside."""
    leases, damages = read_expired(transaction.connection, queue, transaction.now, limit)
    set_aside(transaction, damages)
    return leases


def _one_by_one(transaction: QueueTransaction) -> tuple[list[Claimed], list[CorruptRow]]:
    """The jobs that were picked, and those of them that cannot be read."""
    jobs: list[Claimed] = []
    damages: list[CorruptRow] = []
    for row in fetch(transaction.connection, _TOUCHED):
        try:
            jobs.append(msgspec.convert(row, ClaimedRow, strict=False).claimed())
        except ROW_ERRORS as error:
            damages.append((str(row[0]), unreadable_record(error)))
    return jobs, damages


def _leave_out(transaction: QueueTransaction, damages: list[CorruptRow]) -> None:
    """Set these aside as if they had not been picked."""
    for job, _ in damages:
        transaction.connection.execute(_TAKE_BACK, (transaction.number, job))
        transaction.connection.execute(_DROP, (transaction.number, job))
    transaction.run(Move.PROGRESS, "renumber")
    set_aside(transaction, damages)


def read_expired(
    connection: sqlite3.Connection, queue: QueueRef, now: int, limit: int
) -> tuple[list[ExpiredLease], list[CorruptRow]]:
    """Leases that ran out, oldest first, also those that end later than any lease may; and damaged ones."""
    rows = fetch(connection, _EXPIRED, {**named(queue), **LEASE_PARAMS, "now": now, "limit": limit})
    info = read_queue(connection, queue)
    keyed = info is not None and info.mode.has_keys
    leases: list[ExpiredLease] = []
    damages: list[CorruptRow] = []
    for row in rows:
        try:
            leases.append(expired_of(row, keyed=keyed))
        except ROW_ERRORS as error:
            damages.append((str(row[0]), unreadable_record(error)))
    return leases, damages


def _any_expired(connection: sqlite3.Connection, queue: QueueRef, now: int) -> bool:
    """True when a lease ran out; one look at the end of an index, unless the clock was set back."""
    params = {**named(queue), **LEASE_PARAMS, "now": now}
    row = connection.execute(_ANY_EXPIRED, params).fetchone()
    return row is not None and bool(row[0])


def _next_due(connection: sqlite3.Connection, queue: QueueRef, now: int) -> int | None:
    """When something next becomes due in the queue: a delayed job, a lease, the end of a pause."""
    row = connection.execute(_NEXT_DUE, {**named(queue), "now": now}).fetchone()
    due = [at for at in row or () if at is not None]
    return min(due) if due else None
