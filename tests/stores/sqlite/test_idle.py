"""What an idle queue costs the file: nothing."""

import sqlite3
from pathlib import Path

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Rate
from penstock.stores.sqlite import SqliteStore
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened


async def test_upkeep_that_finds_nothing_to_do_writes_nothing(tmp_path: Path, queue: QueueRef) -> None:
    """With thousands of queues, waiting for the disk each time would leave no time for anything else."""
    path = tmp_path / "jobs.db"
    async with opened(SqliteStore(path)) as store:
        await store.queues.declare(queue, Declaration(rate=Rate(10)))
        await enqueue(store, queue, [new_job(delay_ms=60_000)])
        watch = sqlite3.connect(path)
        before = watch.execute("PRAGMA data_version").fetchone()
        done = [await store.moves.promote(queue), await store.moves.prune(queue)]
        after = watch.execute("PRAGMA data_version").fetchone()
        await enqueue(store, queue, [new_job("other")])
        changed = watch.execute("PRAGMA data_version").fetchone()
        watch.close()

    assert done == [0, 0]
    assert after == before
    assert changed != before
