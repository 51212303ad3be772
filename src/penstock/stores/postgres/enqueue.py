"""How jobs get into the database: in one statement, or past the door of a queue where more has to be seen."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.core.errors import PoolTimeoutError, StoreUnavailableError
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import MAX_COUNT, Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.postgres.door import Door, Fact, Replacement, known_columns
from penstock.stores.postgres.engine import Value, bound
from penstock.stores.postgres.records import made_of, new_columns, spawn_columns
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.room import Room, rounds
from penstock.stores.postgres.turn import Turn
from penstock.stores.rows import stored
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
    """Others changed what the door saw: the transaction is taken back, and the door asked again."""


class PostgresEnqueue(Room):
    """Taking jobs in."""

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
        async with self._line(queue):
            number = await self._number(queue)
            if number in self._limited or not is_plain:
                out = await self._pass_door(number, jobs, spawns, mode)
            else:
                out = []
                at_us = await self._now_us() if len(batches) > 1 else None
                for batch, values in zip(batches, columns, strict=True):
                    out += await self._take_in(number, batch, values, at_us, mode)
        self._wakeups.ring(queue, {Topic.READY})
        return out

    @asynccontextmanager
    async def _line(self, queue: QueueRef) -> AsyncIterator[None]:
        """One call's time, after those that came before it; PoolTimeoutError where they take too long."""
        line, limit = self._lines.setdefault(queue, asyncio.Lock()), self._address.numbers.pool_timeout
        if line.locked():
            try:
                async with asyncio.timeout(limit):
                    await line.acquire()
            except TimeoutError:
                raise PoolTimeoutError(
                    f"enqueues before this one on {queue} at {self._address.shown} took {limit:g} s; "
                    "nothing was sent"
                ) from None
        else:
            await line.acquire()
        try:
            yield
        finally:
            line.release()

    async def _take_in(
        self,
        number: int,
        jobs: list[NewJob],
        columns: Sequence[Value],
        at_us: int | None,
        mode: Mode | None,
    ) -> list[Enqueued | Refused]:
        """In one statement; what it leaves out is there already, or the queue is not plain any more."""
        made = made_of(jobs, await self._move(Move.ENQUEUE, number, *columns, at_us=at_us))
        rest = [new for new in jobs if new.id not in made]
        known = await self._stand_ins(number, rest, at_us, mode) if rest else {}
        return [Enqueued(new.id, True, made[new.id]) if new.id in made else known[new.id] for new in jobs]

    async def _stand_ins(
        self, number: int, jobs: list[NewJob], at_us: int | None, mode: Mode | None
    ) -> dict[str, Enqueued | Refused]:
        """What stands instead of jobs that were not taken in."""
        now = (await self._now_us() if at_us is None else at_us) // 1000
        rows = await self._share("known", number, now, *known_columns(jobs))
        door = Door(now, room=0, has_keys=False, at_door=False)
        known = [door.stand_in(new, Fact(*row)) for new, row in zip(jobs, rows, strict=True)]
        out = {new.id: answer for new, answer in zip(jobs, known, strict=True) if answer is not None}
        rest = [new for new in jobs if new.id not in out]
        if rest:
            answers = await self._pass_door(number, rest, mode=mode)
            out |= {new.id: answer for new, answer in zip(rest, answers, strict=True)}
        return out

    async def _pass_door(
        self,
        number: int,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """In a transaction; it holds the queue's row where others that come meanwhile would matter."""
        for _ in range(_TRIES):
            holds = number in self._limited or any(new.unique for new in jobs)
            try:
                async with self._turn(number, holds=holds) as turn:
                    return await self._let_in(turn, jobs, spawns, mode)
            except Overtaken:
                continue
        raise StoreUnavailableError(f"{self._address.shown}: others kept taking the same jobs in")

    async def _let_in(
        self,
        turn: Turn,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in as part of a turn; those that come with spawns stand for them where room is short."""
        declared = turn.declared
        if not (turn.holds or turn.is_plain):
            raise Overtaken
        room = await self._space(turn, len(jobs))
        rows = await turn.share("known", turn.now, *known_columns(jobs))
        door = Door(
            turn.now,
            room=room,
            has_keys=declared.mode.has_keys,
            at_door=bool(spawns),
            is_mistaken=mode not in (None, declared.mode),
        )
        out = [door.ask(new, Fact(*row)) for new, row in zip(jobs, rows, strict=True)]
        for step in door.steps:
            await self._write(turn, step)
        kinds = [
            (stored(kind), new.id, turn.now + new.unique.window_ms)
            for kind, new in sorted(door.kinds.items())
            if new.unique is not None
        ]
        if kinds:
            await turn.share("kinds", turn.now, *_columns(kinds))
        if spawns and door.steps:
            await turn.share("relay", *spawn_columns(spawns))
        return out

    async def _space(self, turn: Turn, wanted: int) -> int:
        """How many more jobs may wait; where there is room for all that want to, maybe not all of it."""
        longest = turn.declared.max_length
        if longest is None:
            return MAX_COUNT
        [(at_most,)] = await turn.share("at_most", longest)
        if at_most is not None and at_most + wanted <= longest:
            return int(longest - at_most)
        [(waiting,)] = await self._ask(_WAITING, turn.number, longest, on=turn.connection)
        return int(longest - waiting)

    async def _write(self, turn: Turn, step: Sequence[NewJob | Replacement]) -> None:
        """Make jobs, with the children they wait for, or put newer work in the place of older."""
        new = [each for each in step if isinstance(each, NewJob)]
        older = [each for each in step if isinstance(each, Replacement)]
        if new:
            made = len(made_of(new, await turn.move(Move.ENQUEUE, *new_columns(new))))
            turn.touch(Move.ENQUEUE, [stored(each.key) for each in new])
            children = [(each.id, ref.queue, ref.id) for each in new for ref in each.awaits]
            if children:
                await turn.share("adopt", *_columns(children))
        else:
            items = [(each.id, each.payload.decode(), each.visible_at, each.state) for each in older]
            rows = await turn.move(Move.REPLACE, *_columns(items))
            turn.touch(Move.REPLACE, [key for _, key in rows])
            made = len(rows)
        if made < len(step):
            raise Overtaken


def _columns(items: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*items, strict=True)]
