"""A worker that is stopped past its lease, with real processes and real signals."""

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

from penstock import JobContext, Penstock
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from tests.kit.waiting import PATIENCE, SLOWNESS, block_until, until

LEASE = 2.0 * SLOWNESS
QUEUE = QueueRef("default", "default")


def _work(url: str, folder: Path, name: str) -> None:
    """One worker whose handler says that it runs, waits for leave to end, and says that it ended."""
    app = Penstock(url)

    @app.task(name="slow", max_attempts=5, backoff="default")
    def slow(ctx: JobContext) -> str:
        (folder / f"{name}-runs").write_text(str(ctx.fence))
        block_until((folder / f"{name}-may-end").exists)
        (folder / f"{name}-ended").touch()
        return name

    async def run() -> None:
        async with app:
            await app.worker({"default": 1}, lease=LEASE, poll=0.2, name=name).run(handle_signals=True)

    asyncio.run(run())


def _start(url: str, folder: Path, name: str) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(url, folder, name))
    process.start()
    return process


def _stop(process: BaseProcess, path: Path) -> None:
    """Stop it while it is not writing: stopped with the file's lock, it would stop everybody."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        os.kill(process.pid or 0, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid or 0, os.WSTOPPED | os.WNOWAIT)
        connection.execute("ROLLBACK")


async def _appears(path: Path) -> None:
    await until(path.exists, f"the file {path.name}")


async def test_a_stopped_worker_cannot_settle_what_another_took_over(tmp_path: Path) -> None:
    """It wakes up, its handler returns, and the second worker's result stands."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = Penstock(url)
    async with app:
        app.queue("default")
        slow = app.by_name("slow", queue="default")
        zombie = _start(url, tmp_path, "first")
        try:
            job = await slow.enqueue()
            await _appears(tmp_path / "first-runs")
            _stop(zombie, tmp_path / "jobs.db")
            other = _start(url, tmp_path, "second")
            await _appears(tmp_path / "second-runs")
            (tmp_path / "first-may-end").touch()
            os.kill(zombie.pid or 0, signal.SIGCONT)
            await _appears(tmp_path / "first-ended")
            # The stopped one has now returned; whatever it tries, the lease is another's.
            zombie.terminate()
            await asyncio.to_thread(zombie.join, PATIENCE)
            status_between = await job.status()
            (tmp_path / "second-may-end").touch()
            result = await job.result(timeout=PATIENCE)
            other.terminate()
            await asyncio.to_thread(other.join, PATIENCE)
        finally:
            for process in multiprocessing.active_children():
                process.kill()
        store = app.store
        events = await store.events.read_events(QUEUE)

    assert status_between is State.ACTIVE
    assert result == "second"
    assert [event.worker for event in events if event.move is Move.COMPLETE] == ["second"]
    fences = [int((tmp_path / f"{name}-runs").read_text()) for name in ("first", "second")]
    assert fences[0] < fences[1]
    assert zombie.exitcode == 0
    assert other.exitcode == 0
