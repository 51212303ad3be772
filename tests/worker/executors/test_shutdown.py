"""A worker told to stop, with handlers that make it hard: it ends, and no job waits for a lease."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.states import State
from penstock.stores.sqlite.store import SqliteStore
from penstock.worker.pool import ECHO
from tests.docs.pages import ROOT
from tests.kit.waiting import eventually
from tests.worker.executors.kit import is_alive, pid_in

HOW = ("ends", "ignores", "blocks", "spawns")
TIERS = ("inline", "thread", "process", "subprocess")
TIMES = {"SIGTERM": 1, "SIGTERM twice": 2}
DRAIN = 2.0
BOUND = 30.0
"""Seconds: the drain, and each step after it at its longest, on a machine that is busy."""
AT_ONCE = 6
"""Workers that are stopped at the same time: most of their time they wait."""


class Stopped(NamedTuple):
    """What was there after a worker had been told to stop."""

    code: int
    jobs: dict[str, Job]
    leases: int
    survivors: list[str]
    """Handlers whose process, or what it started, is still there."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], Stopped]]:
    """How a worker of each tier stopped, told once or twice; `held` has a blocked event loop."""
    cases: dict[tuple[str, int], Sequence[str]] = {(tier, times): HOW for tier in TIERS for times in (1, 2)}
    cases |= {("held", times): ("waits", "holds") for times in (1, 2)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {
            case: pool.submit(asyncio.run, _stop(tmp_path_factory.mktemp("stopped"), *case, handlers))
            for case, handlers in cases.items()
        }
        yield lambda tier, times: runs[tier, times].result()


async def _stop(folder: Path, tier: str, times: int, handlers: Sequence[str]) -> Stopped:
    store, queue = SqliteStore(folder / "jobs.db"), QueueRef("default", tier)
    await store.open()
    payload = f'{{"folder":"{folder}"}}'.encode()
    jobs = [NewJob(id=how, nonce="n", task=f"{tier}.{how}", payload=payload) for how in handlers]
    pids: dict[str, int] = {}
    with _worker(folder, tier) as worker:
        # The one that holds the event loop lets nobody begin after it.
        for each in [[job] for job in jobs] if tier == "held" else [jobs]:
            await store.moves.enqueue(queue, each)
            pids |= {job.id: await pid_in(folder / job.id) for job in each}
        worker.send_signal(signal.SIGTERM)
        if times == 2:
            # The same signal within that time is taken for an echo of the first.
            await asyncio.sleep(ECHO + 0.1)  # real time: the worker's own clock tells an echo
            worker.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.wait, BOUND)
        found = await store.reads.get(queue, handlers)
        leases = await store.reads.leases(queue)
    await store.close()
    survivors = [how for how in handlers if is_alive(pids[how])]
    if tier == "thread" and "spawns" in survivors:
        os.kill(pids["spawns"], signal.SIGKILL)
    return Stopped(code, {job.id: job for job in found if job}, len(leases), survivors)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("tier", TIERS)
def test_a_worker_stops_whatever_its_handlers_do_and_gives_their_jobs_back(
    stopped: Callable[[str, int], Stopped], tier: str, times: str
) -> None:
    found = stopped(tier, TIMES[times])

    assert (found.code, found.leases) == (0, 0)
    assert {job.state for job in found.jobs.values()} <= {State.PENDING, State.COMPLETED}
    assert {job.attempts for job in found.jobs.values()} == {0}
    if times == "SIGTERM":
        assert found.jobs["ends"].state is State.COMPLETED
    assert found.jobs["ignores"].state is State.PENDING
    if tier != "thread":
        # A thread cannot be ended, nor what it started be told from what others did.
        assert found.survivors == []


@pytest.mark.parametrize("times", TIMES)
def test_a_handler_that_blocks_the_event_loop_holds_neither_the_process_nor_its_jobs(
    stopped: Callable[[str, int], Stopped], times: str
) -> None:
    found = stopped("held", TIMES[times])

    assert (found.code, found.leases) == (1, 0)
    assert [(job.state, job.attempts) for job in found.jobs.values()] == [(State.PENDING, 0)] * 2


async def test_a_worker_that_is_killed_leaves_no_process_of_its_handlers(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    payload = f'{{"folder":"{tmp_path}"}}'.encode()
    for tier in ("process", "subprocess"):
        new = NewJob(id="a", nonce="n", task=f"{tier}.spawns", payload=payload)
        await store.moves.enqueue(QueueRef("default", tier), [new])
        with _worker(tmp_path, tier) as worker:
            pid = await pid_in(tmp_path / "spawns")
            worker.kill()
            worker.wait()

            async def is_gone(pid: int = pid) -> bool:
                return not is_alive(pid)

            await eventually(is_gone)
        (tmp_path / "spawns").unlink()
    await store.close()


class _worker:  # noqa: N801 (reads like a function)
    """`penstock worker` as a process, killed at the end if it is still there."""

    def __init__(self, folder: Path, queue: str) -> None:
        self._folder = folder
        self._queue = queue

    def __enter__(self) -> "subprocess.Popen[bytes]":
        started = time.monotonic()
        self._log = (self._folder / f"log-{started}").open("wb")
        self._popen = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.cli",
                "worker",
                "tests.worker.executors.shutdown_app:app",
                f"--queues={self._queue}=4",
                f"--shutdown-timeout={DRAIN}",
                # A lease that no test waits for.
                "--lease=10m",
            ],
            cwd=ROOT,
            env=os.environ | {"PENSTOCK_URL": f"sqlite:///{self._folder}/jobs.db"},
            stderr=self._log,
        )
        return self._popen

    def __exit__(self, *_: object) -> None:
        self._popen.kill()
        self._popen.wait()
        self._log.close()
