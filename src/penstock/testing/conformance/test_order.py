"""Which job is claimed first."""

import asyncio

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Expire, Release, Retry
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, claim_one, enqueue, new_job, settle
from penstock.testing.conformance.parts import Part, needs


async def test_jobs_of_one_tier_are_claimed_in_the_order_they_came(store: Store, queue: QueueRef) -> None:
    """Within a batch and across batches, whatever their ids."""
    first = await enqueue(store, queue, [new_job(name) for name in ("c", "a", "b")])
    second = await enqueue(store, queue, [new_job(name) for name in ("z", "0", "y")])
    claimed = [(await claim_one(store, queue)).id for _ in range(6)]

    assert claimed == first + second


async def test_higher_tiers_are_claimed_first(store: Store, queue: QueueRef) -> None:
    """Strictly, over all ten of them, and in order within each."""
    jobs = [
        new_job(f"p{tier}-{n}", priority=tier) for n in range(2) for tier in (3, 9, 0, 7, 1, 5, 8, 2, 6, 4)
    ]
    await store.moves.enqueue(queue, jobs)
    claimed = [job.id for job in await claim(store, queue)]

    assert claimed == [f"p{tier}-{n}" for tier in range(9, -1, -1) for n in range(2)]


async def test_a_late_job_of_a_higher_tier_overtakes(store: Store, queue: QueueRef) -> None:
    """However long the others have waited."""
    await enqueue(store, queue, [new_job("low-1", priority=2), new_job("low-2", priority=2)])
    first = await claim_one(store, queue)
    await enqueue(store, queue, [new_job("high", priority=7)])
    rest = await claim(store, queue)

    assert [first.id, *(job.id for job in rest)] == ["low-1", "high", "low-2"]


async def test_released_jobs_go_to_the_front_the_last_one_first(store: Store, queue: QueueRef) -> None:
    """Before all that waits in their tier."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c", "d")])
    held = {job.id: job for job in await claim(store, queue, 3)}
    for name in ("b", "a"):
        await settle(store, queue, Release(name, held[name].token))
    await store.moves.settle(queue, [Release("c", held["c"].token)])
    claimed = [job.id for job in await claim(store, queue)]

    assert claimed == ["c", "a", "b", "d"]


async def test_releases_of_one_call_go_to_the_front_in_turn(store: Store, queue: QueueRef) -> None:
    """The call puts them there one after the other, so its last one is claimed first."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c")])
    held = await claim(store, queue, 2)
    await store.moves.settle(queue, [Release(job.id, job.token) for job in held])
    claimed = [job.id for job in await claim(store, queue)]

    assert claimed == ["b", "a", "c"]


async def test_a_release_does_not_leave_its_tier(store: Store, queue: QueueRef) -> None:
    """The front is the front of the tier."""
    await enqueue(store, queue, [new_job("low", priority=1), new_job("high", priority=8)])
    held = {job.id: job for job in await claim(store, queue)}
    await settle(store, queue, Release("high", held["high"].token))
    await settle(store, queue, Release("low", held["low"].token))
    claimed = [job.id for job in await claim(store, queue)]

    assert claimed == ["high", "low"]


async def test_an_expiry_to_pending_goes_to_the_front(store: Store, queue: QueueRef) -> None:
    """It is the job that came first."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    held = await claim_one(store, queue)
    await store.clock.advance_clock(LEASE_MS)
    await store.moves.expire(queue, [Expire(held.id, held.token, State.PENDING, FAULT)])
    claimed = [job.id for job in await claim(store, queue)]

    assert claimed == ["a", "b"]


async def test_due_jobs_line_up_by_time_then_by_arrival(store: Store, queue: QueueRef) -> None:
    """At the back of what waits already."""
    now = await store.clock.now()
    times = {"a": 9_000, "b": 3_000, "c": 6_000, "d": 3_000, "e": 9_000}
    await enqueue(store, queue, [new_job(name, run_at=now + ms) for name, ms in times.items()])
    await enqueue(store, queue, [new_job("waits")])
    await store.clock.advance_clock(10_000)
    moved = await store.moves.promote(queue)
    claimed = [job.id for job in await claim(store, queue)]

    assert moved == 5
    assert claimed == ["waits", "b", "d", "c", "a", "e"]


async def test_promote_takes_the_most_overdue_up_to_its_limit(store: Store, queue: QueueRef) -> None:
    """And says how many it took."""
    await enqueue(store, queue, [new_job(f"in-{ms}", delay_ms=ms) for ms in (5_000, 1_000, 3_000)])
    await store.clock.advance_clock(6_000)
    moved = [
        await store.moves.promote(queue, 2),
        await store.moves.promote(queue, 2),
        await store.moves.promote(queue, 2),
    ]
    claimed = [job.id for job in await claim(store, queue)]

    assert moved == [2, 1, 0]
    assert claimed == ["in-1000", "in-3000", "in-5000"]


async def test_a_claim_promotes_what_is_due(store: Store, queue: QueueRef) -> None:
    """So that no due job waits for someone else's tick."""
    await enqueue(store, queue, [new_job("later", delay_ms=5_000), new_job("much-later", delay_ms=50_000)])
    early = await claim(store, queue)
    await store.clock.advance_clock(5_000)
    claimed = await claim(store, queue)

    assert early == []
    assert [job.id for job in claimed] == ["later"]


async def test_a_time_in_the_past_is_now(store: Store, queue: QueueRef) -> None:
    """Such a job is pending at once, in the order of arrival."""
    now = await store.clock.now()
    jobs = [new_job("a"), new_job("b", run_at=now - 60_000), new_job("c", run_at=0)]
    answers = await store.moves.enqueue(queue, jobs)
    claimed = [job.id for job in await claim(store, queue)]

    assert all(answer.state is State.PENDING for answer in answers)
    assert claimed == ["a", "b", "c"]


async def test_retries_go_to_the_back(store: Store, queue: QueueRef) -> None:
    """A job that failed lets the others pass."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b")])
    held = await claim_one(store, queue)
    await settle(store, queue, Retry(held.id, held.token, 1_000, FAULT))
    await store.clock.advance_clock(1_000)
    claimed = [job.id for job in await claim(store, queue)]

    assert claimed == ["b", "a"]


async def test_ahead_counts_the_jobs_that_will_be_claimed_before(store: Store, queue: QueueRef) -> None:
    """Over tiers, fronts and arrival."""
    await enqueue(store, queue, [new_job("a"), new_job("b"), new_job("high", priority=9), new_job("c")])
    await enqueue(store, queue, [new_job("later", delay_ms=60_000)])
    ahead = {name: await store.reads.ahead(queue, name) for name in ("high", "a", "b", "c")}
    high, a = await claim(store, queue, 2)
    await settle(store, queue, Release(a.id, a.token))

    assert ahead == {"high": 0, "a": 1, "b": 2, "c": 3}
    assert high.id == "high"
    assert [await store.reads.ahead(queue, name) for name in ("a", "b", "c")] == [0, 1, 2]


async def test_how_long_the_oldest_job_waits_is_known(store: Store, queue: QueueRef) -> None:
    """Over tiers; what is delayed, runs or has ended does not wait for a worker."""
    before = await store.reads.oldest(queue)
    await enqueue(store, queue, [new_job("a", priority=2), new_job("b", priority=2)])
    await store.clock.advance_clock(1_000)
    await enqueue(store, queue, [new_job("high", priority=9), new_job("later", delay_ms=60_000)])
    [first] = await store.reads.get(queue, ["a"])
    found = await store.reads.oldest(queue)
    await store.moves.cancel(queue, ["a"])
    behind = await store.reads.oldest(queue)
    await claim(store, queue, 2)

    assert before is None
    assert first is not None
    assert found == behind == first.enqueued_at
    assert await store.reads.oldest(queue) is None


@needs(Part.LIMITS)
async def test_how_long_the_oldest_job_waits_is_known_where_keys_take_turns(
    store: Store, queue: QueueRef
) -> None:
    """Over all keys."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=1))
    await enqueue(store, queue, [new_job("a", key="x")])
    await store.clock.advance_clock(1_000)
    await enqueue(store, queue, [new_job("b", key="y")])
    first, second = [job.enqueued_at for job in await store.reads.get(queue, ["a", "b"]) if job is not None]
    found = await store.reads.oldest(queue)
    held = await claim(store, queue, 1)

    assert found == first
    assert [job.id for job in held] == ["a"]
    assert await store.reads.oldest(queue) == second


async def test_calls_that_do_not_wait_for_each_other_take_effect_in_their_order(
    store: Store, queue: QueueRef
) -> None:
    """Where a store says so: batches that are sent ahead arrive as one."""
    if not store.keeps_call_order:
        return
    await store.queues.open_queue(queue)
    names = [f"{n:03}" for n in range(400)]
    calls = [
        enqueue(store, queue, [new_job(name) for name in names[at : at + 10]]) for at in range(0, 400, 10)
    ]
    await asyncio.gather(*calls)

    assert [job.id for job in await claim(store, queue, 400)] == names
