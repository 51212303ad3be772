"""Many processes on one file."""

import asyncio
import multiprocessing
import sqlite3
from pathlib import Path

from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Complete
from penstock.core.states import State
from penstock.stores.notifier import LocalNotifier
from penstock.stores.sqlite import SqliteStore
from penstock.stores.sqlite.engine import Engine
from penstock.stores.sqlite.watch import Watch
from penstock.stores.values import Durability, Topic
from tests.kit.waiting import PATIENCE

QUEUE = QueueRef("default", "mail")


def _enqueue(path: str, name: str, count: int) -> None:
    async def run() -> None:
        store = SqliteStore(path)
        await store.open()
        for number in range(count):
            job = f"{name}-{number}"
            await store.moves.enqueue(QUEUE, [NewJob(id=job, nonce=job, task="t", payload=b"{}")])
        await store.close()

    asyncio.run(run())


def _work(path: str, name: str, total: int) -> None:
    async def run() -> None:
        store = SqliteStore(path)
        await store.open()
        while (await store.reads.counts(QUEUE))[State.COMPLETED] < total:
            claims = await store.moves.claim(QUEUE, worker=name, limit=5, lease_ms=60_000)
            await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
        await store.close()

    asyncio.run(run())


async def test_processes_share_one_file_from_its_first_moment(tmp_path: Path) -> None:
    """Eight processes make, fill and work off the same file; each job is delivered once."""
    path, total = str(tmp_path / "jobs.db"), 4 * 25
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_enqueue, args=(path, f"p{i}", 25)) for i in range(4)]
    processes += [context.Process(target=_work, args=(path, f"w{i}", total)) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, PATIENCE)

    assert [process.exitcode for process in processes] == [0] * 8
    store = SqliteStore(path)
    await store.open()
    events = await store.events.read_events(QUEUE, limit=1000)
    assert len([event for event in events if event.move == "claim"]) == total
    assert [event.seq for event in events] == list(range(1, 3 * total + 1))
    assert await store.health.check(QUEUE) == []
    await store.close()


async def test_a_subscription_notifies_of_what_another_process_enqueued(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    async with store.notifier.subscribe(QUEUE, Topic.READY) as subscription:
        # The first look at the file notifies once; after it only changes do.
        assert await subscription.wait(PATIENCE)
        process = multiprocessing.get_context("spawn").Process(target=_enqueue, args=(str(path), "p", 1))
        process.start()

        assert await subscription.wait(PATIENCE)

        await asyncio.to_thread(process.join, PATIENCE)
    await store.close()


def test_what_a_store_changed_itself_wakes_nobody_beside_those_concerned(tmp_path: Path) -> None:
    """Else each job of one tenant would wake all streams and long polls of every other."""
    engine = Engine(tmp_path / "jobs.db", Durability.PROCESS, 5.0)
    engine.open()
    watch, connection = Watch(engine, LocalNotifier()), engine.connect_watch()
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    try:
        first = watch.look(connection)
        found: list[bool] = []
        for number in range(3):
            engine.write(lambda own, number=number: own.execute(f"CREATE TABLE own_{number} (a)")).result()  # type: ignore[misc]
            found.append(watch.look(connection))
            other.execute(f"CREATE TABLE other_{number} (a)")
            found.append(watch.look(connection))
            engine.write(lambda own, number=number: own.execute(f"DROP TABLE other_{number}")).result()  # type: ignore[misc]
            found.append(watch.look(connection))
    finally:
        other.close()
        connection.close()
        engine.close()

    assert first
    assert found == [False, True, False] * 3
