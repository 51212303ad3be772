"""Claims: one statement, which skips the ends of indexes where nothing is; with limits, one transaction."""

import asyncio

import msgspec

from penstock.core.job import Claimed, QueueRef
from penstock.core.limits import MAX_COUNT, STRIDE
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.corruption import DECODE_ERRORS, CorruptRow, unreadable_record
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.codec import claimed_of
from penstock.stores.postgres.engine import Row, Value
from penstock.stores.postgres.hints import TIERS, Hints
from penstock.stores.postgres.lanes import Lane, Served, serve
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.reads import PostgresReads
from penstock.stores.postgres.renumbering import renumbers

_QUEUE_COLUMNS = 4
_PLACE = -1
_FIRST_DEADLINE = """
SELECT deadline FROM penstock.job WHERE queue = $1 AND deadline >= $2::bigint ORDER BY deadline LIMIT 1
"""
_ACTIVE = """
SELECT count(*)
FROM (SELECT 1 FROM penstock.job WHERE queue = $1 AND deadline IS NOT NULL LIMIT $2::bigint) AS job
"""


class ClaimOrder(msgspec.Struct, frozen=True):
    """The arguments of a claim."""

    worker: str
    limit: int
    lease_ms: int
    floor_us: int
    limits: ClaimLimits


class PostgresClaims:
    """Promoting and claiming."""

    def __init__(self, backend: Backend, reads: PostgresReads, quarantine: PostgresQuarantine) -> None:
        self._backend = backend
        self._reads = reads
        self._quarantine = quarantine

    @answers_absent
    @renumbers
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        """Make due jobs claimable."""
        number = await self._backend.require_number(queue)
        moved = (
            0
            if number in self._backend.keyed
            else len(await self._backend.run_move(Move.PROMOTE, number, limit))
        )
        # Where none was moved, keys may have come to take turns: then the queue's row has to be held.
        if not moved and await self._backend.has_keys(queue, number):
            async with self._backend.queue_transaction(number) as transaction:
                moved = await self._promote_in(transaction, limit)
        if moved:
            self._backend.notify_ready(queue)
        return moved

    async def _promote_in(self, transaction: QueueTransaction, limit: int) -> int:
        keys = [key for (key,) in await transaction.run_move(Move.PROMOTE, limit)]
        transaction.touch(Move.PROMOTE, keys)
        return len(keys)

    @answers_absent
    @renumbers
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        """Lease jobs, and name leases that ran out. Due jobs are promoted before, if there are any."""
        number = await self._backend.require_number(queue)
        hints = self._backend.hints.setdefault(number, Hints())
        order = ClaimOrder(worker, limit, lease_ms, self._backend.projected.floor_us(floor_us), limits)
        claims = None
        while claims is None:
            # Each way finds out where others have made it the other kind of queue.
            if number in self._backend.limited:
                claims = await self._claim_limited(queue, number, hints, order)
            else:
                claims = await self._claim_plain(queue, number, hints, order)
        self._backend.projected.observe(claims.now_us, order.floor_us)
        return claims

    async def _claim_plain(
        self, queue: QueueRef, number: int, hints: Hints, order: ClaimOrder
    ) -> Claims | None:
        """Claim without looking at the whole queue; None where that is needed."""
        rows = await self._lease(number, hints, order)
        if rows and (due := rows[0][1]) is not None and due * 1000 <= rows[0][0]:
            at_us = rows[0][0]
            await self._backend.run_move(Move.PROMOTE, number, order.limits.promote_limit, at_us=at_us)
            rows = await self._lease(number, hints, order, at_us=at_us)
        if not rows:
            self._backend.limited.add(number)
            return None
        now_us, due, is_late, open_at = rows[0][:_QUEUE_COLUMNS]
        now = now_us // 1000
        jobs, is_more = (
            await self._claimed(queue, number, rows) if rows[0][_QUEUE_COLUMNS] is not None else ([], False)
        )
        deadline: int | None = now + order.lease_ms
        is_full = bool(jobs) and len(rows) == order.limit
        if not (jobs and hints.wants_peek(max(row[_PLACE] for row in rows))):
            deadline = deadline if is_full else await self._first_deadline(number, hints)
        elif is_full:
            await self._peek(number, hints)
        else:
            # Side by side, as the claimed jobs wait for both.
            deadline, _ = await asyncio.gather(self._first_deadline(number, hints), self._peek(number, hints))
        expired = await self._reads.expired(queue, order.limits.recover_limit) if is_late else []
        due_times = [at for at in (due, deadline, open_at) if at is not None]
        wait = max(0, min(due_times) - now) if due_times else None
        return Claims(jobs, expired, wait, is_more, now_us=now_us)

    async def _claim_limited(
        self, queue: QueueRef, number: int, hints: Hints, order: ClaimOrder
    ) -> Claims | None:
        """Claim while holding the queue's row, by its limits and by turns; None where it has become plain."""
        deadline_from, due_from = hints.times()
        async with self._backend.queue_transaction(number, due_from=due_from) as transaction:
            if transaction.is_plain:
                return None
            self._backend.observe_time(transaction.now_us)
            if transaction.due_at is not None and transaction.due_at <= transaction.now:
                await self._promote_in(transaction, order.limits.promote_limit)
                await transaction.refresh()
            if transaction.declared.key_rate is not None:
                await transaction.run_shared(
                    "release_rate_limited", transaction.now_us, STRIDE, transaction.key_furthest_us
                )
            allowed = min(order.limit, await self._allowance(transaction))
            rows = []
            if allowed > 0:
                claim = self._claim_by_turns if transaction.declared.mode.has_keys else self._claim_in_order
                rows = await claim(transaction, hints, allowed, order)
            [(due, deadline, held_until, is_waiting, open_at, is_late)] = await transaction.run_shared(
                "next_due", transaction.now, deadline_from, due_from, order.lease_ms
            )
        hints.saw(transaction.now, due, is_late=is_late)
        if (
            rows
            and not transaction.declared.mode.has_keys
            and hints.wants_peek(max(row[_PLACE] for row in rows))
        ):
            await self._peek(number, hints)
        expired = await self._reads.expired(queue, order.limits.recover_limit) if is_late else []
        due_times = [due, deadline, held_until, open_at, _opens_at(transaction) if is_waiting else None]
        wait = min((at for at in due_times if at is not None), default=None)
        jobs, is_more = await self._claimed(queue, number, rows)
        wait_ms = None if wait is None else max(0, wait - transaction.now)
        return Claims(jobs, expired, wait_ms, is_more, now_us=transaction.now_us)

    async def _claimed(self, queue: QueueRef, number: int, rows: list[Row]) -> tuple[list[Claimed], bool]:
        """The jobs that were leased, and whether some cannot be read and were set aside instead."""
        try:
            return [claimed_of(row[_QUEUE_COLUMNS:]) for row in rows], False
        except DECODE_ERRORS:
            pass
        jobs: list[Claimed] = []
        damages: list[CorruptRow] = []
        for row in rows:
            try:
                jobs.append(claimed_of(row[_QUEUE_COLUMNS:]))
            except DECODE_ERRORS as error:
                damages.append((row[_QUEUE_COLUMNS], unreadable_record(error)))
        await self._quarantine.set_aside(queue, number, damages)
        return jobs, True

    async def _allowance(self, transaction: QueueTransaction) -> int:
        """How many jobs may be claimed now by the queue's own limits."""
        declared, allowed = transaction.declared, MAX_COUNT
        if declared.max_active is not None:
            [(active,)] = await self._backend.query(
                _ACTIVE, transaction.number, declared.max_active, on=transaction.connection
            )
            allowed = declared.max_active - active
        if declared.rate is not None:
            allowed = min(allowed, declared.rate.tokens(transaction.arrival_us, transaction.now_us))
        return allowed

    async def _claim_in_order(
        self, transaction: QueueTransaction, hints: Hints, limit: int, order: ClaimOrder
    ) -> list[Row]:
        """Claim in order of priority and place, with a token of the queue's rate for each job."""
        params: tuple[Value, ...] = (
            limit,
            order.lease_ms,
            order.worker,
            *hints.spans(),
            0,
            transaction.now,
            True,
            [],
            order.floor_us,
        )
        rows = await transaction.run_move(Move.CLAIM, *params)
        rows = [row for row in rows if row[_QUEUE_COLUMNS] is not None]
        if transaction.declared.rate is not None:
            await self._use(transaction, len(rows), Served([], []))
        return rows

    async def _claim_by_turns(
        self, transaction: QueueTransaction, _: Hints, limit: int, order: ClaimOrder
    ) -> list[Row]:
        """Claim key by key, as their turns come."""
        found = await transaction.run_shared("next_lanes", limit, *transaction.key_params)
        if not found:
            return []
        lanes, numbered = [Lane(*row[1:]) for row in found], found[0][0]
        served = serve(
            lanes, limit, numbered=numbered, rate=transaction.declared.key_rate, now_us=transaction.now_us
        )
        lookups: tuple[Value, ...] = ([], [], [], 0, transaction.now, True, served.order)
        rows = await transaction.run_move(
            Move.CLAIM, limit, order.lease_ms, order.worker, *lookups, order.floor_us
        )
        rows = [row for row in rows if row[_QUEUE_COLUMNS] is not None]
        # There are none where the queue is paused: no key's turn is used then.
        if rows:
            await self._use(transaction, len(rows), served)
        return rows

    async def _use(self, transaction: QueueTransaction, taken: int, served: Served) -> None:
        """Write which turns and tokens a claim used up."""
        rate, key_rate = transaction.declared.rate, transaction.declared.key_rate
        if rate is not None:
            transaction.arrival_us = rate.after(transaction.arrival_us, transaction.now_us, taken)
        await transaction.run_shared(
            "use_lanes",
            transaction.arrival_us,
            served.virtual,
            served.numbered,
            [lane.key for lane in served.lanes],
            [lane.turn for lane in served.lanes],
            [lane.number for lane in served.lanes],
            [lane.held_until for lane in served.lanes],
            [None if key_rate is None else lane.arrival_us for lane in served.lanes],
            [lane.is_ready for lane in served.lanes],
        )

    async def _lease(
        self, number: int, hints: Hints, order: ClaimOrder, *, at_us: int | None = None
    ) -> list[Row]:
        """Lease jobs by one statement; with the time of a promotion, also where jobs are still due."""
        rows = await self._backend.run_move(
            Move.CLAIM,
            number,
            order.limit,
            order.lease_ms,
            order.worker,
            *hints.spans(),
            *hints.times(),
            at_us is not None,
            [],
            order.floor_us,
            at_us=at_us,
        )
        if rows:
            now_us, due, is_late, *_ = rows[0]
            self._backend.observe_time(now_us)
            hints.saw(now_us // 1000, due, is_late=is_late)
        return rows

    async def _first_deadline(self, number: int, hints: Hints) -> int | None:
        """When the next lease runs out; queried only when a claim came back short: the worker may sleep."""
        rows = await self._backend.query(_FIRST_DEADLINE, number, hints.times()[0])
        return rows[0][0] if rows else None

    async def _peek(self, number: int, hints: Hints) -> None:
        newest = hints.newest
        floors = [hints.floors[tier] for tier in TIERS]
        [(xmin, xmax, firsts)] = await self._backend.run_shared("first_places", number, list(TIERS), floors)
        hints.peeked(newest, xmin, xmax, firsts)


def _opens_at(transaction: QueueTransaction) -> int | None:
    """When the queue's rate lets the next job go; None when it does now."""
    rate = transaction.declared.rate
    if rate is None or rate.tokens(transaction.arrival_us, transaction.now_us):
        return None
    return -(-rate.opens_us(transaction.arrival_us) // 1000)
