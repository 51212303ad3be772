"""SQLite under fire: more processes than cores on one file."""

import asyncio
import multiprocessing
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from penstock.core.job import NewJob
from penstock.core.moves import Beat, Complete
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.sqlite import SqliteStore
from penstock.stores.values import Durability
from tests.conformance.stores import opened
from tests.reliability.hands import QUEUE

pytestmark = pytest.mark.torture


async def test_sixteen_processes_share_one_file(tmp_path: Path, scale: float) -> None:
    """Nobody ever hears that the database is locked."""
    path, seconds = str(tmp_path / "jobs.db"), 15 * scale
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_share, args=(path, f"p{i}", seconds)) for i in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, 120 + seconds)

    assert [process.exitcode for process in processes] == [0] * 16
    async with _opened(path) as store:
        counts = await store.reads.counts(QUEUE)
        assert counts[State.ACTIVE] == 0
        assert await store.health.check(QUEUE) == []
    print(f"{counts[State.COMPLETED]} jobs by 16 processes", flush=True)


def _share(path: str, name: str, seconds: float) -> None:
    async def run() -> None:
        async with _opened(path) as store:
            end = asyncio.get_running_loop().time() + seconds
            number = 0
            while asyncio.get_running_loop().time() < end:
                batch = [f"{name}-{number + i}" for i in range(5)]
                number += 5
                await store.moves.enqueue(
                    QUEUE, [NewJob(id=job, nonce=job, task="t", payload=b"{}") for job in batch]
                )
                claims = await store.moves.claim(QUEUE, worker=name, limit=5, lease_ms=60_000)
                await store.moves.heartbeat(QUEUE, [Beat(job.id, job.token) for job in claims.jobs], 60_000)
                await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
                await store.reads.counts(QUEUE)

    asyncio.run(run())


def _opened(path: str) -> AbstractAsyncContextManager[Store]:
    return opened(SqliteStore(path, durability=Durability.SERVER))
