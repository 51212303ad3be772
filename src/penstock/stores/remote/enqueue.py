"""Enqueueing through the service."""

from collections.abc import Sequence

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.remote.backend import Backend
from penstock.stores.values import Spawn


async def enqueue(
    backend: Backend, queue: QueueRef, jobs: Sequence[NewJob], spawns: Sequence[Spawn], mode: Mode | None
) -> list[Enqueued | Refused]:
    """Take jobs in. Many large jobs travel as several calls, unless spawns have to come with all of them."""
    if spawns:
        answers: list[Enqueued | Refused] = await backend.call(
            "enqueue", queue, jobs=jobs, spawns=spawns, mode=mode
        )
        return answers
    return await backend.call_in_parts("enqueue", queue, "jobs", jobs, mode=mode)
