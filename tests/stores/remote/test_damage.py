"""What was damaged in the store of a service is set aside there, and seen to from afar."""

import sqlite3
from contextlib import closing

from penstock.core.job import QueueRef
from penstock.stores.sqlite import SqliteStore
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import STORES, Place, opened
from tests.kit.waiting import PATIENCE

REMOTE = next(kind for kind in STORES if kind.name == "remote")


async def test_the_quarantine_of_a_services_store_is_reached_through_it(
    where: Place, queue: QueueRef
) -> None:
    path = where.new_file()
    url = where.service(lambda: SqliteStore(path))
    async with opened(REMOTE.connect(url)) as store:
        await enqueue(store, queue, [new_job(each) for each in "abc"])
        with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as base:
            base.execute("UPDATE job SET options = 'nope' WHERE id = 'a'")
            base.execute("UPDATE job SET payload = x'00' WHERE id = 'b'")
            base.execute("UPDATE event SET move = 'nope' WHERE seq = 2")

        assert await store.quarantine.repair(queue) == 2
        first, second = await store.quarantine.list_quarantined(queue)
        assert (first.id, second.id, second.payload) == ("a", "b", b"\0")
        assert [each.id for each in await store.quarantine.list_quarantined(queue, after="a", limit=1)] == [
            "b"
        ]
        assert [job.id for job in await claim(store, queue, 10)] == ["c"]
        assert [event.seq for event in await store.events.read_events(queue)] == [1, 3, 4]
        assert [each.seq for each in await store.events.damaged_events(queue)] == [2]
        assert await store.quarantine.delete_quarantined(queue, ["a", "b"]) == 2
        assert await store.quarantine.list_quarantined(queue) == []
