"""How jobs get into the database: ids, idempotency keys, children; kinds and room are still to come."""

from collections.abc import Sequence

from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.postgres.engine import Connection
from penstock.stores.postgres.later import refuse
from penstock.stores.postgres.records import new_columns, spawn_columns, stored
from penstock.stores.postgres.room import Room, rounds
from penstock.stores.protocol import Spawn, Topic


class PostgresEnqueue(Room):
    """Taking jobs in."""

    async def enqueue(
        self, queue: QueueRef, jobs: Sequence[NewJob], spawns: Sequence[Spawn] = ()
    ) -> list[Enqueued | Refused]:
        """Take jobs in, in order."""
        _check_plain(jobs)
        number = await self._number(queue)
        if spawns or any(new.awaits for new in jobs):
            async with self._engine.transaction() as connection:
                out, made = await self._take_in(number, jobs, connection)
                if spawns and made:
                    await self._share("relay", number, *spawn_columns(spawns), on=connection)
        else:
            out, _ = await self._take_in(number, jobs)
        self._wakeups.ring(queue, {Topic.READY})
        return out

    async def _take_in(
        self, number: int, jobs: Sequence[NewJob], on: Connection | None = None
    ) -> tuple[list[Enqueued | Refused], int]:
        """Take jobs in, and how many were new. Those that wait for others come on a connection."""
        batches = list(rounds([new.id for new in jobs]))
        at_us = await self._now_us(on) if len(batches) > 1 else None
        out: list[Enqueued | Refused] = []
        many = 0
        for indexes in batches:
            batch = [jobs[index] for index in indexes]
            made = await self._move(Move.ENQUEUE, number, *new_columns(batch), at_us=at_us, on=on)
            out += await self._answers(number, batch, dict(made), on)
            many += len(made)
            new_ids = {job for job, _ in made}
            children = [
                (new.id, ref.queue, ref.id) for new in batch if new.id in new_ids for ref in new.awaits
            ]
            if children:
                columns = [list(column) for column in zip(*children, strict=True)]
                await self._share("adopt", number, *columns, on=on)
        return out, many

    async def _answers(
        self, number: int, jobs: list[NewJob], made: dict[str, str], on: Connection | None
    ) -> list[Enqueued | Refused]:
        rest = [new for new in jobs if new.id not in made]
        known = await self._stand_ins(number, rest, on) if rest else {}
        return [
            Enqueued(new.id, True, State(made[new.id])) if new.id in made else known[new.id] for new in jobs
        ]

    async def _stand_ins(
        self, number: int, jobs: list[NewJob], on: Connection | None
    ) -> dict[str, Enqueued | Refused]:
        """What stands instead of jobs that were not taken in."""
        rows = await self._share(
            "known",
            number,
            [new.id for new in jobs],
            [new.nonce for new in jobs],
            [stored(new.idempotency_key) for new in jobs],
            [None if new.idempotency_key is None else new.digest for new in jobs],
            on=on,
        )
        return {new.id: _stand_in(new.id, *row) for new, row in zip(jobs, rows, strict=True)}


def _stand_in(
    job: str,
    same_nonce: bool | None,
    state: str | None,
    holder: str | None,
    holder_state: str | None,
    same_digest: bool | None,
) -> Enqueued | Refused:
    if same_nonce is not None:
        now = State(state or "")
        return Enqueued(job, True, now) if same_nonce else Refused(Refusal.DUPLICATE, now)
    return Enqueued(
        holder or job, False, None if holder_state is None else State(holder_state), bool(same_digest)
    )


def _check_plain(jobs: Sequence[NewJob]) -> None:
    if any(new.unique is not None for new in jobs):
        refuse("unique jobs")
