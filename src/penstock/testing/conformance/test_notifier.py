"""Notifications: a subscriber hears of every job that becomes claimable and of every ending."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.flows import ChildEnding
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.moves import Bury, Complete, Expire, Fail, Release, Retry
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Firing, Pause, StoredSchedule, Topic
from penstock.testing.conformance.arrange import (
    FAULT,
    KIND,
    LEASE_MS,
    LONGEST_WAIT,
    claim_one,
    enqueue,
    new_job,
    schedule_body,
)
from penstock.testing.conformance.parts import Part, needs
from penstock.testing.conformance.readiness import CHILD

pytestmark = needs(Part.NOTIFIER)

Act = Callable[[Store, QueueRef, str], Awaitable[object]]

MAKING_READY: dict[str, Act] = {
    "enqueue": lambda store, queue, token: store.moves.enqueue(queue, [new_job()]),
    "enqueue delayed": lambda store, queue, token: store.moves.enqueue(queue, [new_job(delay_ms=5_000)]),
    "release": lambda store, queue, token: store.moves.settle(queue, [Release("a", token)]),
    "retry": lambda store, queue, token: store.moves.settle(queue, [Retry("a", token, 0, FAULT)]),
    "expire": lambda store, queue, token: store.moves.expire(
        queue, [Expire("a", token, State.DELAYED, FAULT)]
    ),
    "promote": lambda store, queue, token: store.moves.promote(queue),
    "redrive": lambda store, queue, token: store.moves.redrive(queue, ["ended"]),
    "resume": lambda store, queue, token: store.queues.pause_queue(queue, None),
}

ENDING: dict[str, Act] = {
    "complete": lambda store, queue, token: store.moves.settle(queue, [Complete("a", token)]),
    "fail": lambda store, queue, token: store.moves.settle(queue, [Fail("a", token, FAULT)]),
    "bury": lambda store, queue, token: store.moves.settle(queue, [Bury("a", token, FAULT)]),
    "expire": lambda store, queue, token: store.moves.expire(queue, [Expire("a", token, State.DEAD, FAULT)]),
    "cancel": lambda store, queue, token: store.moves.cancel(queue, ["waits"]),
}


LETTING_OTHERS_GO: dict[str, Act] = {
    **{name: act for name, act in ENDING.items() if name != "cancel"},
    "declare": lambda store, queue, token: store.queues.declare(
        queue, Declaration(version=2, mode=Mode.DYNAMIC)
    ),
    "rule": lambda store, queue, token: store.queues.set_key_rule(queue, "k", KeyRule(limit=2)),
    "rule taken back": lambda store, queue, token: store.queues.set_key_rule(queue, "k", None),
    "unblock": lambda store, queue, token: store.flows.child_ended(
        queue, [ChildEnding("parent", CHILD, State.COMPLETED)]
    ),
    "replace": lambda store, queue, token: store.moves.enqueue(queue, [new_job(key="k", unique=KIND)]),
    "fire": lambda store, queue, token: store.schedules.fire(
        queue, Firing("s", 5, (new_job(key="k"),), None, 5)
    ),
}
"""What lets jobs go where a key has one slot and no more than so many run at once."""


async def _prepared(store: Store, queue: QueueRef) -> str:
    """A queue with a lease that ran out, a due job, one that waits and one that ended; the lease's token."""
    await enqueue(store, queue, [new_job("a", priority=9), new_job("waits"), new_job("ended")])
    await enqueue(store, queue, [new_job("due", delay_ms=1_000)])
    held = await claim_one(store, queue)
    await store.moves.cancel(queue, ["ended"])
    await store.queues.pause_queue(queue, Pause(0))
    await store.clock.advance_clock(LEASE_MS)
    return held.token


@pytest.mark.parametrize("act", MAKING_READY)
async def test_ready_is_notified_when_a_job_becomes_claimable(
    store: Store, queue: QueueRef, act: str
) -> None:
    """Or will be sooner than known before."""
    token = await _prepared(store, queue)
    async with store.notifier.subscribe(queue, Topic.READY) as subscription:
        await MAKING_READY[act](store, queue, token)
        notified = await subscription.wait(LONGEST_WAIT)

    assert notified


@pytest.mark.parametrize("act", ENDING)
async def test_ended_is_notified_when_a_job_ends(store: Store, queue: QueueRef, act: str) -> None:
    """However it ended."""
    token = await _prepared(store, queue)
    async with store.notifier.subscribe(queue, Topic.ENDED) as subscription:
        await ENDING[act](store, queue, token)
        notified = await subscription.wait(LONGEST_WAIT)

    assert notified


async def test_control_is_notified_when_the_cancel_of_a_running_job_is_requested(
    store: Store, queue: QueueRef
) -> None:
    """Once more when it is requested again: a worker may have missed the first."""
    await enqueue(store, queue, [new_job("a")])
    await claim_one(store, queue)
    async with store.notifier.subscribe(queue, Topic.CONTROL) as subscription:
        notified = []
        for _ in range(2):
            await store.moves.cancel(queue, ["a"])
            notified.append(await subscription.wait(LONGEST_WAIT))

    assert notified == [True, True]


@needs(*Part)
@pytest.mark.parametrize("act", LETTING_OTHERS_GO)
async def test_ready_is_notified_when_a_limit_lets_the_next_go(
    store: Store, queue: QueueRef, act: str
) -> None:
    """Jobs that wait for a slot are claimable when one is free."""
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC, max_active=1))
    await enqueue(store, queue, [new_job("a", key="k"), new_job("b", key="k")])
    held = await claim_one(store, queue)
    later = [new_job("parent", key="k", awaits=[CHILD]), new_job(key="k", unique=KIND, delay_ms=5_000)]
    await enqueue(store, queue, later)
    await store.schedules.put_schedule(StoredSchedule(queue, "s", schedule_body("s"), 5))
    await store.clock.advance_clock(LEASE_MS)
    async with store.notifier.subscribe(queue, Topic.READY) as subscription:
        await LETTING_OTHERS_GO[act](store, queue, held.token)
        notified = await subscription.wait(LONGEST_WAIT)

    assert notified


@needs(Part.FLOWS)
async def test_ended_is_notified_when_a_parent_fails_with_its_child(store: Store, queue: QueueRef) -> None:
    """Someone may wait for its result."""
    await enqueue(store, queue, [new_job("p", awaits=[CHILD])])
    async with store.notifier.subscribe(queue, Topic.ENDED) as subscription:
        await store.flows.child_ended(queue, [ChildEnding("p", CHILD, State.DEAD)])
        notified = await subscription.wait(LONGEST_WAIT)

    assert notified


@needs(Part.HANDLES)
@pytest.mark.parametrize("topic", list(Topic), ids=str)
async def test_a_notification_comes_from_a_clone_in_another_thread(
    store: Store, queue: QueueRef, topic: Topic
) -> None:
    """While it waits."""
    token = await _prepared(store, queue)

    async def elsewhere() -> None:
        clone = store.clone()
        await clone.open()
        try:
            if topic is Topic.READY:
                await clone.moves.enqueue(queue, [new_job()])
            elif topic is Topic.CONTROL:
                await clone.moves.cancel(queue, ["a"])
            else:
                await clone.moves.settle(queue, [Complete("a", token)])
        finally:
            await clone.close()

    async with store.notifier.subscribe(queue, topic) as subscription:
        waiting = asyncio.create_task(subscription.wait(LONGEST_WAIT))
        await asyncio.sleep(0)
        await asyncio.to_thread(asyncio.run, elsewhere())
        notified = await waiting

    assert notified


async def test_every_subscription_of_a_queue_is_notified(store: Store, queue: QueueRef) -> None:
    """A notification for one subscription is not taken away by the wait of another."""
    await store.queues.open_queue(queue)
    async with (
        store.notifier.subscribe(queue, Topic.READY) as one,
        store.notifier.subscribe(queue, Topic.READY) as two,
    ):
        await enqueue(store, queue, [new_job()])
        notified = [await one.wait(LONGEST_WAIT), await two.wait(LONGEST_WAIT)]

    assert notified == [True, True]


async def test_a_subscription_that_nobody_notifies_gives_up_in_time(store: Store, queue: QueueRef) -> None:
    """A fallback poll runs then. One notification without a cause is permitted."""
    await store.queues.open_queue(queue)
    async with store.notifier.subscribe(queue, Topic.ENDED) as subscription:
        # real time: its end is what the test is about
        answers = [await subscription.wait(0.02) for _ in range(3)]

    assert answers[-1] is False


async def test_a_queue_can_be_subscribed_to_again(store: Store, queue: QueueRef) -> None:
    """After it was taken down, and while another hangs."""
    async with store.notifier.subscribe(queue, Topic.READY) as lasting:
        for _ in range(2):
            async with store.notifier.subscribe(queue, Topic.READY) as subscription:
                await enqueue(store, queue, [new_job()])
                assert await subscription.wait(LONGEST_WAIT)
        assert await lasting.wait(LONGEST_WAIT)
