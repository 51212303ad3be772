"""Jobs whose task the worker that claimed them does not know: back without an attempt, dead only at last."""

from penstock.core.decide import NO_HANDLER
from penstock.core.flows import JobRef
from penstock.core.history import check
from penstock.core.job import QueueRef
from penstock.core.moves import Bury, Expire, Fault, Move, Release, Retry, Snooze
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim_one,
    enqueue,
    new_job,
    record_of,
    settle,
)

LOST_HANDLER = Fault(NO_HANDLER, "UnknownTaskError: gone")


async def _snoozed(store: Store, queue: QueueRef, reason: str | None = NO_HANDLER) -> int | None:
    """Claim the job and send it back; since when it has had no handler, as the next claim would be told."""
    held = await claim_one(store, queue)
    await settle(store, queue, Snooze(held.id, held.token, 0, reason))
    return (await record_of(store, queue, held.id)).unhandled_since


async def test_a_job_without_a_handler_comes_back_without_an_attempt(store: Store, queue: QueueRef) -> None:
    """The record keeps since when, by the store's clock, however often it comes back."""
    await enqueue(store, queue, [new_job("a")])
    before = await store.clock.now()
    first = await _snoozed(store, queue)
    await store.clock.advance_clock(60_000)
    second = await _snoozed(store, queue)
    held = await claim_one(store, queue)

    assert first is not None
    assert before <= first <= await store.clock.now() - 60_000
    assert second == held.unhandled_since == first
    record = await record_of(store, queue, "a")
    assert (record.attempts, record.reason, record.delivery) == (0, NO_HANDLER, 3)


async def test_what_few_jobs_have_stays_beside_it(store: Store, queue: QueueRef) -> None:
    """A job of a flow keeps its parents."""
    child, parent = JobRef(queue.name, "c"), JobRef(queue.name, "p")
    flow = [new_job("c", parents=[parent]), new_job("p", awaits=[child])]
    await enqueue(store, queue, flow)
    await _snoozed(store, queue)
    await _snoozed(store, queue, reason=None)

    record = await record_of(store, queue, "c")
    assert record.parents == (parent,)
    assert record.unhandled_since is None


async def test_a_handler_that_ran_ends_the_time_without_one(store: Store, queue: QueueRef) -> None:
    """By a snooze of its own, a retry, or a lease that ran out; a release says nothing of it."""
    await enqueue(store, queue, [new_job("a")])
    since: list[int | None] = []
    for ending in ("snooze", "retry", "release", "expire"):
        await _snoozed(store, queue)
        held = await claim_one(store, queue)
        if ending == "expire":
            await store.clock.advance_clock(LEASE_MS + 1)
            await store.moves.expire(queue, [Expire(held.id, held.token, State.DELAYED, FAULT)])
        elif ending == "retry":
            await settle(store, queue, Retry(held.id, held.token, 0, FAULT))
        elif ending == "release":
            await settle(store, queue, Release(held.id, held.token))
        else:
            await settle(store, queue, Snooze(held.id, held.token, 0))
        since.append((await record_of(store, queue, "a")).unhandled_since)

    assert [each is None for each in since] == [True, True, False, True]


async def test_a_job_buried_without_an_attempt_used_none(store: Store, queue: QueueRef) -> None:
    """Its event still names the attempt that would have been, and a redrive begins anew."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    first, second = await claim_one(store, queue), await claim_one(store, queue)
    await settle(store, queue, Retry(first.id, first.token, 0, FAULT))
    held = await claim_one(store, queue)
    await settle(store, queue, Snooze(held.id, held.token, 0, NO_HANDLER))
    held = await claim_one(store, queue)
    await store.moves.settle(
        queue,
        [
            Bury(second.id, second.token, LOST_HANDLER, uses_attempt=True),
            Bury(held.id, held.token, LOST_HANDLER, uses_attempt=False),
        ],
    )
    dead = await record_of(store, queue, "a")
    events = [event for event in await store.events.read_events(queue) if event.move is Move.BURY]
    await store.moves.redrive(queue, ["a"])
    redriven = await record_of(store, queue, "a")

    assert (dead.state, dead.attempts, dead.reason) == (State.DEAD, 1, NO_HANDLER)
    assert (await record_of(store, queue, "b")).attempts == 1
    assert {(event.job, event.attempt) for event in events} == {("a", 2), ("b", 1)}
    assert dead.unhandled_since is not None
    assert redriven.unhandled_since is None


async def test_the_log_says_why_it_came_back(store: Store, queue: QueueRef) -> None:
    """The event carries the reason, and not the error of an attempt before; the checker agrees."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)
    await settle(store, queue, Retry(held.id, held.token, 0, FAULT))
    await _snoozed(store, queue)
    held = await claim_one(store, queue)
    await settle(store, queue, Bury(held.id, held.token, LOST_HANDLER, uses_attempt=False))
    events = await store.events.read_events(queue)

    (snoozed,) = [event for event in events if event.move is Move.SNOOZE]
    assert (snoozed.reason, snoozed.error, snoozed.fingerprint) == (NO_HANDLER, None, None)
    assert check(events).breaches == ()


async def test_a_cancel_comes_before_the_way_back(store: Store, queue: QueueRef) -> None:
    """As with every other way back."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    first, second = await claim_one(store, queue), await claim_one(store, queue)
    await store.moves.cancel(queue, ["a", "b"])
    snoozed = await settle(store, queue, Snooze(first.id, first.token, 0, NO_HANDLER))
    buried = await settle(store, queue, Bury(second.id, second.token, LOST_HANDLER, uses_attempt=False))

    assert (snoozed, buried) == (State.CANCELLED, State.CANCELLED)
    assert (await record_of(store, queue, "b")).attempts == 0
    assert check(await store.events.read_events(queue)).breaches == ()
