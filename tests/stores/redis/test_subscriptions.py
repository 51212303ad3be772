"""Subscriptions over publish and subscribe."""

import asyncio

import pytest
from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.redis import RedisStore, notifier
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import proxied
from tests.kit.subscriptions import drain_notifications
from tests.kit.waiting import PATIENCE, eventually, until
from tests.stores.redis.operating import tell
from tests.worker.kit import Desk

BRIEF = 0.05


async def test_a_subscription_notifies_of_what_another_process_did(
    store: RedisStore, url: str, queue: QueueRef
) -> None:
    """And not before."""
    async with opened(RedisStore(url)) as other, store.notifier.subscribe(queue, Topic.READY) as subscription:
        quiet = await subscription.wait(BRIEF)  # real time: nothing comes meanwhile
        await enqueue(other, queue, [new_job()])
        was_notified = await subscription.wait(PATIENCE)

    assert not quiet
    assert was_notified


async def test_a_subscription_hears_its_own_queue_and_topic_only(store: RedisStore, queue: QueueRef) -> None:
    """However many hang in the store."""
    neighbour = QueueRef(queue.tenant, "neighbour")
    async with (
        store.notifier.subscribe(queue, Topic.READY) as ready,
        store.notifier.subscribe(queue, Topic.ENDED) as ended,
        store.notifier.subscribe(neighbour, Topic.READY) as other,
    ):
        await enqueue(store, queue, [new_job()])

        assert await ready.wait(PATIENCE)
        assert not await ended.wait(BRIEF)  # real time: nothing comes meanwhile
        assert not await other.wait(BRIEF)  # real time: nothing comes meanwhile


async def test_all_subscriptions_of_a_store_share_one_connection(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """And leave no subscription behind."""
    async with (
        store.notifier.subscribe(queue, Topic.READY),
        store.notifier.subscribe(queue, Topic.READY),
        store.notifier.subscribe(queue, Topic.ENDED),
    ):
        subscribers = [client for client in await operator.client_list() if int(client["sub"]) > 0]
        channels = await operator.pubsub_channels("*bell*")
    await _until_subscribed(operator, 0)

    assert len(subscribers) == 1
    assert len(channels) == 2


async def test_a_lost_connection_notifies_every_subscription_and_comes_back(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Something may have been missed meanwhile."""
    async with (
        store.notifier.subscribe(queue, Topic.READY) as ready,
        store.notifier.subscribe(queue, Topic.ENDED) as ended,
    ):
        await tell(operator, "CLIENT", "KILL", "TYPE", "pubsub")
        assert await ready.wait(PATIENCE)
        assert await ended.wait(PATIENCE)
        await _until_subscribed(operator, 2)
        await drain_notifications(ready)

        await enqueue(store, queue, [new_job()])
        was_notified = await ready.wait(PATIENCE)

    assert was_notified


async def test_a_notification_that_was_lost_with_its_connection_is_made_up_for(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """What was enqueued while nobody listened notifies as soon as somebody does."""
    async with store.notifier.subscribe(queue, Topic.READY) as subscription:
        for number in range(10):
            await tell(operator, "CLIENT", "KILL", "TYPE", "pubsub")
            await enqueue(store, queue, [new_job(f"job-{number}")])

            assert await subscription.wait(PATIENCE)


async def test_a_worker_wakes_for_a_job_whose_notice_was_lost(
    url: str, operator: Redis, queue: QueueRef
) -> None:
    """Long before its next poll."""
    async with opened(RedisStore(url)) as store:
        desk = Desk(queue, store)

        async def work() -> None: ...

        async with desk.working(work, poll=3_600.0):
            await desk.ended(await desk.enqueue("work"))
            for _ in range(10):
                await tell(operator, "CLIENT", "KILL", "TYPE", "pubsub")
                job = await desk.enqueue("work")

                assert (await desk.ended(job)).state is State.COMPLETED


async def test_no_job_slips_in_between_looking_and_listening(
    store: RedisStore, url: str, queue: QueueRef
) -> None:
    """A subscription that is made has been confirmed: whoever looks after that misses nothing."""
    async with opened(RedisStore(url)) as other:
        for number in range(50):
            sending = asyncio.create_task(enqueue(other, queue, [new_job(f"job-{number}")]))
            for _ in range(number % 10):
                await asyncio.sleep(0)
            async with store.notifier.subscribe(queue, Topic.READY) as subscription:
                found = await claim(store, queue, limit=1)
                if not found:
                    assert await subscription.wait(PATIENCE)
                    found = await claim(store, queue, limit=1)
            await sending

            assert [job.id for job in found] == [f"job-{number}"]


async def test_a_silent_connection_is_noticed_and_made_anew(
    server: valkey.Server, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that neither speaks nor ends."""
    monkeypatch.setattr(notifier, "_SILENCE_SECONDS", 0.05)
    async with proxied(server.port) as proxy, opened(RedisStore(f"{proxy.url}?idle_connections=0")) as store:
        await store.queues.open_queue(queue)
        async with store.notifier.subscribe(queue, Topic.READY) as subscription:
            before = proxy.connections
            # Nothing but the listening connection speaks now, and its next word is held back.
            proxy.cut(0, silent=True)
            await until(lambda: proxy.connections > before)
            await drain_notifications(subscription)
            await enqueue(store, queue, [new_job()])

            assert await subscription.wait(PATIENCE)


async def test_a_subscription_is_made_even_when_the_server_lets_nobody_listen(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """A wake-up is a hint: without it a worker polls."""
    await tell(operator, "ACL", "SETUSER", "default", "resetchannels")
    async with store.notifier.subscribe(queue, Topic.READY) as subscription:
        was_notified = await subscription.wait(BRIEF)  # real time: whether it notifies does not matter

    # It may notify for the connection that was lost; what counts is that nothing is raised.
    assert was_notified in (True, False)


async def test_a_turned_clock_notifies_other_processes(store: RedisStore, url: str, queue: QueueRef) -> None:
    """What was not due may be now."""
    async with opened(RedisStore(url)) as other, store.notifier.subscribe(queue, Topic.READY) as subscription:
        await other.clock.advance_clock(1_000)

        assert await subscription.wait(PATIENCE)


async def test_subscriptions_of_one_database_are_not_heard_in_another(
    store: RedisStore, url: str, queue: QueueRef
) -> None:
    """Keys are told apart by the server; the names of channels are not."""
    async with (
        opened(RedisStore(f"{url.removesuffix('0')}1")) as other,
        store.notifier.subscribe(queue, Topic.READY) as subscription,
        other.notifier.subscribe(queue, Topic.READY) as neighbour,
    ):
        for each in (subscription, neighbour):
            await drain_notifications(each)
        await enqueue(other, queue, [new_job()])
        await other.clock.advance_clock(1_000)

        assert await neighbour.wait(PATIENCE)
        assert not await subscription.wait(BRIEF)  # real time: nothing comes meanwhile


async def _until_subscribed(operator: Redis, channels: int) -> None:
    """The server tells nobody of a subscription but the subscriber."""

    async def are_there() -> bool:
        return len(await operator.pubsub_channels("*bell*")) == channels

    await eventually(are_there)
