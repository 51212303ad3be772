"""Soft limits of handlers in the worker itself."""

import asyncio

from penstock.core.errors import SoftTimeoutError
from penstock.core.states import State
from penstock.tasks.context import JobContext
from penstock.tasks.execution import Execution
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from penstock.worker.worker import Worker
from tests.kit.waiting import block_until
from tests.worker.kit import Desk


def _worker(desk: Desk, *functions: object) -> Worker:
    made = Registry()
    for function in functions:
        made.add(
            Task(
                function,  # type: ignore[arg-type]
                name=function.__name__,  # type: ignore[attr-defined]
                queue="q",
                sender=None,  # type: ignore[arg-type]
                execution=Execution(soft_timeout_ms=50),
            )
        )
    return Worker(desk.store, desk.queue, made, burst=True, tick=60.0)


async def test_a_soft_limit_cancels_a_coroutine(desk: Desk) -> None:
    async def heeds() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "what was there"
        return "all"

    async def passes_on() -> None:
        await asyncio.sleep(60)

    good, bad = await desk.enqueue("heeds"), await desk.enqueue("passes_on", max_attempts=1)
    await _worker(desk, heeds, passes_on).run()
    found = await desk.job(bad)

    assert (await desk.job(good)).result == b'"what was there"'
    assert (found.state, found.reason) == (State.DEAD, "TIMEOUT")
    assert (found.error or "").startswith("SoftTimeoutError: the execution took longer than 0.05 s")


async def test_a_soft_limit_is_told_to_a_thread(desk: Desk) -> None:
    def looks(ctx: JobContext) -> str:
        block_until(lambda: ctx.is_cancelled)
        return "what was there"

    job = await desk.enqueue("looks")
    await _worker(desk, looks).run()

    assert (await desk.job(job)).result == b'"what was there"'


async def test_a_soft_limit_that_a_handler_raises_itself_is_a_timeout(desk: Desk) -> None:
    async def gives_up() -> None:
        raise SoftTimeoutError("enough")

    job = await desk.enqueue("gives_up", max_attempts=1)
    await _worker(desk, gives_up).run()

    assert (await desk.job(job)).reason == "TIMEOUT"
