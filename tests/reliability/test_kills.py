"""Workers and servers killed at random, under jobs that share keys, fail and are enqueued all the while."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.client.jobs import new_job
from penstock.core.errors import StoreUnavailableError
from penstock.core.history import Declared, Produced
from penstock.core.job import NewJob
from penstock.core.limits import Declaration, Mode
from penstock.core.outcomes import Enqueued
from penstock.core.states import State
from penstock.stores.protocol import Store
from tests.reliability.grounds import Ground
from tests.reliability.hands import QUEUE, Hands, make_app
from tests.reliability.stage import Havoc, ended, key_peak, verdict_on

pytestmark = pytest.mark.torture

KEYS = 50
LIMITS = Declaration(mode=Mode.KEYED, key_limit=2)
SLICE = 250


async def test_nothing_is_lost_while_workers_and_servers_are_killed(
    ground: Ground, tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """4 worker processes, 10,000 jobs, 300 SIGKILLs of workers and 20 of the server: no promise is broken."""
    jobs = int(10_000 * scale)
    witness = tmp_path / "executed"
    app = make_app(ground.url, witness, 0)
    async with ground.open() as store:
        declared = Declared(await store.clock.now() - 1, LIMITS)
        await store.queues.declare(QUEUE, LIMITS)
        producer = Producer(store, app, random.Random(chance.random()))
        hands = Hands(ground.url, witness, count=4, pause=0.1, concurrency=12)
        havoc = Havoc(chance, hands, ground, kills=int(300 * scale), crashes=int(20 * scale), pauses=(0, 0.4))
        with hands.at_work():
            for start in range(0, jobs, SLICE):
                numbers = range(start, min(start + SLICE, jobs))
                async with asyncio.TaskGroup() as group:
                    group.create_task(producer.enqueue(numbers))
                    group.create_task(havoc.go_on(numbers.stop / jobs))
            print(f"{havoc}, {producer}", flush=True)
            await ended(store, QUEUE)
            codes = hands.dismiss()
        verdict = await verdict_on(store, producer.produced, witness, limits={QUEUE: [declared]})
        peak = await key_peak(store)

        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert await store.health.check(QUEUE) == []
        assert await store.queues.list_keys(QUEUE) == []
        assert await store.reads.leases(QUEUE) == []
        counts = await store.reads.counts(QUEUE)
    assert sum(counts.values()) == jobs == verdict.enqueued
    assert counts[State.COMPLETED] + counts[State.FAILED] + counts[State.DEAD] == jobs
    assert counts[State.DEAD] == len(range(0, jobs, 97))
    assert verdict.recovered > 0
    assert peak == LIMITS.key_limit, "the limit was never reached: nothing was shown"
    assert codes == [0, 0, 0, 0]
    command = [sys.executable, "-m", "penstock.cli", "doctor", "--url", ground.url]
    doctor = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


class Producer:
    """Enqueues a few jobs at a time, and the same ones once more when it got no answer."""

    def __init__(self, store: Store, app: Penstock, chance: random.Random) -> None:
        self.produced: list[Produced] = []
        self._store = store
        self._app = app
        self._chance = chance
        self._unanswered = self._found = 0

    def __str__(self) -> str:
        return (
            f"{len(self.produced)} jobs, {self._unanswered} calls unanswered, {self._found} of them applied"
        )

    async def enqueue(self, numbers: range) -> None:
        """One job per number; every 97th can only die."""
        while numbers:
            count = self._chance.randint(1, 2)
            some, numbers = numbers[:count], numbers[count:]
            await self._enqueue([self._job(number) for number in some])
            # Not all at once: calls are to be under way when the server goes.
            await asyncio.sleep(self._chance.uniform(0, 0.016))

    def _job(self, number: int) -> NewJob:
        task = self._app.task_named("step" if number % 97 else "doomed")
        return new_job(task.options(key=f"k{number % KEYS}").call(number), f"job-{number}")

    async def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        ids = [job.id for job in jobs]
        is_repeated = False
        while True:
            try:
                if is_repeated:
                    self._found += all(await self._store.reads.get(QUEUE, ids))
                    is_repeated = False
                answers = await self._store.moves.enqueue(QUEUE, jobs)
            except StoreUnavailableError:
                self._unanswered += not is_repeated
                is_repeated = True
                await asyncio.sleep(0.05)
            else:
                # Also the second answer is about jobs of its own.
                assert [isinstance(each, Enqueued) and each.created and each.id for each in answers] == ids
                self.produced += [Produced(QUEUE, job) for job in ids]
                return
