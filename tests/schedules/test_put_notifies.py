"""A schedule that is put wakes whoever waits for the queue."""

from penstock.core.job import QueueRef
from penstock.stores.memory import MemoryStore
from penstock.stores.values import StoredSchedule, Topic
from tests.kit.waiting import PATIENCE


async def test_a_new_schedule_notifies_its_queue(queue: QueueRef) -> None:
    store = MemoryStore()
    async with store.notifier.subscribe(queue, Topic.READY) as subscription:
        await store.schedules.put_schedule(StoredSchedule(queue, "nightly", b"{}", 1_000))

        assert await subscription.wait(PATIENCE)
