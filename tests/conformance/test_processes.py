"""Processes on one store at once."""

import asyncio

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.testing.conformance.arrange import enqueue, new_job
from penstock.testing.conformance.test_races import JOBS
from tests.conformance import process
from tests.conformance.having import shared
from tests.conformance.stores import Kind, Place, opened
from tests.kit.waiting import PATIENCE


@shared()
async def test_processes_share_the_jobs_without_overlap(kind: Kind, where: Place, queue: QueueRef) -> None:
    """On the stores that processes can share."""
    address = kind.address(where)
    async with opened(kind.connect(address)) as store:
        await enqueue(store, queue, [new_job() for _ in range(JOBS)])
        with (
            process.started(kind, address, queue, "drain", "3") as one,
            process.started(kind, address, queue, "drain", "2") as two,
        ):
            said = await asyncio.gather(
                *(asyncio.to_thread(each.communicate, timeout=PATIENCE) for each in (one, two))
            )
        lines = [line for out, _ in said for line in out.splitlines()]

        assert (one.returncode, two.returncode) == (0, 0)
        assert len(lines) == len(set(lines)) == JOBS
        assert (await store.reads.counts(queue))[State.COMPLETED] == JOBS
        assert await store.health.check(queue) == []
