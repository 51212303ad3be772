"""Workers of many queues in one process: what they share, and that every queue is served."""

import asyncio
import threading

import pytest

from penstock import Penstock
from penstock.core.errors import StoreUnavailableError
from penstock.worker.pool import WorkerPool
from tests.worker.kit import eventually

SECONDS = 20.0


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


async def test_the_queues_of_a_process_share_one_lease_renewer() -> None:
    app = Penstock("memory://")
    done: list[str] = []
    for number in range(10):

        @app.queue(f"q{number}").task(name=f"work{number}")
        async def work() -> None:
            done.append("")
            await asyncio.sleep(0)

    worker = app.worker()
    async with app:
        running = asyncio.create_task(worker.run())
        for number in range(10):
            await app.task_named(f"work{number}").enqueue()

        async def all_done() -> bool:
            return len(done) == 10

        await eventually(all_done)
        threads = names_of_threads()
        worker.stop()
        await running

    assert threads.count("penstock-leases") == 1
    assert "penstock-leases" not in names_of_threads()


async def test_every_failure_of_a_pool_is_retrieved() -> None:
    class Failing:
        def stop(self, now: bool = False) -> None:
            pass

        async def run(self) -> None:
            await asyncio.sleep(0)
            raise StoreUnavailableError("gone")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    with pytest.raises(StoreUnavailableError):
        await WorkerPool([Failing(), Failing(), Failing()]).run()
    import gc

    gc.collect()

    assert told == []
