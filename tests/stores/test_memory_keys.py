"""A record that goes after its idempotency key has run out."""

from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.outcomes import Applied, Enqueued
from penstock.core.states import State
from penstock.stores.memory import MemoryStore

QUEUE = QueueRef("default", "letters")


def letter(job: str) -> NewJob:
    options = Options(retention_ms=10_000, key_retention_ms=1_000)
    return NewJob(id=job, nonce=job, task="send", payload=b"{}", idempotency_key="hello", options=options)


async def test_a_record_whose_key_was_forgotten_can_be_deleted() -> None:
    store = MemoryStore()
    await store.enqueue(QUEUE, [letter("a")])
    await store.cancel(QUEUE, ["a"])
    await store.turn(2_000)
    await store.prune(QUEUE)

    assert await store.delete(QUEUE, ["a"]) == [Applied(State.CANCELLED)]


async def test_a_record_that_goes_leaves_the_key_to_the_job_that_has_it_now() -> None:
    store = MemoryStore()
    await store.enqueue(QUEUE, [letter("a")])
    await store.cancel(QUEUE, ["a"])
    await store.turn(2_000)
    await store.enqueue(QUEUE, [letter("b")])
    await store.delete(QUEUE, ["b"])
    await store.delete(QUEUE, ["a"])

    assert await store.enqueue(QUEUE, [letter("c")]) == [Enqueued("b", False, None)]
