"""A deploy that brings a task, while workers of both versions are replaced one by one."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from penstock.client.jobs import new_job
from penstock.core.history import Produced
from penstock.core.job import NewJob
from penstock.core.moves import Move
from penstock.core.states import LIVE, State
from penstock.stores.protocol import Store
from penstock.stores.values import Query, Topic
from tests.reliability.deploying import KNOWN, NEW, Deploy, make_app
from tests.reliability.grounds import Ground
from tests.reliability.hands import QUEUE
from tests.reliability.stage import ended, events_of, verdict_of

pytestmark = pytest.mark.torture

WORKERS = 4
REPLACED = 10
SLICES = 20
BACKLOG = 500
"""Pending jobs at most before more are enqueued."""
PATIENCE = 120.0
LATEST_MS = 60_000
"""So long after a worker that knows its task is up, a job is executed at the latest."""
ALONE_SECONDS = 5.0
"""How long old workers have jobs of the new task before any new worker is up."""


async def test_a_new_task_loses_no_job_while_workers_are_replaced(
    ground: Ground, chance: random.Random, scale: float
) -> None:
    """Half of 10,000 jobs are of a task that old workers do not know; each job may be tried once only."""
    numbers = range(int(10_000 * scale))
    deploy = Deploy(ground.url)
    async with ground.open() as store:
        jobs = _jobs(ground.url, [NEW if chance.random() < 0.5 else KNOWN for _ in numbers])
        slices = [jobs[start::SLICES] for start in range(SLICES)]
        with deploy.at_work():
            for _ in range(WORKERS):
                await asyncio.to_thread(deploy.start, is_new=False)
            await _enqueue(store, slices[0])
            await asyncio.sleep(chance.uniform(0, ALONE_SECONDS))
            codes = [await _replace(deploy, 0, is_new=True)]
            up = await store.clock.now()
            codes.append(await _replace(deploy, 0, is_new=True))
            codes += await _roll(deploy, store, chance, slices[1:], int(REPLACED * scale))
            print(f"workers of the new version at the end: {sum(deploy.versions)} of {WORKERS}", flush=True)
            await ended(store, QUEUE, patience=LATEST_MS / 1000 + PATIENCE)
            codes += [await asyncio.to_thread(deploy.stop, 0) for _ in range(WORKERS)]
        verdict = await verdict_of(store, [Produced(QUEUE, job.id) for job in jobs])
        latest, sent_back = await _latest(store, up)
        counts = await store.reads.counts(QUEUE)

    print(f"latest {latest} ms, sent back {sent_back} times", flush=True)
    assert [str(breach) for breach in verdict.breaches[:10]] == []
    assert counts[State.COMPLETED] == len(jobs) == sum(counts.values())
    assert latest <= LATEST_MS
    assert sent_back > 0, "no old worker saw the new task: nothing was shown"
    assert set(codes) == {0}


async def test_known_jobs_are_served_behind_a_crowd_of_unknown_ones(
    ground: Ground, chance: random.Random, scale: float
) -> None:
    """10,000 jobs of a task that no worker knows are ahead of 500 that each worker knows."""
    unknown = _jobs(ground.url, [NEW] * int(10_000 * scale))
    known = _jobs(ground.url, [KNOWN] * 500, start=len(unknown))
    deploy = Deploy(ground.url)
    async with ground.open() as store:
        await _enqueue(store, unknown)
        await _enqueue(store, known)
        with deploy.at_work():
            for _ in range(2):
                await asyncio.to_thread(deploy.start, is_new=False)
            began = time.monotonic()
            async with (
                asyncio.timeout(LATEST_MS / 1000),
                store.notifier.subscribe(QUEUE, Topic.ENDED) as subscription,
            ):
                while (await store.reads.counts(QUEUE))[State.COMPLETED] < len(known):
                    await subscription.wait(0.5)
            print(f"known jobs served after {time.monotonic() - began:.1f} s", flush=True)
            codes = [await asyncio.to_thread(deploy.stop, 0) for _ in range(2)]
        verdict = await verdict_of(store, [Produced(QUEUE, job.id) for job in [*unknown, *known]])
        counts = await store.reads.counts(QUEUE)
        page = await store.reads.find(QUEUE, Query(states=LIVE, limit=1_000, payloads=False))

    assert [str(breach) for breach in verdict.breaches[:10]] == []
    assert sum(counts[state] for state in LIVE) == len(unknown)
    assert {(job.task, job.attempts) for job in page.jobs} == {(NEW, 0)}
    assert set(codes) == {0}


async def _roll(
    deploy: Deploy, store: Store, chance: random.Random, slices: Sequence[Sequence[NewJob]], count: int
) -> list[int | None]:
    """Enqueue the slices while workers are replaced by either version; two new ones and an old one stay.

    A job of the new task that only one of four workers knows is sent back some twenty times now and then,
    for a second or three each time.
    """
    codes: list[int | None] = []
    at = sorted(chance.randrange(len(slices)) for _ in range(count))
    for number, some in enumerate(slices):
        # What is timed is how jobs find their workers, not how many a loaded machine executes in a second.
        async with asyncio.timeout(PATIENCE):
            while (await store.reads.counts(QUEUE))[State.PENDING] > BACKLOG:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await _enqueue(store, some)
        for _ in range(at.count(number)):
            place = chance.randrange(WORKERS)
            others = [version for index, version in enumerate(deploy.versions) if index != place]
            new = sum(others)
            is_new = new < 2 or (new < WORKERS - 1 and chance.random() < 0.5)
            codes.append(await _replace(deploy, place, is_new=is_new))
    return codes


async def _replace(deploy: Deploy, place: int, *, is_new: bool) -> int | None:
    """As most deploys do: the new one is up before the other is stopped."""
    await asyncio.to_thread(deploy.start, is_new=is_new)
    return await asyncio.to_thread(deploy.stop, place)


def _jobs(url: str, tasks: Sequence[str], *, start: int = 0) -> list[NewJob]:
    app = make_app(url, is_new=True)
    return [
        new_job(app.task_named(task).call(number), f"job-{number}")
        for number, task in enumerate(tasks, start)
    ]


async def _enqueue(store: Store, jobs: Sequence[NewJob]) -> None:
    for start in range(0, len(jobs), 500):
        await store.moves.enqueue(QUEUE, jobs[start : start + 500])


async def _latest(store: Store, up: int) -> tuple[int, int]:
    """The longest time from when a job could be executed to its completion, and how often any was sent back.

    Jobs of the new task could be executed from `up` on.
    """
    could: dict[str, int] = {}
    latest, moves = 0, Counter[Move]()
    async for event in events_of(store, QUEUE):
        moves[event.move] += 1
        if event.job is None:
            continue
        if event.move is Move.ENQUEUE:
            could[event.job] = max(event.at, up) if event.task == NEW else event.at
        elif event.move is Move.COMPLETE:
            latest = max(latest, event.at - could[event.job])
    return latest, moves[Move.SNOOZE]
