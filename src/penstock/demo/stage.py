"""The demo itself: enqueue, work, kill, recover, and ask for the verdict."""

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
from penstock.demo.crew import Crew
from penstock.demo.diary import REF, Diary
from penstock.demo.jobs import build
from penstock.demo.plan import Fate, Planned, plan
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from penstock.tasks.task import Task

CHUNK: Final = 100
LOOK_SECONDS: Final = 0.1
PATIENCE_SECONDS: Final = 120.0


class Show(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and whom to tell: `say` gets sentences, `progress` the number of ended jobs."""

    directory: Path
    jobs: int
    workers: int
    seed: int
    inject_loss: bool
    say: Callable[[str], None]
    progress: Callable[[dict[State, int]], None]


async def perform(show: Show) -> Report:
    """The whole demo, from an empty file to the report."""
    began = time.monotonic()
    file = show.directory / "jobs.db"
    url = f"sqlite:///{file}?durability=server"
    producer, handlers = show.directory / "produced.jsonl", show.directory / "executed.jsonl"
    Diary(handlers).close()
    store = open_store(url)
    await store.open()
    try:
        await store.open_queue(REF)
        async with Crew(url, show.directory) as crew:
            for _ in range(show.workers):
                await crew.hire()
            show.say(f"{show.workers} worker processes started on {file}")
            killed = asyncio.Event()
            producing = asyncio.create_task(_produce(url, producer, show, killed))
            try:
                orphaned, injected = await _watch(show, store, crew, file, producing, killed)
            finally:
                producing.cancel()
                # It has the files open until it has ended.
                await asyncio.wait([producing])
            await crew.dismiss()
        show.say("all workers stopped; checking the records of producer and handlers against the event log")
        verdict, produced, executions = await audit(store, producer, handlers)
    finally:
        await store.close()
    return Report(
        produced=produced,
        executions=executions,
        orphaned=orphaned,
        seconds=time.monotonic() - began,
        seed=show.seed,
        injected=injected,
        verdict=verdict,
    )


async def _produce(url: str, path: Path, show: Show, killed: asyncio.Event) -> None:
    diary = Diary(path)
    app, work = build(url)
    planned = list(plan(show.jobs, show.seed))
    async with app:
        for start in range(0, show.jobs, CHUNK):
            if start > 0 and start >= show.jobs * 3 // 4:
                # The last quarter comes after the kill, however fast the workers are.
                await killed.wait()
            sent = await work.enqueue_many([_call(work, each) for each in planned[start : start + CHUNK]])
            diary.write(*((handle.id,) for handle in sent))
    diary.close()


def _call(work: Task[Any, [int, Fate, int], int], each: Planned) -> Any:
    return work.options(delay=each.delay_ms / 1000).call(each.number, each.fate, each.work_ms)


async def _watch(
    show: Show, store: Store, crew: Crew, file: Path, producing: "asyncio.Task[None]", killed: asyncio.Event
) -> tuple[int, str | None]:
    orphaned, injected = 0, None
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        # Asked before counting: what is enqueued in between must not be missed.
        is_complete = producing.done()
        counts = await store.counts(REF)
        show.progress(counts)
        live = sum(counts[state] for state in LIVE)
        ended = sum(counts.values()) - live
        if not killed.is_set() and ended >= show.jobs // 2:
            if show.inject_loss:
                injected = await _drop(file)
                show.say(f"dropped job {injected} behind the store's back")
            name, orphaned = await crew.kill_one(store)
            show.say(f"{name} killed with SIGKILL; it left {orphaned} running jobs behind")
            show.say(f"{await crew.hire()} started in its place")
            killed.set()
        if producing.done():
            producing.result()
        if is_complete and live == 0:
            return orphaned, injected
        crew.check()
        if time.monotonic() > give_up:
            raise PenstockError(f"after {PATIENCE_SECONDS:.0f} s {live} jobs are still live: {counts}")
        await asyncio.sleep(LOOK_SECONDS)


async def _drop(file: Path) -> str:
    """Delete a waiting job's row directly in the file, as no store ever would."""
    while True:
        with closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as base:
            row = base.execute(
                "DELETE FROM job WHERE n = (SELECT n FROM job WHERE state IN ('pending', 'delayed') LIMIT 1) "
                "RETURNING id"
            ).fetchall()
        if row:
            return str(row[0][0])
        await asyncio.sleep(LOOK_SECONDS)
