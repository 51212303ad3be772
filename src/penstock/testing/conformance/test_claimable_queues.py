"""Which of many queues have something to claim, and the subscription to all of them."""

import asyncio

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Complete
from penstock.stores.protocol import Store, TenantSubscription
from penstock.stores.values import NotifiedQueues, Pause
from penstock.testing.conformance.arrange import LONGEST_WAIT, claim_one, enqueue, new_job, settle
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.UPKEEP)

MINUTE = 60_000


async def claimable(store: Store, queue: QueueRef, within_ms: int = 0) -> int | None:
    """From when something may be claimed in a queue, in milliseconds from now."""
    page = await store.upkeep.claimable_queues(queue.tenant, [queue.name], within_ms=within_ms)
    at = page.queues.get(queue.name)
    return None if at is None else at - page.now


async def is_named(subscription: TenantSubscription, name: str) -> bool:
    """Wait until the subscription names this queue, or all: a subscription that was cut off names all."""
    async with asyncio.timeout(LONGEST_WAIT):
        while True:
            notified = await subscription.wait(LONGEST_WAIT)
            if name in notified.queues or notified.for_all:
                return True


async def test_a_queue_with_a_pending_job_is_claimable(store: Store, queue: QueueRef) -> None:
    await store.queues.open_queue(queue)
    before = await claimable(store, queue, within_ms=MINUTE)
    await enqueue(store, queue, [new_job()])
    waiting = await claimable(store, queue)
    held = await claim_one(store, queue)
    running = await claimable(store, queue)
    await settle(store, queue, Complete(held.id, held.token))

    assert (before, waiting, running, await claimable(store, queue)) == (None, 0, None, None)


async def test_a_queue_that_is_not_there_has_nothing_to_claim_and_is_not_made(
    store: Store, queue: QueueRef
) -> None:
    page = await store.upkeep.claimable_queues(queue.tenant, [queue.name])

    assert (page.queues, page.unreachable) == ({}, [])
    assert abs(page.now - await store.clock.now()) < MINUTE
    assert await store.queues.find_queue(queue) is None


async def test_a_delayed_job_is_claimable_from_its_time(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a", delay_ms=10 * MINUTE), new_job("b", delay_ms=5 * MINUTE)])

    assert await claimable(store, queue, within_ms=4 * MINUTE) is None
    soon = await claimable(store, queue, within_ms=6 * MINUTE)
    assert soon is not None
    assert 4 * MINUTE < soon <= 5 * MINUTE
    await store.clock.advance_clock(5 * MINUTE)
    due = await claimable(store, queue)
    assert due is not None
    assert due <= 0


async def test_a_paused_queue_is_claimable_when_its_pause_ends(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job()])
    await store.queues.pause_queue(queue, Pause(0))
    for_good = await claimable(store, queue, within_ms=60 * MINUTE)
    await store.queues.pause_queue(queue, Pause(0), for_ms=10 * MINUTE)
    for_now = await claimable(store, queue, within_ms=MINUTE)
    later = await claimable(store, queue, within_ms=11 * MINUTE)
    await store.queues.pause_queue(queue, None)

    assert (for_good, for_now) == (None, None)
    assert later is not None
    assert 9 * MINUTE < later <= 10 * MINUTE
    assert await claimable(store, queue) == 0


@needs(Part.LIMITS)
async def test_a_queue_whose_keys_take_turns_is_claimable(store: Store, queue: QueueRef) -> None:
    await store.queues.declare(queue, Declaration(version=1, mode=Mode.KEYED, key_limit=1))
    await enqueue(store, queue, [new_job("a", key="k"), new_job("b", key="other")])
    both = await claimable(store, queue)
    await claim_one(store, queue)

    assert (both, await claimable(store, queue)) == (0, 0)


async def test_many_queues_are_looked_at_in_one_call(store: Store, queue: QueueRef) -> None:
    refs = [QueueRef(queue.tenant, f"{queue.name}-{number}") for number in range(50)]
    for number, ref in enumerate(refs):
        await store.queues.open_queue(ref)
        if number % 10 == 0:
            await enqueue(store, ref, [new_job()])
    page = await store.upkeep.claimable_queues(queue.tenant, [ref.name for ref in refs])

    assert set(page.queues) == {ref.name for ref in refs[::10]}


@needs(Part.NOTIFIER)
async def test_one_subscription_is_notified_of_every_queue_of_its_tenant(
    store: Store, queue: QueueRef
) -> None:
    others = [QueueRef(queue.tenant, f"{queue.name}-{number}") for number in range(3)]
    async with store.notifier.subscribe_tenant(queue.tenant) as subscription:
        for ref in (queue, *others):
            await enqueue(store, ref, [new_job()])
            assert await is_named(subscription, ref.name)
        await enqueue(store, queue, [new_job("later", delay_ms=MINUTE)])
        assert await is_named(subscription, queue.name)


@needs(Part.NOTIFIER)
async def test_the_subscription_for_all_queues_is_notified_when_the_clock_is_turned(
    store: Store, queue: QueueRef
) -> None:
    async with store.notifier.subscribe_tenant(queue.tenant) as subscription:
        # A subscription that could not listen before names all queues at first.
        notified = NotifiedQueues(for_all=True)
        while notified.for_all:
            await enqueue(store, queue, [new_job()])
            notified = await subscription.wait(LONGEST_WAIT)
        await store.clock.advance_clock(MINUTE)
        async with asyncio.timeout(LONGEST_WAIT):
            while not (await subscription.wait(LONGEST_WAIT)).for_all:
                pass
