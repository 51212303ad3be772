"""SQLite under fire: workers killed at random, and more processes than cores on one file."""

import asyncio
import multiprocessing
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.core.history import Produced
from penstock.core.job import NewJob
from penstock.core.moves import Beat, Complete
from penstock.core.states import State
from tests.reliability.hands import QUEUE, Hands, make_app
from tests.reliability.stage import OpenSqlite, ended, verdict_on

pytestmark = pytest.mark.torture


async def test_nothing_is_lost_while_workers_are_killed(
    tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """4 worker processes on one file, 300 SIGKILLs, 5,000 jobs: the checker and the fsck find nothing."""
    jobs, kills = int(5_000 * scale), int(300 * scale)
    path, witness = tmp_path / "jobs.db", tmp_path / "executed"
    url = f"sqlite:///{path}?durability=server"
    app = make_app(url, witness, 0)
    produced: list[Produced] = []
    async with app:
        hands = Hands(url, witness, count=4, pause=0.2, concurrency=6)
        with hands.at_work():
            done = 0
            for start in range(0, jobs, 250):
                numbers = range(start, min(start + 250, jobs))
                step, doomed = app.task_named("step"), app.task_named("doomed")
                handles = await step.enqueue_many([(number,) for number in numbers if number % 97])
                handles += await doomed.enqueue_many([(number,) for number in numbers if not number % 97])
                produced += [Produced(QUEUE, handle.id) for handle in handles]
                while done < kills * min(1.0, len(produced) / jobs):
                    await asyncio.sleep(chance.uniform(0, 0.3))
                    hands.kill(chance)
                    done += 1
            print(f"{done} kills, {len(produced)} jobs", flush=True)
            async with OpenSqlite(path) as store:
                await ended(store, QUEUE)
                codes = hands.dismiss()
                verdict = await verdict_on(store, produced, witness)
                findings = await store.check(QUEUE)
        print(msgspec.json.encode(msgspec.structs.replace(verdict, breaches=())).decode(), flush=True)

    assert [str(breach) for breach in verdict.breaches[:10]] == []
    assert findings == []
    command = [sys.executable, "-m", "penstock.cli", "doctor", "--url", url]
    doctor = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert codes == [0, 0, 0, 0]
    assert verdict.completed + verdict.failed + verdict.dead == jobs == verdict.enqueued
    assert verdict.recovered > 0


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
    async with OpenSqlite(path) as store:
        counts = await store.counts(QUEUE)
        assert counts[State.ACTIVE] == 0
        assert await store.check(QUEUE) == []
    print(f"{counts[State.COMPLETED]} jobs by 16 processes", flush=True)


def _share(path: str, name: str, seconds: float) -> None:
    async def run() -> None:
        async with OpenSqlite(path) as store:
            end = asyncio.get_running_loop().time() + seconds
            number = 0
            while asyncio.get_running_loop().time() < end:
                batch = [f"{name}-{number + i}" for i in range(5)]
                number += 5
                await store.enqueue(
                    QUEUE, [NewJob(id=job, nonce=job, task="t", payload=b"{}") for job in batch]
                )
                claims = await store.claim(QUEUE, worker=name, limit=5, lease_ms=60_000)
                await store.heartbeat(QUEUE, [Beat(job.id, job.token) for job in claims.jobs], 60_000)
                await store.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
                await store.counts(QUEUE)

    asyncio.run(run())
