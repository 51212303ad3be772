"""A worker that is frozen while its claim stands, as a process of its own."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from tests.conformance.stores import opened
from tests.stores.redis.operating import tell
from tests.worker.kit import Desk, eventually

LEASE = 4.0
POLL = 2.0
LONG = 300.0


async def test_a_frozen_worker_gets_one_job_and_does_not_begin_it_once_its_lease_is_over(
    url: str, operator: Redis, queue: QueueRef
) -> None:
    """Another one runs it, and the next ones meanwhile; the frozen one goes on with what comes then."""

    async def work() -> None: ...

    async def stands() -> bool:
        return bool(await tell(operator, "HGET", keys_of(queue).meta, "standing"))

    async with opened(RedisStore(url)) as store:
        desk = Desk(queue, store)
        with _process(url, queue) as frozen:
            await eventually(stands)
            _freeze(frozen)
            first = await desk.enqueue("work")
            leased = await desk.job(first)
            second = await desk.enqueue("work")
            async with desk.working(work, lease=LEASE, poll=POLL, name="awake"):
                await desk.ended(second)
                done = await desk.ended(first)
            moves = await desk.moves(first)
            os.kill(frozen.pid or 0, signal.SIGCONT)
            later = await desk.enqueue("work")
            await desk.ended(later)
            events = await desk.events(first) + await desk.events(later)

        assert await store.check(queue) == []
    ends = [event.worker for event in events if event.move is Move.COMPLETE]

    assert (leased.state, leased.worker) == (State.ACTIVE, "frozen")
    assert done.state is State.COMPLETED
    assert moves[:3] == [Move.ENQUEUE, Move.CLAIM, Move.EXPIRE]
    assert moves[-2:] == [Move.CLAIM, Move.COMPLETE]
    assert ends == ["awake", "frozen"]
    assert frozen.exitcode == 0


def _run(url: str, queue: QueueRef) -> None:
    async def work() -> None: ...

    async def run() -> None:
        async with opened(RedisStore(url)) as store:
            worker = Desk(queue, store).worker(work, lease=LEASE, poll=POLL, name="frozen")
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            async with asyncio.timeout(LONG):
                await worker.run()

    asyncio.run(run())


@contextmanager
def _process(url: str, queue: QueueRef) -> Iterator[BaseProcess]:
    """The worker, which stops at the end of the block."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(url, queue))
    process.start()
    try:
        yield process
        process.terminate()
        process.join(30)
    finally:
        process.kill()
        process.join()


def _freeze(process: BaseProcess) -> None:
    os.kill(process.pid or 0, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid or 0, os.WSTOPPED | os.WNOWAIT)
