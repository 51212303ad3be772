"""Bells: whoever waits hears of every job that becomes claimable and of every ending."""

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
from tests.conformance.arrange import FAULT, KIND, LEASE_MS, claim_one, enqueue, new_job, schedule_body
from tests.conformance.having import having
from tests.conformance.readiness import CHILD
from tests.conformance.stores import Part

SECONDS = 10.0
Act = Callable[[Store, QueueRef, str], Awaitable[object]]

MAKING_READY: dict[str, Act] = {
    "enqueue": lambda store, queue, token: store.enqueue(queue, [new_job()]),
    "enqueue delayed": lambda store, queue, token: store.enqueue(queue, [new_job(delay_ms=5_000)]),
    "release": lambda store, queue, token: store.settle(queue, [Release("a", token)]),
    "retry": lambda store, queue, token: store.settle(queue, [Retry("a", token, 0, FAULT)]),
    "expire": lambda store, queue, token: store.expire(queue, [Expire("a", token, State.DELAYED, FAULT)]),
    "promote": lambda store, queue, token: store.promote(queue),
    "redrive": lambda store, queue, token: store.redrive(queue, ["ended"]),
    "resume": lambda store, queue, token: store.pause(queue, None),
}

ENDING: dict[str, Act] = {
    "complete": lambda store, queue, token: store.settle(queue, [Complete("a", token)]),
    "fail": lambda store, queue, token: store.settle(queue, [Fail("a", token, FAULT)]),
    "bury": lambda store, queue, token: store.settle(queue, [Bury("a", token, FAULT)]),
    "expire": lambda store, queue, token: store.expire(queue, [Expire("a", token, State.DEAD, FAULT)]),
    "cancel": lambda store, queue, token: store.cancel(queue, ["waits"]),
}


LETTING_OTHERS_GO: dict[str, Act] = {
    **{name: act for name, act in ENDING.items() if name != "cancel"},
    "declare": lambda store, queue, token: store.declare(queue, Declaration(version=2, mode=Mode.DYNAMIC)),
    "rule": lambda store, queue, token: store.set_key_rule(queue, "k", KeyRule(limit=2)),
    "rule taken back": lambda store, queue, token: store.set_key_rule(queue, "k", None),
    "unblock": lambda store, queue, token: store.child_ended(
        queue, [ChildEnding("parent", CHILD, State.COMPLETED)]
    ),
    "replace": lambda store, queue, token: store.enqueue(queue, [new_job(key="k", unique=KIND)]),
    "fire": lambda store, queue, token: store.fire(queue, Firing("s", 5, (new_job(key="k"),), None, 5)),
}
"""What lets jobs go where a key has one slot and no more than so many run at once."""


async def _prepared(store: Store, queue: QueueRef) -> str:
    """A queue with a lease that ran out, a due job, one that waits and one that ended; the lease's token."""
    await enqueue(store, queue, [new_job("a", priority=9), new_job("waits"), new_job("ended")])
    await enqueue(store, queue, [new_job("due", delay_ms=1_000)])
    held = await claim_one(store, queue)
    await store.cancel(queue, ["ended"])
    await store.pause(queue, Pause(0))
    await store.turn(LEASE_MS)
    return held.token


@pytest.mark.parametrize("act", MAKING_READY)
async def test_the_ready_bell_rings_when_a_job_becomes_claimable(
    store: Store, queue: QueueRef, act: str
) -> None:
    """Or will be sooner than known before."""
    token = await _prepared(store, queue)
    async with store.bell(queue, Topic.READY) as bell:
        await MAKING_READY[act](store, queue, token)
        rang = await bell.wait(SECONDS)

    assert rang


@pytest.mark.parametrize("act", ENDING)
async def test_the_ended_bell_rings_when_a_job_ends(store: Store, queue: QueueRef, act: str) -> None:
    """However it ended."""
    token = await _prepared(store, queue)
    async with store.bell(queue, Topic.ENDED) as bell:
        await ENDING[act](store, queue, token)
        rang = await bell.wait(SECONDS)

    assert rang


@having(*Part)
@pytest.mark.parametrize("act", LETTING_OTHERS_GO)
async def test_the_ready_bell_rings_when_a_limit_lets_the_next_go(
    store: Store, queue: QueueRef, act: str
) -> None:
    """Jobs that wait for a slot are claimable when one is free."""
    await store.declare(queue, Declaration(mode=Mode.DYNAMIC, max_active=1))
    await enqueue(store, queue, [new_job("a", key="k"), new_job("b", key="k")])
    held = await claim_one(store, queue)
    later = [new_job("parent", key="k", awaits=[CHILD]), new_job(key="k", unique=KIND, delay_ms=5_000)]
    await enqueue(store, queue, later)
    await store.put_schedule(StoredSchedule(queue, "s", schedule_body("s"), 5))
    await store.turn(LEASE_MS)
    async with store.bell(queue, Topic.READY) as bell:
        await LETTING_OTHERS_GO[act](store, queue, held.token)
        rang = await bell.wait(SECONDS)

    assert rang


@having(Part.FLOWS)
async def test_the_ended_bell_rings_when_a_parent_fails_with_its_child(store: Store, queue: QueueRef) -> None:
    """Someone may wait for its result."""
    await enqueue(store, queue, [new_job("p", awaits=[CHILD])])
    async with store.bell(queue, Topic.ENDED) as bell:
        await store.child_ended(queue, [ChildEnding("p", CHILD, State.DEAD)])
        rang = await bell.wait(SECONDS)

    assert rang


@pytest.mark.parametrize("topic", list(Topic), ids=str)
async def test_a_bell_is_heard_from_a_twin_in_another_thread(
    store: Store, queue: QueueRef, topic: Topic
) -> None:
    """While it waits."""
    token = await _prepared(store, queue)

    async def elsewhere() -> None:
        twin = store.twin()
        await twin.open()
        try:
            if topic is Topic.READY:
                await twin.enqueue(queue, [new_job()])
            else:
                await twin.settle(queue, [Complete("a", token)])
        finally:
            await twin.close()

    async with store.bell(queue, topic) as bell:
        waiting = asyncio.create_task(bell.wait(SECONDS))
        await asyncio.sleep(0)
        await asyncio.to_thread(asyncio.run, elsewhere())
        rang = await waiting

    assert rang


async def test_every_bell_of_a_queue_rings(store: Store, queue: QueueRef) -> None:
    """One ring is not taken away by another's wait."""
    await store.open_queue(queue)
    async with store.bell(queue, Topic.READY) as one, store.bell(queue, Topic.READY) as two:
        await enqueue(store, queue, [new_job()])
        rang = [await one.wait(SECONDS), await two.wait(SECONDS)]

    assert rang == [True, True]


async def test_a_bell_that_nobody_rings_gives_up_in_time(store: Store, queue: QueueRef) -> None:
    """A fallback poll runs then. It may also ring for nothing, once."""
    await store.open_queue(queue)
    async with store.bell(queue, Topic.ENDED) as bell:
        answers = [await bell.wait(0.02) for _ in range(3)]

    assert answers[-1] is False


async def test_a_bell_of_one_queue_can_be_hung_again(store: Store, queue: QueueRef) -> None:
    """After it was taken down, and while another hangs."""
    async with store.bell(queue, Topic.READY) as lasting:
        for _ in range(2):
            async with store.bell(queue, Topic.READY) as bell:
                await enqueue(store, queue, [new_job()])
                assert await bell.wait(SECONDS)
        assert await lasting.wait(SECONDS)
