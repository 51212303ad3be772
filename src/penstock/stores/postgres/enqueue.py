"""Taking jobs in: by one statement, or in a transaction where limits and kinds decide on admission."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.core.errors import PoolTimeoutError, StoreUnavailableError
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import MAX_COUNT, Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.postgres.admission import Admission, Existing, Replacement, existing_columns
from penstock.stores.postgres.backend import Backend, rounds
from penstock.stores.postgres.codec import made_of, new_columns, spawn_columns
from penstock.stores.postgres.engine import Value, bound
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import headers_text, stored
from penstock.stores.values import Spawn, Topic

_TRIES: Final = 20
# One count per state, each by an index of its own, and no further than $2.
_WAITING: Final = """
SELECT count(*)
FROM (
    (SELECT 1 FROM penstock.job WHERE queue = $1 AND state = 'pending' LIMIT $2::bigint)
    UNION ALL
    (SELECT 1 FROM penstock.job WHERE queue = $1 AND visible_at IS NOT NULL LIMIT $2::bigint)
    UNION ALL
    (SELECT 1 FROM penstock.job WHERE queue = $1 AND state = 'blocked' LIMIT $2::bigint)
) AS waiting
"""


class Overtaken(Exception):
    """Others changed what the admission was decided by: the transaction is taken back, and tried again."""


class PostgresEnqueue:
    """Taking jobs in."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @renumbers
    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in, in order; calls on one queue one after the other, as they came."""
        # Only global queues are plain; the statement for plain queues takes nothing in where one is not.
        is_plain = mode in (None, Mode.GLOBAL) and not spawns
        is_plain = is_plain and not any(new.unique or new.awaits for new in jobs)
        batches = [[jobs[index] for index in indexes] for indexes in rounds([new.id for new in jobs])]
        # While the call before is under way.
        columns = [[bound(each) for each in new_columns(batch)] for batch in batches] if is_plain else []
        async with self._in_call_order(queue):
            number = await self._backend.open_number(queue)
            if number in self._backend.limited or not is_plain:
                out = await self._decide(number, jobs, spawns, mode)
            else:
                out = []
                at_us = await self._backend.now_us() if len(batches) > 1 else None
                for batch, values in zip(batches, columns, strict=True):
                    out += await self._take_in(number, batch, values, at_us, mode)
        self._backend.notifier.notify(queue, {Topic.READY})
        return out

    @asynccontextmanager
    async def _in_call_order(self, queue: QueueRef) -> AsyncIterator[None]:
        """One call's time, after those that came before it; PoolTimeoutError where they take too long."""
        backend = self._backend
        lock = backend.enqueue_locks.setdefault(queue, asyncio.Lock())
        limit = backend.address.pool.pool_timeout
        if lock.locked():
            try:
                async with asyncio.timeout(limit):
                    await lock.acquire()
            except TimeoutError:
                raise PoolTimeoutError(
                    f"enqueues before this one on {queue} at {self._backend.address.shown} took {limit:g} s; "
                    "nothing was sent"
                ) from None
        else:
            await lock.acquire()
        try:
            yield
        finally:
            lock.release()

    async def _take_in(
        self,
        number: int,
        jobs: list[NewJob],
        columns: Sequence[Value],
        at_us: int | None,
        mode: Mode | None,
    ) -> list[Enqueued | Refused]:
        """In one statement; what it leaves out is there already, or the queue is not plain any more."""
        made = made_of(jobs, await self._backend.run_move(Move.ENQUEUE, number, *columns, at_us=at_us))
        rest = [new for new in jobs if new.id not in made]
        known = await self._existing(number, rest, at_us, mode) if rest else {}
        return [Enqueued(new.id, True, made[new.id]) if new.id in made else known[new.id] for new in jobs]

    async def _existing(
        self, number: int, jobs: list[NewJob], at_us: int | None, mode: Mode | None
    ) -> dict[str, Enqueued | Refused]:
        """The answers for jobs that were not taken in: the jobs that are there instead of them."""
        now = (await self._backend.now_us() if at_us is None else at_us) // 1000
        rows = await self._backend.run_shared("existing_jobs", number, now, *existing_columns(jobs))
        admission = Admission(now, space=0, has_keys=False, has_spawns=False)
        known = [admission.find(new, Existing(*row)) for new, row in zip(jobs, rows, strict=True)]
        out = {new.id: answer for new, answer in zip(jobs, known, strict=True) if answer is not None}
        rest = [new for new in jobs if new.id not in out]
        if rest:
            answers = await self._decide(number, rest, mode=mode)
            out |= {new.id: answer for new, answer in zip(rest, answers, strict=True)}
        return out

    async def _decide(
        self,
        number: int,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """In a transaction; it holds the queue's row where others that come meanwhile would matter."""
        for _ in range(_TRIES):
            holds = number in self._backend.limited or any(new.unique for new in jobs)
            try:
                async with self._backend.queue_transaction(number, holds=holds) as transaction:
                    return await self.admit(transaction, jobs, spawns, mode)
            except Overtaken:
                continue
        raise StoreUnavailableError(f"{self._backend.address.shown}: others kept taking the same jobs in")

    async def admit(
        self,
        transaction: QueueTransaction,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in as part of a transaction; a job with spawns stands for them where space is short."""
        declared = transaction.declared
        if not (transaction.holds or transaction.is_plain):
            raise Overtaken
        space = await self.space(transaction, len(jobs))
        rows = await transaction.run_shared("existing_jobs", transaction.now, *existing_columns(jobs))
        admission = Admission(
            transaction.now,
            space=space,
            has_keys=declared.mode.has_keys,
            has_spawns=bool(spawns),
            is_mistaken=mode not in (None, declared.mode),
        )
        out = [admission.decide(new, Existing(*row)) for new, row in zip(jobs, rows, strict=True)]
        for step in admission.steps:
            await self._write(transaction, step)
        kinds = [
            (stored(kind), new.id, transaction.now + new.unique.window_ms)
            for kind, new in sorted(admission.kinds.items())
            if new.unique is not None
        ]
        if kinds:
            await transaction.run_shared("put_kinds", transaction.now, *_columns(kinds))
        if spawns and admission.steps:
            await transaction.run_shared("relay_jobs", *spawn_columns(spawns))
        return out

    async def space(self, transaction: QueueTransaction, wanted: int) -> int:
        """How many more jobs may wait; where there is room for all that want to, maybe not all of it."""
        longest = transaction.declared.max_length
        if longest is None:
            return MAX_COUNT
        [(at_most,)] = await transaction.run_shared("queue_length_bound", longest)
        if at_most is not None and at_most + wanted <= longest:
            return int(longest - at_most)
        [(waiting,)] = await self._backend.query(
            _WAITING, transaction.number, longest, on=transaction.connection
        )
        return int(longest - waiting)

    async def _write(self, transaction: QueueTransaction, step: Sequence[NewJob | Replacement]) -> None:
        """Make jobs, with the children they wait for, or put newer work in the place of older."""
        new = [each for each in step if isinstance(each, NewJob)]
        older = [each for each in step if isinstance(each, Replacement)]
        if new:
            made = len(made_of(new, await transaction.run_move(Move.ENQUEUE, *new_columns(new))))
            transaction.touch(Move.ENQUEUE, [stored(each.key) for each in new])
            children = [(each.id, ref.queue, ref.id) for each in new for ref in each.awaits]
            if children:
                await transaction.run_shared("adopt", *_columns(children))
        else:
            items = [
                (each.id, each.payload.decode(), each.visible_at, each.state, headers_text(each.headers))
                for each in older
            ]
            rows = await transaction.run_move(Move.REPLACE, *_columns(items))
            transaction.touch(Move.REPLACE, [key for _, key in rows])
            made = len(rows)
        if made < len(step):
            raise Overtaken


def _columns(items: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*items, strict=True)]
