"""How jobs get into the database: ids and idempotency keys; kinds and room are still to come."""

from collections.abc import Sequence

from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.postgres.later import refuse
from penstock.stores.postgres.records import new_columns, stored
from penstock.stores.postgres.room import Room, rounds
from penstock.stores.protocol import Spawn, Topic


class PostgresEnqueue(Room):
    """Taking jobs in."""

    async def enqueue(
        self, queue: QueueRef, jobs: Sequence[NewJob], spawns: Sequence[Spawn] = ()
    ) -> list[Enqueued | Refused]:
        """Take jobs in, in order."""
        _check_plain(jobs, spawns)
        number = await self._number(queue)
        out: list[Enqueued | Refused] = []
        batches = list(rounds([new.id for new in jobs]))
        at_us = await self._now_us() if len(batches) > 1 else None
        for indexes in batches:
            out += await self._take_in(number, [jobs[index] for index in indexes], at_us)
        self._wakeups.ring(queue, {Topic.READY})
        return out

    async def _take_in(self, number: int, jobs: list[NewJob], at_us: int | None) -> list[Enqueued | Refused]:
        made: dict[str, str] = dict(await self._move(Move.ENQUEUE, number, *new_columns(jobs), at_us=at_us))
        rest = [new for new in jobs if new.id not in made]
        known = await self._stand_ins(number, rest) if rest else {}
        return [
            Enqueued(new.id, True, State(made[new.id])) if new.id in made else known[new.id] for new in jobs
        ]

    async def _stand_ins(self, number: int, jobs: list[NewJob]) -> dict[str, Enqueued | Refused]:
        """What stands instead of jobs that were not taken in."""
        rows = await self._share(
            "known",
            number,
            [new.id for new in jobs],
            [new.nonce for new in jobs],
            [stored(new.idempotency_key) for new in jobs],
            [None if new.idempotency_key is None else new.digest for new in jobs],
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


def _check_plain(jobs: Sequence[NewJob], spawns: Sequence[Spawn]) -> None:
    if spawns or any(new.awaits or new.parents for new in jobs):
        refuse("flows")
    if any(new.unique is not None for new in jobs):
        refuse("unique jobs")
