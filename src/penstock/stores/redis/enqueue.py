"""Taking jobs in."""

from collections.abc import Sequence

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec import replies, requests
from penstock.stores.redis.codec.flows import pack_job
from penstock.stores.values import Spawn


class RedisEnqueue:
    """The move `enqueue`: one call of its script, however many jobs it is about."""

    def __init__(self, backend: Backend) -> None:
        self._run = backend.run

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        if not jobs:
            return []
        answers = await self._run(
            queue,
            Move.ENQUEUE,
            requests.pack(requests.short_arguments(jobs)),
            requests.pack([each.queue for each in spawns]),
            mode or "",
            *(new.payload for new in jobs),
            *(pack_job(each.job) for each in spawns),
        )
        return replies.enqueued(jobs, answers)
