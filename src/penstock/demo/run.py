"""Running the demo: enqueue jobs, start workers, kill one, and check the result."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.states import LIVE, State
from penstock.demo.audit import Report, audit
from penstock.demo.demo_app import build
from penstock.demo.job_plan import Behavior, PlannedJob, plan
from penstock.demo.record_file import REF, RecordFile
from penstock.demo.worker_processes import WorkerProcesses
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from penstock.tasks.task import Task

CHUNK: Final = 100
POLL_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 120.0


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run the demo. `print_line` gets lines of text, `progress` the number of jobs per state."""

    directory: Path
    jobs: int
    workers: int
    seed: int
    inject_loss: bool
    print_line: Callable[[str], None]
    progress: Callable[[dict[State, int]], None]


async def run_demo(options: DemoOptions) -> Report:
    """Run the whole demo, from an empty store to the report."""
    began = time.monotonic()
    file = options.directory / "jobs.db"
    url = f"sqlite:///{file}?durability=server"
    producer, handlers = options.directory / "produced.jsonl", options.directory / "executed.jsonl"
    RecordFile(handlers).close()
    store = open_store(url)
    await store.open()
    try:
        await store.queues.open_queue(REF)
        async with WorkerProcesses(url, options.directory) as workers:
            for _ in range(options.workers):
                await workers.start()
            options.print_line(f"{options.workers} worker processes started on {file}")
            killed = asyncio.Event()
            producing = asyncio.create_task(_produce(url, producer, options, killed))
            try:
                orphaned, injected = await _watch(options, store, workers, file, producing, killed)
            finally:
                producing.cancel()
                # The producer has files open until it ends.
                await asyncio.wait([producing])
            await workers.stop_all()
        options.print_line(
            "all workers stopped; checking the records of producer and handlers against the event log"
        )
        verdict, produced, executions = await audit(store, producer, handlers)
    finally:
        await store.close()
    return Report(
        produced=produced,
        executions=executions,
        orphaned=orphaned,
        seconds=time.monotonic() - began,
        seed=options.seed,
        injected=injected,
        verdict=verdict,
    )


async def _produce(url: str, path: Path, options: DemoOptions, killed: asyncio.Event) -> None:
    records = RecordFile(path)
    app, work = build(url)
    planned = list(plan(options.jobs, options.seed))
    async with app:
        for start in range(0, options.jobs, CHUNK):
            if start > 0 and start >= options.jobs * 3 // 4:
                # The last quarter is enqueued after the kill, however fast the workers are.
                await killed.wait()
            sent = await work.enqueue_many([_call(work, each) for each in planned[start : start + CHUNK]])
            records.write(*((handle.id,) for handle in sent))
    records.close()


def _call(work: Task[Any, [int, Behavior, int], int], each: PlannedJob) -> Any:
    return work.options(delay=each.delay_ms / 1000).call(each.number, each.behavior, each.work_ms)


async def _watch(
    options: DemoOptions,
    store: Store,
    workers: WorkerProcesses,
    file: Path,
    producing: "asyncio.Task[None]",
    killed: asyncio.Event,
) -> tuple[int, str | None]:
    orphaned, injected = 0, None
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while True:
        # Read before the jobs are counted: otherwise jobs enqueued in between would be missed.
        is_complete = producing.done()
        counts = await store.reads.counts(REF)
        options.progress(counts)
        live = sum(counts[state] for state in LIVE)
        ended = sum(counts.values()) - live
        if not killed.is_set() and ended >= options.jobs // 2:
            if options.inject_loss:
                injected = await _delete_waiting_job(file)
                options.print_line(f"deleted job {injected} behind the store's back")
            name, orphaned = await workers.kill_one(store)
            options.print_line(f"{name} killed with SIGKILL; it left {orphaned} running jobs behind")
            options.print_line(f"{await workers.start()} started in its place")
            killed.set()
        if producing.done():
            producing.result()
        if is_complete and live == 0:
            return orphaned, injected
        workers.check()
        if time.monotonic() > give_up:
            raise PenstockError(f"after {TIMEOUT_SECONDS:.0f} s {live} jobs are still live: {counts}")
        await asyncio.sleep(POLL_SECONDS)


async def _delete_waiting_job(file: Path) -> str:
    """Delete the row of a waiting job directly in the file, behind the store's back."""
    while True:
        with closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as connection:
            row = connection.execute(
                "DELETE FROM job WHERE n = (SELECT n FROM job WHERE state IN ('pending', 'delayed') LIMIT 1) "
                "RETURNING id"
            ).fetchall()
        if row:
            return str(row[0][0])
        await asyncio.sleep(POLL_SECONDS)
