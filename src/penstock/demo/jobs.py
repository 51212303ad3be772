"""The demo's app: one task that does what its job is fated to do, and writes down that it ran."""

import asyncio
from typing import Any

from penstock.app import Penstock
from penstock.core.retry import Backoff
from penstock.demo.diary import Diary
from penstock.demo.plan import MAX_ATTEMPTS, QUEUE, Fate
from penstock.tasks.context import JobContext
from penstock.tasks.signals import Fail
from penstock.tasks.task import Task

BACKOFF_SECONDS = 0.2


class Unlucky(Exception):
    """What a job is fated to raise."""


def build(url: str, diary: Diary | None = None) -> tuple[Penstock, Task[Any, [int, Fate, int], int]]:
    """The app and its task; producers need no diary of executions."""
    app = Penstock(url)
    queue = app.queue(QUEUE, max_attempts=MAX_ATTEMPTS, backoff=Backoff.fixed(BACKOFF_SECONDS))

    @queue.task(name="work")
    async def work(ctx: JobContext, number: int, fate: Fate, work_ms: int) -> int:
        if diary is not None:
            diary.write((ctx.id, ctx.delivery, ctx.fence))
        await asyncio.sleep(work_ms / 1000)
        match fate:
            case Fate.DOOMED:
                raise Unlucky(f"job {number} fails every time")
            case Fate.FLAKY if ctx.attempt == 1:
                raise Unlucky(f"job {number} fails once")
            case Fate.REFUSED:
                raise Fail("there is no point in trying again")
            case _:
                return number

    return app, work
