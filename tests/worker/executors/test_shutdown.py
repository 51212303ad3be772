"""A worker told to stop, with handlers that make it hard: it ends, and no job waits for a lease."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.core.job import Job, NewJob, Options, QueueRef
from penstock.core.states import State
from penstock.stores.sqlite.store import SqliteStore
from penstock.worker.pool import ECHO
from tests.docs.pages import ROOT
from tests.worker.executors.kit import is_alive, pid_in
from tests.worker.kit import eventually

HOW = ("ends", "ignores", "blocks", "spawns")
DRAIN = 2.0
START = 60.0
BOUND = 30.0
"""Seconds: the drain, and each step after it at its longest, on a machine that is busy."""


@pytest.mark.parametrize("times", [1, 2], ids=["SIGTERM", "SIGTERM twice"])
@pytest.mark.parametrize("tier", ["inline", "thread", "process", "subprocess"])
async def test_a_worker_stops_whatever_its_handlers_do_and_gives_their_jobs_back(
    tmp_path: Path, tier: str, times: int
) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    queue = QueueRef("default", tier)
    await store.open()
    payload = f'{{"folder":"{tmp_path}"}}'.encode()
    # A lease that no test waits for.
    await store.enqueue(
        queue,
        [
            NewJob(id=how, nonce="n", task=f"{tier}.{how}", payload=payload, options=Options(max_attempts=3))
            for how in HOW
        ],
    )
    with _worker(tmp_path, tier) as worker:
        pids = {how: await pid_in(tmp_path / how, START) for how in HOW}
        worker.send_signal(signal.SIGTERM)
        if times == 2:
            # The same signal within that time is taken for an echo of the first.
            await asyncio.sleep(ECHO + 0.1)
            worker.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.wait, BOUND)
        jobs = await _jobs(store, queue)
        leases = await store.leases(queue)
    await store.close()

    assert code == 0
    assert leases == []
    assert {jobs[how].state for how in HOW} <= {State.PENDING, State.COMPLETED}
    assert {jobs[how].attempts for how in HOW} == {0}
    if times == 1:
        assert jobs["ends"].state is State.COMPLETED
    assert jobs["ignores"].state is State.PENDING
    if tier != "thread":
        # A thread cannot be ended, nor what it started be told from what others did.
        assert [how for how in HOW if is_alive(pids[how])] == []
    elif is_alive(pids["spawns"]):
        os.kill(pids["spawns"], signal.SIGKILL)


@pytest.mark.parametrize("times", [1, 2], ids=["SIGTERM", "SIGTERM twice"])
async def test_a_handler_that_blocks_the_event_loop_holds_neither_the_process_nor_its_jobs(
    tmp_path: Path, times: int
) -> None:
    store, queue = SqliteStore(tmp_path / "jobs.db"), QueueRef("default", "inline")
    await store.open()
    payload = f'{{"folder":"{tmp_path}"}}'.encode()
    with _worker(tmp_path, "inline") as worker:
        for how in ("waits", "holds"):
            await store.enqueue(queue, [NewJob(id=how, nonce="n", task=f"inline.{how}", payload=payload)])
            await pid_in(tmp_path / how, START)
        worker.send_signal(signal.SIGTERM)
        if times == 2:
            await asyncio.sleep(ECHO + 0.1)
            worker.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.wait, BOUND)
        found = await store.get(queue, ["waits", "holds"])
        leases = await store.leases(queue)
    await store.close()

    assert code == 1
    assert leases == []
    assert [(job.state, job.attempts) for job in found if job] == [(State.PENDING, 0)] * 2


async def test_a_worker_that_is_killed_leaves_no_process_of_its_handlers(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    payload = f'{{"folder":"{tmp_path}"}}'.encode()
    for tier in ("process", "subprocess"):
        new = NewJob(id="a", nonce="n", task=f"{tier}.spawns", payload=payload, options=Options())
        await store.enqueue(QueueRef("default", tier), [new])
        with _worker(tmp_path, tier) as worker:
            pid = await pid_in(tmp_path / "spawns", START)
            worker.kill()
            worker.wait()

            async def is_gone(pid: int = pid) -> bool:
                return not is_alive(pid)

            await eventually(is_gone)
        (tmp_path / "spawns").unlink()
    await store.close()


async def _jobs(store: SqliteStore, queue: QueueRef) -> dict[str, Job]:
    found = await store.get(queue, HOW)
    return {job.id: job for job in found if job is not None}


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
