"""Leases: their time, their fences, and what happens when they run out."""

from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Complete, Expire, Move, Release, Report, Retry
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Pause
from penstock.testing.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim,
    claim_one,
    enqueue,
    new_job,
    record_of,
    settle,
    states_of,
)


async def test_a_claim_brings_no_more_than_its_limit(store: Store, queue: QueueRef) -> None:
    """What is left stays pending."""
    await enqueue(store, queue, [new_job() for _ in range(5)])
    none = await claim(store, queue, 0)
    some = await claim(store, queue, 3)
    rest = await claim(store, queue, 3)
    after = await claim(store, queue, 3)

    assert [len(none), len(some), len(rest), len(after)] == [0, 3, 2, 0]
    assert len({job.token for job in some + rest}) == 5


async def test_a_claim_on_a_queue_that_does_not_exist_brings_nothing(store: Store, queue: QueueRef) -> None:
    """A worker may start before the first job is enqueued."""
    claims = await store.moves.claim(queue, worker="w", limit=10, lease_ms=LEASE_MS)

    assert (claims.jobs, claims.expired, claims.wait_ms) == ([], [], None)


async def test_a_lease_ends_after_the_time_asked_for(store: Store, queue: QueueRef) -> None:
    """By the store's clock."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    before = await store.clock.now()
    short = await claim_one(store, queue, 1_000)
    long = await claim_one(store, queue, 60_000)
    after = await store.clock.now()

    assert before + 1_000 <= short.deadline <= after + 1_000
    assert before + 60_000 <= long.deadline <= after + 60_000


async def test_fences_of_a_job_grow_with_every_delivery(store: Store, queue: QueueRef) -> None:
    """Each is the store's time in microseconds, or one more than the last."""
    await enqueue(store, queue, [new_job("a")])
    fences: list[int] = []
    for _ in range(20):
        before = await store.clock.now()
        held = await claim_one(store, queue)
        after = await store.clock.now()
        last = fences[-1] if fences else 0

        assert held.fence > last
        assert held.fence == last + 1 or before <= held.fence // 1000 <= after
        fences.append(held.fence)
        await settle(store, queue, Release("a", held.token))


async def test_a_fence_grows_even_when_the_clock_was_set_back(store: Store, queue: QueueRef) -> None:
    """The process that claims has not forgotten how late it was."""
    await enqueue(store, queue, [new_job("a")])
    first = await claim_one(store, queue)
    await settle(store, queue, Release("a", first.token))
    await store.clock.advance_clock(-600_000)
    try:
        second = await claim_one(store, queue)
        record = await record_of(store, queue, "a")
    finally:
        await store.clock.advance_clock(600_000)

    assert second.fence == record.fence > first.fence


async def test_a_lease_of_a_time_that_the_clock_was_set_back_from_has_ended(
    store: Store, queue: QueueRef
) -> None:
    """Its job must not be stuck for as long as the clock was set back."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue, LEASE_MS)
    back = 62_000
    await store.clock.advance_clock(-back)
    try:
        expired = await store.reads.expired(queue)
        beaten = await store.moves.heartbeat(queue, [Beat("a", held.token)], LEASE_MS)
        outcome = await store.moves.expire(queue, [Expire("a", held.token, State.DELAYED, FAULT, 0)])
    finally:
        await store.clock.advance_clock(back)

    assert [lease.id for lease in expired] == ["a"]
    assert beaten == [Refused(Refusal.LOST, State.ACTIVE)]
    assert outcome == [Applied(State.DELAYED)]


async def test_a_heartbeat_lengthens_a_lease_and_never_shortens_it(store: Store, queue: QueueRef) -> None:
    """The deadline is the later of the old one and the new one."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue, 60_000)
    shorter = await store.moves.heartbeat(queue, [Beat("a", held.token)], 1_000)
    kept = await record_of(store, queue, "a")
    before = await store.clock.now()
    await store.moves.heartbeat(queue, [Beat("a", held.token)], 120_000)
    after = await store.clock.now()
    longer = await record_of(store, queue, "a")

    assert shorter == [Applied(State.ACTIVE)]
    assert kept.deadline == held.deadline
    assert before + 120_000 <= (longer.deadline or 0) <= after + 120_000
    assert longer.version == kept.version


async def test_a_heartbeat_is_refused_once_the_deadline_passed(store: Store, queue: QueueRef) -> None:
    """Even though nobody has taken the lease away yet; settling still works."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue, 5_000)
    await store.clock.advance_clock(5_000)
    beaten = await store.moves.heartbeat(queue, [Beat("a", held.token)], 5_000)
    settled = await settle(store, queue, Complete("a", held.token, b"1"))

    assert beaten == [Refused(Refusal.LOST, State.ACTIVE)]
    assert settled is State.COMPLETED


async def test_a_renewed_lease_does_not_expire_at_its_first_deadline(store: Store, queue: QueueRef) -> None:
    """Neither by the list of expired leases nor by the move."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue, 5_000)
    await store.moves.heartbeat(queue, [Beat("a", held.token)], 60_000)
    await store.clock.advance_clock(6_000)
    listed = await store.reads.expired(queue)
    outcome = await store.moves.expire(queue, [Expire("a", held.token, State.DELAYED, FAULT, 0)])

    assert listed == []
    assert outcome == [Refused(Refusal.LOST, State.ACTIVE)]


async def test_expired_leases_are_named_oldest_first(store: Store, queue: QueueRef) -> None:
    """By claims and by asking, with what the core needs to decide."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c", "d")])
    for lease_ms in (3_000, 1_000, 2_000, 60_000):
        await claim_one(store, queue, lease_ms, worker=f"w{lease_ms}")
    await store.clock.advance_clock(5_000)
    listed = await store.reads.expired(queue)
    claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    record = await record_of(store, queue, "b")

    assert [lease.id for lease in listed] == ["b", "c", "a"]
    assert claims.expired == listed
    assert [lease.id for lease in await store.reads.expired(queue, 2)] == ["b", "c"]
    assert (listed[0].token, listed[0].fence) == (record.token, record.fence)
    assert (listed[0].worker, listed[0].options) == ("w1000", record.options)


async def test_an_expired_lease_is_taken_away_once(store: Store, queue: QueueRef) -> None:
    """Many may try; and the worker that comes back too late is told so."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)
    await store.clock.advance_clock(LEASE_MS)
    said = Expire("a", held.token, State.DELAYED, FAULT, 7_000)
    outcomes = await store.moves.expire(queue, [said, said])
    again = await store.moves.expire(queue, [said])
    late = await store.moves.settle(queue, [Complete("a", held.token)])
    record = await record_of(store, queue, "a")

    assert outcomes == [Applied(State.DELAYED), Refused(Refusal.LOST, State.DELAYED)]
    assert again == [Refused(Refusal.LOST, State.DELAYED)]
    assert late == [Refused(Refusal.LOST, State.DELAYED)]
    assert (record.attempts, record.last_delay_ms, record.reason) == (1, 7_000, FAULT.reason)


async def test_a_stale_lease_changes_nothing(store: Store, queue: QueueRef) -> None:
    """While another worker holds the job."""
    await enqueue(store, queue, [new_job("a")])
    stale = await claim_one(store, queue)
    await store.clock.advance_clock(LEASE_MS)
    await store.moves.expire(queue, [Expire("a", stale.token, State.PENDING, FAULT)])
    await claim_one(store, queue, worker="the-next-one")
    before = await record_of(store, queue, "a")
    outcomes = [
        *await store.moves.heartbeat(queue, [Beat("a", stale.token)], LEASE_MS),
        *await store.moves.progress(queue, [Report("a", stale.token, b"1")]),
        *await store.moves.settle(queue, [Complete("a", stale.token), Retry("a", stale.token, 0, FAULT)]),
    ]

    assert outcomes == [Refused(Refusal.LOST, State.ACTIVE)] * 4
    assert await record_of(store, queue, "a") == before


async def test_a_cancel_is_told_by_the_next_heartbeat_and_progress(store: Store, queue: QueueRef) -> None:
    """That is how a running handler gets to know."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)
    before = await store.moves.heartbeat(queue, [Beat("a", held.token)], LEASE_MS)
    asked = await store.moves.cancel(queue, ["a", "a"])
    beaten = await store.moves.heartbeat(queue, [Beat("a", held.token)], LEASE_MS)
    reported = await store.moves.progress(queue, [Report("a", held.token, b"1")])

    assert before == [Applied(State.ACTIVE, False)]
    assert asked == [Applied(State.ACTIVE, True)] * 2
    assert beaten == reported == [Applied(State.ACTIVE, True)]


async def test_a_claim_says_when_the_next_job_is_due(store: Store, queue: QueueRef) -> None:
    """So that a worker sleeps until then and no longer."""
    await enqueue(store, queue, [new_job("a", delay_ms=2_000_000), new_job("b", delay_ms=1_000_000)])
    first = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    await store.clock.advance_clock(first.wait_ms or 0)
    second = await store.moves.claim(queue, worker="w", limit=1, lease_ms=300_000)

    assert 900_000 < (first.wait_ms or 0) <= 1_000_000
    assert first.jobs == []
    assert [job.id for job in second.jobs] == ["b"]
    assert 200_000 < (second.wait_ms or 0) <= 300_000


async def test_a_claim_says_when_a_pause_ends(store: Store, queue: QueueRef) -> None:
    """And no longer speaks of it when it is over."""
    await enqueue(store, queue, [new_job("a")])
    await store.queues.pause_queue(queue, Pause(0, "lunch"), for_ms=800_000)
    paused = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    await store.clock.advance_clock(800_000)
    resumed = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    await settle(store, queue, Complete("a", resumed.jobs[0].token))
    idle = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)

    assert paused.jobs == []
    assert 700_000 < (paused.wait_ms or 0) <= 800_000
    assert [job.id for job in resumed.jobs] == ["a"]
    assert idle.wait_ms is None


async def test_leases_are_listed_by_queue_and_by_worker(store: Store, queue: QueueRef) -> None:
    """A worker that reconnects finds what stands under its name."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c")])
    mine = await claim(store, queue, 2, worker="mine")
    theirs = await claim_one(store, queue, worker="theirs")
    all_of_them = await store.reads.leases(queue)
    found = await store.reads.leases(queue, "mine")
    await store.moves.settle(queue, [Release(lease.id, lease.token) for lease in found])

    assert {(lease.id, lease.worker) for lease in all_of_them} == {
        ("a", "mine"),
        ("b", "mine"),
        ("c", "theirs"),
    }
    assert {(lease.id, lease.token, lease.deadline) for lease in found} == {
        (job.id, job.token, job.deadline) for job in mine
    }
    assert await store.reads.leases(queue, "nobody") == []
    assert [lease.token for lease in await store.reads.leases(queue)] == [theirs.token]
    assert await states_of(store, queue, ["a", "b", "c"]) == [State.PENDING, State.PENDING, State.ACTIVE]


async def test_what_a_handler_says_of_a_cancel_is_kept(store: Store, queue: QueueRef) -> None:
    """With the first line in the event; a job that is only given back keeps none of it."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    first, second = await claim(store, queue)
    await store.moves.cancel(queue, ["a"])
    said = "the customer asked\nin writing"
    await store.moves.settle(queue, [Release("a", first.token, said), Release("b", second.token, said)])
    cancelled, released = await store.reads.get(queue, ["a", "b"])
    events = await store.events.read_events(queue)

    assert cancelled is not None
    assert (cancelled.state, cancelled.reason, cancelled.error) == (State.CANCELLED, "CANCELLED", said)
    assert released is not None
    assert (released.state, released.error) == (State.PENDING, None)
    assert [event.error for event in events if event.move is Move.RELEASE] == ["the customer asked", None]
