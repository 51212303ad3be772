"""Workers that start and stop together, and the signals they listen to."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.errors import StoreVersionError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.worker.pool import ECHO, WorkerPool
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, turns
from tests.worker.kit import Desk


async def test_workers_of_several_queues_run_and_stop_together(queue: QueueRef) -> None:
    store = MemoryStore()
    desks = [Desk(QueueRef(queue.tenant, name), store) for name in ("a", "b")]

    async def work() -> None: ...

    pool = WorkerPool([desk.worker(work) for desk in desks])
    run = asyncio.create_task(pool.run())
    for desk in desks:
        await desk.ended(await desk.enqueue("work"))
    pool.stop()
    async with asyncio.timeout(PATIENCE):
        await run


async def test_one_that_fails_stops_the_others_and_its_error_is_raised(queue: QueueRef) -> None:
    class Newer(InterceptedStore):
        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreVersionError("written by a newer Penstock")

    good, bad = Desk(queue), Desk(queue, Newer())

    async def work() -> None:
        await asyncio.sleep(60)

    job = await good.enqueue("work")
    with pytest.raises(StoreVersionError):
        async with asyncio.timeout(10):
            await WorkerPool([good.worker(work), bad.worker()]).run()

    assert (await good.job(job)).state in (State.PENDING, State.ACTIVE)
    assert await good.active() == 0


async def test_a_pool_of_bursts_ends_when_all_have(desk: Desk) -> None:
    async def work() -> None: ...

    job = await desk.enqueue("work")
    async with asyncio.timeout(10):
        await WorkerPool([desk.worker(work, burst=True) for _ in range(3)]).run()

    assert (await desk.job(job)).state is State.COMPLETED


async def test_a_cancelled_pool_gives_its_jobs_back(desk: Desk) -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    run = asyncio.create_task(WorkerPool([desk.worker(work)]).run())
    await desk.reaches(job, State.ACTIVE)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert (await desk.job(job)).state is State.PENDING


async def test_a_first_signal_drains_and_a_second_one_does_not(desk: Desk) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    run = asyncio.create_task(WorkerPool([desk.worker(work, shutdown_timeout=60)]).run(handle_signals=True))
    await desk.reaches(job, State.ACTIVE)
    os.kill(os.getpid(), signal.SIGTERM)
    await turns()
    assert not run.done()
    os.kill(os.getpid(), signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        await run

    assert (await desk.job(job)).state is State.PENDING
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def hangups_end() -> Iterator[None]:
    """SIGHUP as in a terminal, also where the run of the tests ignores it, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_end")
async def test_a_hangup_drains_too(desk: Desk) -> None:
    before = signal.getsignal(signal.SIGHUP)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    job = await desk.enqueue("work")
    run = asyncio.create_task(WorkerPool([desk.worker(work, shutdown_timeout=60)]).run(handle_signals=True))
    await desk.reaches(job, State.ACTIVE)
    os.kill(os.getpid(), signal.SIGHUP)
    gate.set()
    await run

    assert (await desk.job(job)).state is State.COMPLETED
    assert signal.getsignal(signal.SIGHUP) == before


async def test_a_hangup_that_is_ignored_stays_ignored(desk: Desk) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pool = WorkerPool([desk.worker()])
    try:
        run = asyncio.create_task(pool.run(handle_signals=True))
        await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        pool.stop()
        await run
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_signal_that_comes_twice_at_once_is_one(desk: Desk) -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    run = asyncio.create_task(WorkerPool([desk.worker(work, shutdown_timeout=60)]).run(handle_signals=True))
    await desk.reaches(job, State.ACTIVE)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        await turns(10)
    # real time: a signal is one of its own only some time after the one before
    await asyncio.sleep(ECHO + 0.1)
    assert (await desk.job(job)).state is State.ACTIVE
    os.kill(os.getpid(), signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        await run

    assert (await desk.job(job)).state is State.PENDING


_PROGRAM = """
import asyncio, sys, threading, time
from penstock.core.job import NewJob, QueueRef
from penstock.stores.memory import MemoryStore
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from penstock.worker.pool import WorkerPool
from penstock.worker.worker import Worker

def stuck() -> None:
    print("running", flush=True)
    time.sleep(600)

async def main() -> None:
    store, queue, registry = MemoryStore(), QueueRef("default", "q"), Registry()
    registry.add(Task(stuck, name="stuck", queue="q", sender=None))
    await store.moves.enqueue(queue, [NewJob(id="j", nonce="n", task="stuck", payload=b"{}")])
    await WorkerPool([Worker(store, queue, registry)]).run(handle_signals=True)
    (job,) = await store.reads.get(queue, ["j"])
    print(job.state, flush=True)

asyncio.run(main())
print("left", flush=True)
"""


def test_sigquit_writes_stacks_and_goes_on_and_a_stuck_thread_does_not_hold_the_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert process.stderr is not None
        process.send_signal(signal.SIGQUIT)
        stacks = ""
        while "in stuck" not in stacks:
            stacks += process.stderr.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        # real time: a signal is one of its own only some time after the one before
        time.sleep(ECHO + 0.2)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()

    assert out == "pending\nleft\n"
    assert process.returncode == 0
