"""Claims: one statement, told where in the line it need not look; with limits, one transaction."""

import asyncio

import msgspec

from penstock.core.job import Claimed, QueueRef
from penstock.core.limits import MAX_COUNT
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.damaged import DAMAGED, DamagedRow, unreadable_record
from penstock.stores.postgres.engine import Row, Value
from penstock.stores.postgres.hints import TIERS, Hints
from penstock.stores.postgres.lanes import Lane, Served, serve
from penstock.stores.postgres.reads import PostgresReads
from penstock.stores.postgres.records import claimed_of
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.turn import Turn

_HEAD = 4
_PLACE = -1
_FIRST_DEADLINE = """
SELECT deadline FROM penstock.job WHERE queue = $1 AND deadline >= $2::bigint ORDER BY deadline LIMIT 1
"""
_ACTIVE = """
SELECT count(*)
FROM (SELECT 1 FROM penstock.job WHERE queue = $1 AND deadline IS NOT NULL LIMIT $2::bigint) AS job
"""


class Order(msgspec.Struct, frozen=True):
    """What a claim asks for."""

    worker: str
    limit: int
    lease_ms: int
    floor_us: int
    limits: ClaimLimits


class PostgresClaims(PostgresReads):
    """Promoting and claiming."""

    @answers_absent
    @renumbers
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        """Make due jobs claimable."""
        number = await self._there(queue)
        moved = 0 if number in self._keyed else len(await self._move(Move.PROMOTE, number, limit))
        # Where none was moved, keys may have come to take turns: then the queue's row has to be held.
        if not moved and await self._has_keys(queue, number):
            async with self._turn(number) as turn:
                moved = await self._promote_in(turn, limit)
        if moved:
            self._ring_ready(queue)
        return moved

    async def _promote_in(self, turn: Turn, limit: int) -> int:
        keys = [key for (key,) in await turn.move(Move.PROMOTE, limit)]
        turn.touch(Move.PROMOTE, keys)
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
        stand_ms: int = 0,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        """Lease jobs, and name leases that ran out. What is due is promoted before, only if there is any."""
        number = await self._there(queue)
        hints = self._hints.setdefault(number, Hints())
        order = Order(worker, limit, lease_ms, self._projected.floor_us(floor_us), limits)
        claims = None
        while claims is None:
            # Each finds out where others have made it the other kind of queue.
            if number in self._limited:
                claims = await self._claim_limited(queue, number, hints, order)
            else:
                claims = await self._claim_plain(queue, number, hints, order)
        self._projected.told(claims.now_us, order.floor_us)
        return claims

    async def _claim_plain(self, queue: QueueRef, number: int, hints: Hints, order: Order) -> Claims | None:
        """Without a look at the whole queue; None where that is needed."""
        rows = await self._lease(number, hints, order)
        if rows and (due := rows[0][1]) is not None and due * 1000 <= rows[0][0]:
            at_us = rows[0][0]
            await self._move(Move.PROMOTE, number, order.limits.promote_limit, at_us=at_us)
            rows = await self._lease(number, hints, order, at_us=at_us)
        if not rows:
            self._limited.add(number)
            return None
        now_us, due, is_late, open_at = rows[0][:_HEAD]
        now = now_us // 1000
        jobs, is_more = (
            await self._claimed(queue, number, rows) if rows[0][_HEAD] is not None else ([], False)
        )
        deadline: int | None = now + order.lease_ms
        is_full = bool(jobs) and len(rows) == order.limit
        if not (jobs and hints.wants_peek(max(row[_PLACE] for row in rows))):
            deadline = deadline if is_full else await self._first_deadline(number, hints)
        elif is_full:
            await self._peek(number, hints)
        else:
            # Side by side: what was claimed waits for both.
            deadline, _ = await asyncio.gather(self._first_deadline(number, hints), self._peek(number, hints))
        expired = await self.expired(queue, order.limits.recover_limit) if is_late else []
        coming = [at for at in (due, deadline, open_at) if at is not None]
        wait = max(0, min(coming) - now) if coming else None
        return Claims(jobs, expired, wait, is_more, now_us=now_us)

    async def _claim_limited(self, queue: QueueRef, number: int, hints: Hints, order: Order) -> Claims | None:
        """While holding the queue's row: by its limits, and by turns; None where it has become plain."""
        deadline_from, due_from = hints.times()
        async with self._turn(number, due_from=due_from) as turn:
            if turn.is_plain:
                return None
            self._saw(turn.now_us)
            if turn.due_at is not None and turn.due_at <= turn.now:
                await self._promote_in(turn, order.limits.promote_limit)
                await turn.refresh()
            if turn.declared.key_rate is not None:
                await turn.share("goes_on", turn.now_us, turn.key_params[-1])
            allowed = min(order.limit, await self._allowance(turn))
            rows = []
            if allowed > 0:
                claim = self._claim_turns if turn.declared.mode.has_keys else self._claim_line
                rows = await claim(turn, hints, allowed, order)
            [(due, deadline, held_until, is_waiting, open_at, is_late)] = await turn.share(
                "coming", turn.now, deadline_from, due_from, order.lease_ms
            )
        hints.saw(turn.now, due, is_late=is_late)
        if rows and not turn.declared.mode.has_keys and hints.wants_peek(max(row[_PLACE] for row in rows)):
            await self._peek(number, hints)
        expired = await self.expired(queue, order.limits.recover_limit) if is_late else []
        coming = [due, deadline, held_until, open_at, _opens_at(turn) if is_waiting else None]
        wait = min((at for at in coming if at is not None), default=None)
        jobs, is_more = await self._claimed(queue, number, rows)
        wait_ms = None if wait is None else max(0, wait - turn.now)
        return Claims(jobs, expired, wait_ms, is_more, now_us=turn.now_us)

    async def _claimed(self, queue: QueueRef, number: int, rows: list[Row]) -> tuple[list[Claimed], bool]:
        """The jobs that were leased, and whether some cannot be read and were set aside instead."""
        try:
            return [claimed_of(row[_HEAD:]) for row in rows], False
        except DAMAGED:
            pass
        jobs: list[Claimed] = []
        damages: list[DamagedRow] = []
        for row in rows:
            try:
                jobs.append(claimed_of(row[_HEAD:]))
            except DAMAGED as error:
                damages.append((row[_HEAD], unreadable_record(error)))
        await self._set_aside(queue, number, damages)
        return jobs, True

    async def _allowance(self, turn: Turn) -> int:
        """How many may be claimed now by the queue's own limits."""
        declared, allowed = turn.declared, MAX_COUNT
        if declared.max_active is not None:
            [(active,)] = await self._ask(_ACTIVE, turn.number, declared.max_active, on=turn.connection)
            allowed = declared.max_active - active
        if declared.rate is not None:
            allowed = min(allowed, declared.rate.tokens(turn.arrival_us, turn.now_us))
        return allowed

    async def _claim_line(self, turn: Turn, hints: Hints, limit: int, order: Order) -> list[Row]:
        """In the order of the line, with a token of the queue's rate for each."""
        given: tuple[Value, ...] = (
            limit,
            order.lease_ms,
            order.worker,
            *hints.spans(),
            0,
            turn.now,
            True,
            [],
            order.floor_us,
        )
        rows = await turn.move(Move.CLAIM, *given)
        rows = [row for row in rows if row[_HEAD] is not None]
        if turn.declared.rate is not None:
            await self._use(turn, len(rows), Served([], []))
        return rows

    async def _claim_turns(self, turn: Turn, _: Hints, limit: int, order: Order) -> list[Row]:
        """Key by key as their turns come."""
        found = await turn.share("lanes", limit, *turn.key_params)
        if not found:
            return []
        lanes, numbered = [Lane(*row[1:]) for row in found], found[0][0]
        served = serve(lanes, limit, numbered=numbered, rate=turn.declared.key_rate, now_us=turn.now_us)
        looks: tuple[Value, ...] = ([], [], [], 0, turn.now, True, served.order)
        rows = await turn.move(Move.CLAIM, limit, order.lease_ms, order.worker, *looks, order.floor_us)
        rows = [row for row in rows if row[_HEAD] is not None]
        # None where the queue is paused: nobody's turn is used then.
        if rows:
            await self._use(turn, len(rows), served)
        return rows

    async def _use(self, turn: Turn, taken: int, served: Served) -> None:
        """Use up turns and tokens."""
        rate, key_rate = turn.declared.rate, turn.declared.key_rate
        if rate is not None:
            turn.arrival_us = rate.after(turn.arrival_us, turn.now_us, taken)
        await turn.share(
            "served",
            turn.arrival_us,
            served.virtual,
            served.numbered,
            [lane.key for lane in served.lanes],
            [lane.turn for lane in served.lanes],
            [lane.number for lane in served.lanes],
            [lane.held_until for lane in served.lanes],
            [None if key_rate is None else lane.arrival_us for lane in served.lanes],
            [lane.is_ready for lane in served.lanes],
        )

    async def _lease(self, number: int, hints: Hints, order: Order, *, at_us: int | None = None) -> list[Row]:
        """One statement; with a time it leases although some are due: it is that of their promotion."""
        rows = await self._move(
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
            self._saw(now_us)
            hints.saw(now_us // 1000, due, is_late=is_late)
        return rows

    async def _first_deadline(self, number: int, hints: Hints) -> int | None:
        """When the next lease runs out; asked only by who did not get all he wanted, and may wait."""
        rows = await self._ask(_FIRST_DEADLINE, number, hints.times()[0])
        return rows[0][0] if rows else None

    async def _peek(self, number: int, hints: Hints) -> None:
        newest = hints.newest
        floors = [hints.floors[tier] for tier in TIERS]
        [(xmin, xmax, firsts)] = await self._share("peek", number, list(TIERS), floors)
        hints.peeked(newest, xmin, xmax, firsts)


def _opens_at(turn: Turn) -> int | None:
    """When the queue's rate lets the next job go; None when it does now."""
    rate = turn.declared.rate
    if rate is None or rate.tokens(turn.arrival_us, turn.now_us):
        return None
    return -(-rate.opens_us(turn.arrival_us) // 1000)
