"""A worker that waits for jobs holds none: a job is leased when a worker claims it, and not before."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.worker.backoff import StoreBackoff
from tests.conformance.having import on
from tests.conformance.stores import STORES, Kind, Place, opened
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, eventually, until
from tests.worker.kit import Desk

LEASE = 3600.0
"""Longer than any test: a job that was leased to a worker that is gone would never run."""
SERVERS = [kind for kind in STORES if kind.name in ("sqlite", "valkey", "postgres")]


async def test_a_job_that_comes_while_a_worker_waits_stays_pending(store: Store, queue: QueueRef) -> None:
    """The last claim of that worker brought nothing, and takes nothing later."""
    await store.queues.open_queue(queue)
    await store.moves.claim(queue, worker="idle", limit=1, lease_ms=30_000)
    desk = Desk(queue, store)
    found = await desk.job(await desk.enqueue("work", max_attempts=1))

    assert (found.state, found.delivery) == (State.PENDING, 0)


@on(SERVERS)
async def test_a_job_does_not_wait_for_an_idle_worker_that_is_frozen(
    kind: Kind, where: Place, queue: QueueRef
) -> None:
    """Another worker runs it at once, and its only attempt is not used up."""

    async def work() -> None: ...

    address = kind.address(where)
    async with opened(kind.connect(address)) as store:
        desk = Desk(queue, store)

        async def is_registered() -> bool:
            return any(entry.name == "frozen" for entry in await store.workers.list_workers(queue.tenant))

        with _process(kind.name, address, queue) as frozen:
            await eventually(is_registered)
            await desk.ended(await desk.enqueue("work", max_attempts=1))
            _freeze(frozen)
            job = await desk.enqueue("work", max_attempts=1)
            async with desk.working(work, lease=LEASE, name="awake"):
                done = await desk.ended(job)
            moves = await desk.moves(job)
            os.kill(frozen.pid or 0, signal.SIGCONT)
            await desk.ended(await desk.enqueue("work"))

    assert done.state is State.COMPLETED
    assert moves == [Move.ENQUEUE, Move.CLAIM, Move.COMPLETE]
    assert frozen.exitcode == 0


async def test_an_idle_worker_claims_once_for_each_job(queue: QueueRef) -> None:
    """Nothing is asked for in between."""

    class Counting(InterceptedStore):
        claims = 0

        async def claim(self, *args: Any, **kwargs: Any) -> Claims:
            self.claims += 1
            return await self.real.moves.claim(*args, **kwargs)

    store = Counting()
    desk = Desk(queue, store)

    async def work() -> None: ...

    async with desk.working(work):
        await until(lambda: store.claims == 1)
        for done in range(1, 6):
            await desk.ended(await desk.enqueue("work"))
            await until(lambda wanted=done + 1: store.claims >= wanted)  # type: ignore[misc]

    assert store.claims == 6


async def test_the_end_of_a_job_does_not_end_the_pause_after_a_failure(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is down is not asked again before the pause is over."""

    class Failing(InterceptedStore):
        is_down = False
        claims = 0

        async def claim(self, *args: Any, **kwargs: Any) -> Claims:
            self.claims += 1
            if self.is_down:
                raise StoreUnavailableError("it is down")
            return await self.real.moves.claim(*args, **kwargs)

    store = Failing()
    desk = Desk(queue, store)
    go_on = asyncio.Event()
    monkeypatch.setattr(StoreBackoff, "failed", lambda *_: 3600.0)

    async def work() -> None:
        await go_on.wait()

    async with desk.working(work, concurrency=2):
        job = await desk.enqueue("work")
        await desk.reaches(job, State.ACTIVE)
        store.is_down = True
        before = store.claims
        await desk.enqueue("work")
        await until(lambda: store.claims > before)
        go_on.set()
        await desk.ended(job)
        for _ in range(100):
            await asyncio.sleep(0)

        assert store.claims == before + 1


def _run(kind: str, address: str, queue: QueueRef) -> None:
    async def work() -> None: ...

    async def run() -> None:
        [found] = [each for each in STORES if each.name == kind]
        async with opened(found.connect(address)) as store:
            worker = Desk(queue, store).worker(work, lease=LEASE, name="frozen")
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            async with asyncio.timeout(5 * PATIENCE):
                await worker.run()

    asyncio.run(run())


@contextmanager
def _process(kind: str, address: str, queue: QueueRef) -> Iterator[BaseProcess]:
    """A worker in a process of its own, which is told to stop at the end of the block."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(kind, address, queue))
    process.start()
    try:
        yield process
        process.terminate()
        process.join(PATIENCE)
    finally:
        process.kill()
        process.join()


def _freeze(process: BaseProcess) -> None:
    os.kill(process.pid or 0, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid or 0, os.WSTOPPED | os.WNOWAIT)
