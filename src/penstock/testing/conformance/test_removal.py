"""Jobs that go: pruned after their time, deleted by hand; and those that come back by a redrive."""

from penstock.core.job import Options, QueueRef
from penstock.core.moves import Bury, Complete, Fail, Move
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import (
    FAULT,
    claim,
    claim_one,
    enqueue,
    new_job,
    record_of,
    settle,
    states_of,
)

SHORT = Options(retention_ms=1_000)


async def test_ended_jobs_are_pruned_when_their_time_is_over(store: Store, queue: QueueRef) -> None:
    """One event names all that went; what lives or is dead stays."""
    names = ["completed", "failed", "dead", "cancelled", "kept", "active", "pending", "delayed"]
    await enqueue(store, queue, [new_job(name, options=SHORT) for name in names if name != "kept"])
    await enqueue(store, queue, [new_job("kept", options=Options(retention_ms=60_000))])
    await store.moves.cancel(queue, ["delayed"])
    await store.moves.redrive(queue, ["delayed"])
    await store.moves.cancel(queue, ["cancelled"])
    token = {job.id: job.token for job in await claim(store, queue)}
    await store.moves.settle(
        queue,
        [
            Complete("completed", token["completed"]),
            Fail("failed", token["failed"], FAULT),
            Bury("dead", token["dead"], FAULT),
            Complete("kept", token["kept"]),
        ],
    )
    early = await store.moves.prune(queue)
    _, newest = await store.events.event_range(queue)
    await store.clock.advance_clock(1_000)
    pruned = await store.moves.prune(queue)
    events = await store.events.read_events(queue, after=newest)

    assert (early, pruned) == (0, 3)
    assert [(event.move, event.job) for event in events] == [(Move.PRUNE, None)]
    assert set(events[0].jobs or []) == {"completed", "failed", "cancelled"}
    found = await states_of(store, queue, ["dead", "kept", "active", "pending", "delayed"])
    assert found == [State.DEAD, State.COMPLETED, State.ACTIVE, State.ACTIVE, State.ACTIVE]


async def test_a_result_that_is_wanted_for_longer_keeps_its_job(store: Store, queue: QueueRef) -> None:
    """The longer of the two times counts."""
    options = Options(retention_ms=1_000, result_retention_ms=60_000)
    await enqueue(store, queue, [new_job("a", options=options)])
    job = await claim_one(store, queue)
    await settle(store, queue, Complete(job.id, job.token, b"7"))
    await store.clock.advance_clock(30_000)
    early = await store.moves.prune(queue)
    await store.clock.advance_clock(30_000)

    assert (early, (await record_of(store, queue, "a")).result) == (0, b"7")
    assert await store.moves.prune(queue) == 1


async def test_the_dead_are_never_pruned(store: Store, queue: QueueRef) -> None:
    """They wait for someone to act, for years if need be."""
    await enqueue(store, queue, [new_job("a", options=SHORT)])
    held = await claim_one(store, queue)
    await settle(store, queue, Bury("a", held.token, FAULT))
    years = 10 * 365 * 24 * 3_600_000
    await store.clock.advance_clock(years)
    pruned = await store.moves.prune(queue)
    await store.clock.advance_clock(-years)

    assert pruned == 0
    assert await states_of(store, queue, ["a"]) == [State.DEAD]


async def test_prune_takes_the_oldest_up_to_its_limit(store: Store, queue: QueueRef) -> None:
    """And says how many it took."""
    ids = [f"j{n}" for n in range(5)]
    await enqueue(store, queue, [new_job(name, options=SHORT) for name in ids])
    for name in reversed(ids):
        await store.moves.cancel(queue, [name])
        await store.clock.advance_clock(10)
    await store.clock.advance_clock(1_000)
    _, newest = await store.events.event_range(queue)
    pruned = [
        await store.moves.prune(queue, 2),
        await store.moves.prune(queue, 2),
        await store.moves.prune(queue, 2),
    ]
    events = await store.events.read_events(queue, after=newest)

    assert pruned == [2, 2, 1]
    assert [event.jobs for event in events] == [["j4", "j3"], ["j2", "j1"], ["j0"]]


async def test_deleting_many_writes_one_event(store: Store, queue: QueueRef) -> None:
    """With all of their ids; deleting one writes an event of that job."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c")])
    await store.moves.delete(queue, ["c", "a"])
    await store.moves.delete(queue, ["b", "nobody"])
    many, one = await store.events.read_events(queue, after=3)

    assert (many.move, many.job, many.jobs) == (Move.DELETE, None, ["c", "a"])
    assert (one.move, one.job, one.jobs, one.version) == (Move.DELETE, "b", None, 2)
    assert (one.source, one.target) == (State.PENDING, None)


async def test_a_deleted_job_is_not_claimed(store: Store, queue: QueueRef) -> None:
    """Neither from the tier nor when its time comes; and its id is free again."""
    await enqueue(store, queue, [new_job("a"), new_job("b", delay_ms=1_000), new_job("c")])
    await store.moves.delete(queue, ["a", "b"])
    await store.clock.advance_clock(1_000)
    claimed = await claim(store, queue)
    await enqueue(store, queue, [new_job("a")])
    again = await claim_one(store, queue)

    assert [job.id for job in claimed] == ["c"]
    assert (again.id, again.delivery) == ("a", 1)


async def test_a_cancelled_job_is_not_claimed(store: Store, queue: QueueRef) -> None:
    """Neither from the tier nor when its time comes."""
    await enqueue(store, queue, [new_job("a"), new_job("b", delay_ms=1_000), new_job("c")])
    await store.moves.cancel(queue, ["a", "b"])
    await store.clock.advance_clock(1_000)
    claimed = await claim(store, queue)

    assert [job.id for job in claimed] == ["c"]
    assert (await record_of(store, queue, "a")).reason == "CANCELLED"


async def test_a_redrive_gives_a_new_life_with_the_old_policy(store: Store, queue: QueueRef) -> None:
    """Attempts start again, deliveries and fences go on; to the back of its tier."""
    options = Options(max_attempts=2, timeout_ms=77)
    job = new_job("a", options=options, priority=5, idempotency_key="i", key="k")
    await store.moves.enqueue(queue, [job])
    first = await claim_one(store, queue)
    await settle(store, queue, Bury("a", first.token, FAULT))
    await enqueue(store, queue, [new_job("b")])
    await store.moves.redrive(queue, ["a"])
    redriven = await record_of(store, queue, "a")
    b, a = await claim(store, queue)

    assert (redriven.state, redriven.drive, redriven.attempts) == (State.PENDING, 2, 0)
    assert (redriven.reason, redriven.error, redriven.ended_at) == (None, None, None)
    assert (redriven.options, redriven.idempotency_key, redriven.key) == (options, "i", "k")
    assert (b.id, a.id) == ("b", "a")
    assert (a.drive, a.delivery, a.attempt) == (2, 2, 1)
    assert a.fence > first.fence
    assert a.options == options


async def test_a_redriven_job_is_not_pruned(store: Store, queue: QueueRef) -> None:
    """The time of its first ending no longer counts."""
    await enqueue(store, queue, [new_job("a", options=SHORT)])
    await store.moves.cancel(queue, ["a"])
    await store.moves.redrive(queue, ["a"])
    await store.clock.advance_clock(5_000)
    pruned = await store.moves.prune(queue)
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))

    assert pruned == 0
    assert await store.moves.prune(queue) == 0


async def test_a_job_asked_to_stop_forgets_it_by_a_redrive(store: Store, queue: QueueRef) -> None:
    """The new life is not cancelled by the request of the old one."""
    await enqueue(store, queue, [new_job("a")])
    first = await claim_one(store, queue)
    await store.moves.cancel(queue, ["a"])
    await settle(store, queue, Fail("a", first.token, FAULT))
    await store.moves.redrive(queue, ["a"])
    second = await claim_one(store, queue)

    assert not second.cancel_requested
    assert await settle(store, queue, Bury("a", second.token, FAULT)) is State.DEAD
