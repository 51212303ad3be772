"""A claim is told whether another worker was the last to claim."""

from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.stores.redis import RedisStore
from tests.conformance.arrange import enqueue, new_job, settle

LEASE_MS = 30_000


async def test_a_claim_is_contended_after_one_of_another_worker(store: RedisStore, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job(f"job-{number}") for number in range(6)])
    found = []
    for worker in ["a", "a", "b", "a", "a", "b"]:
        claims = await store.claim(queue, worker=worker, limit=1, lease_ms=LEASE_MS)
        [job] = claims.jobs
        await settle(store, queue, Complete(job.id, job.token))
        found.append(claims.is_contended)

    assert found == [False, False, True, True, False, True]


async def test_a_claim_that_brings_nothing_is_no_contention(store: RedisStore, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("first")])
    await store.claim(queue, worker="a", limit=1, lease_ms=LEASE_MS)
    await store.claim(queue, worker="b", limit=1, lease_ms=LEASE_MS)
    await enqueue(store, queue, [new_job("second")])

    assert not (await store.claim(queue, worker="a", limit=1, lease_ms=LEASE_MS)).is_contended
