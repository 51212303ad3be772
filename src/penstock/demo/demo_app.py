"""The app of the demo: one task that behaves as its job plans, and records each execution."""

import asyncio
from typing import Any

from penstock.app import Penstock
from penstock.core.retry import Backoff
from penstock.demo.job_plan import MAX_ATTEMPTS, QUEUE, Behavior
from penstock.demo.record_file import RecordFile
from penstock.tasks.context import JobContext
from penstock.tasks.signals import Fail
from penstock.tasks.task import Task

BACKOFF_SECONDS = 0.2


class PlannedError(Exception):
    """The error that the plan of a job asks for."""


def build(
    url: str, records: RecordFile | None = None
) -> tuple[Penstock, Task[Any, [int, Behavior, int], int]]:
    """The app and its task; workers pass the file to record executions in."""
    app = Penstock(url)
    queue = app.queue(QUEUE, max_attempts=MAX_ATTEMPTS, backoff=Backoff.fixed(BACKOFF_SECONDS))

    @queue.task(name="work")
    async def work(ctx: JobContext, number: int, behavior: Behavior, work_ms: int) -> int:
        if records is not None:
            records.write((ctx.id, ctx.delivery, ctx.fence))
        await asyncio.sleep(work_ms / 1000)
        match behavior:
            case Behavior.FAILS_ALWAYS:
                raise PlannedError(f"job {number} fails every time")
            case Behavior.FAILS_ONCE if ctx.attempt == 1:
                raise PlannedError(f"job {number} fails once")
            case Behavior.FAILS_FOR_GOOD:
                raise Fail("there is no point in trying again")
            case _:
                return number

    return app, work
