"""Bounded queues: an upper bound of how many jobs wait is found without counting them, and never too low."""

from random import Random

from penstock.core.flows import JobRef
from penstock.core.job import Claimed, QueueRef
from penstock.core.limits import Declaration
from penstock.core.moves import Complete, Release, Retry
from penstock.core.outcomes import Refusal, Refused
from penstock.core.states import WAITING
from penstock.stores.postgres import PostgresStore
from penstock.testing.conformance.arrange import FAULT, claim, enqueue, new_job, settle
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")
STEPS = 150


async def _at_most(store: PostgresStore, longest: int = 10_000) -> int:
    [(bound,)] = await store.backend.run_shared(
        "queue_length_bound", await store.backend.open_number(QUEUE), longest
    )
    return int(bound)


async def _waiting(store: PostgresStore) -> int:
    counts = await store.reads.counts(QUEUE)
    return sum(counts[state] for state in WAITING)


async def test_a_line_without_gaps_is_told_as_it_is(url: str) -> None:
    store = PostgresStore(url)
    async with opened(store):
        empty = await _at_most(store)
        await enqueue(store, QUEUE, [new_job(priority=n % 10) for n in range(30)])

        assert (empty, await _at_most(store)) == (0, 30)


async def test_no_more_jobs_wait_than_the_bound_says(url: str) -> None:
    """Whatever was done to them: delayed, blocked, claimed, put to the front, tried again."""
    store, chance = PostgresStore(url), Random(7)
    held: list[Claimed] = []
    async with opened(store):
        for step in range(STEPS):
            match chance.randrange(6):
                case 0:
                    await enqueue(store, QUEUE, [new_job(priority=n) for n in chance.choices(range(10), k=3)])
                case 1:
                    await enqueue(
                        store, QUEUE, [new_job(delay_ms=60_000), new_job(awaits=[JobRef("o", "c")])]
                    )
                case 2:
                    held += await claim(store, QUEUE, 2)
                case 3 if held:
                    job = held.pop()
                    await settle(store, QUEUE, Release(job.id, job.token))
                case 4 if held:
                    job = held.pop()
                    await settle(store, QUEUE, Retry(job.id, job.token, 60_000, FAULT))
                case 5 if held:
                    job = held.pop()
                    await settle(store, QUEUE, Complete(job.id, job.token))
            waiting, bound = await _waiting(store), await _at_most(store)

            assert waiting <= bound, f"after step {step}"


async def test_a_queue_takes_in_all_it_has_room_for_though_its_numbers_have_gaps(url: str) -> None:
    """Where the quick answer is that it might be full, they are counted."""
    store = PostgresStore(url)
    async with opened(store):
        await store.queues.declare(QUEUE, Declaration(max_length=4))
        await enqueue(store, QUEUE, [new_job("first"), new_job("a"), new_job("b")])
        for job in await claim(store, QUEUE, 3):
            await settle(store, QUEUE, Release(job.id, job.token))
        for _ in range(5):
            [job] = await claim(store, QUEUE, 1)
            await settle(store, QUEUE, Retry(job.id, job.token, 0, FAULT))
        bound = await _at_most(store)
        one, two = await store.moves.enqueue(QUEUE, [new_job("c"), new_job("d")])

        assert bound > 4
        assert not isinstance(one, Refused)
        assert two == Refused(Refusal.FULL)
