"""A schedule that is put wakes whoever waits for the queue."""

from penstock.core.job import QueueRef
from penstock.stores.memory import MemoryStore
from penstock.stores.values import StoredSchedule, Topic


async def test_a_new_schedule_rings_the_bell_of_its_queue(queue: QueueRef) -> None:
    store = MemoryStore()
    async with store.bell(queue, Topic.READY) as bell:
        await store.put_schedule(StoredSchedule(queue, "nightly", b"{}", 1_000))

        assert await bell.wait(1.0)
