"""Worker processes for the torture: quick to start, easy to kill, each handler a witness of its own."""

import asyncio
import logging
import multiprocessing
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from penstock import Backoff, Fail, JobContext, Penstock
from penstock.core.errors import StoreUnavailableError
from penstock.core.history import Executed
from penstock.core.job import QueueRef

QUEUE = QueueRef("default", "torture")
FAR = QueueRef("default", "torture-far")
LEASE = 1.5
PRELOADED = [
    "pytest",
    "tests.reliability.hands",
    "penstock.app.pool",
    "penstock.worker.worker",
    "penstock.stores.sqlite",
    "penstock.stores.redis",
]


def make_app(url: str, witness: Path, pause: float) -> Penstock:
    """An app whose handlers write down each execution before they do anything else."""
    app = Penstock(url)
    near, far = (app.queue(ref.name, max_attempts=20, backoff=Backoff.fixed(0.05)) for ref in (QUEUE, FAR))
    out = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write_down(ref: QueueRef, ctx: JobContext) -> None:
        os.write(out, f"{ref.name} {ctx.id} {ctx.delivery} {ctx.fence}\n".encode())

    @near.task(name="step")
    async def step(ctx: JobContext, number: int) -> int:
        write_down(QUEUE, ctx)
        await asyncio.sleep(random.uniform(0, 2 * pause))
        if number % 7 == 0 and ctx.attempt == 1:
            raise RuntimeError(f"job {number} stumbles once")
        if number % 50 == 0:
            raise Fail("not this one")
        return number

    @far.task(name="far-step")
    async def far_step(ctx: JobContext, number: int) -> int:
        write_down(FAR, ctx)
        await asyncio.sleep(random.uniform(0, 2 * pause))
        if number % 7 == 0 and ctx.attempt == 1:
            raise RuntimeError(f"job {number} stumbles once")
        return number

    @near.task(name="last")
    async def last(ctx: JobContext) -> None:
        write_down(QUEUE, ctx)

    @near.task(name="doomed", max_attempts=2)
    async def doomed(ctx: JobContext, number: int) -> None:
        write_down(QUEUE, ctx)
        raise RuntimeError(f"job {number} never works")

    return app


def executions(witness: Path) -> Iterator[Executed]:
    """What the handlers wrote down; a line cut short by a kill counts as not written."""
    for line in witness.read_text().splitlines():
        queue, job, delivery, fence = line.split(" ")
        yield Executed(QueueRef(QUEUE.tenant, queue), job, int(delivery), int(fence))


def _work(url: str, witness: Path, pause: float, slots: dict[str, int], up: Connection) -> None:
    app = make_app(url, witness, pause)
    # Failures are part of the plan here.
    logging.getLogger("penstock").setLevel(logging.CRITICAL)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            while not app.is_open:
                # Without its store it would end, and whoever looks after it start it again.
                try:
                    await stack.enter_async_context(app)
                except StoreUnavailableError:
                    await asyncio.sleep(0.05)
            pool = app.worker(slots, lease=LEASE, poll=0.5, shutdown_timeout=5)
            running = asyncio.create_task(pool.run(handle_signals=True))
            # Nothing tells of the handler but the handler.
            while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            up.close()
            await running

    asyncio.run(run())


class Hands:
    """Worker processes that are killed without warning and replaced."""

    def __init__(
        self,
        url: str,
        witness: Path,
        *,
        count: int,
        pause: float,
        concurrency: int,
        queues: Sequence[QueueRef] = (QUEUE,),
    ) -> None:
        # A fork server keeps the imports, so that a worker is at work within milliseconds of its start.
        # Whatever runs as the main module is run again in each: with pytest at hand that is quick too.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._args = (url, witness, pause, {queue.name: concurrency for queue in queues})
        self._count = count
        self._processes: dict[BaseProcess, Connection] = {}

    @contextmanager
    def at_work(self) -> Iterator["Hands"]:
        """Start them all; none outlives the block."""
        try:
            for _ in range(self._count):
                self._hire()
            yield self
        finally:
            for process in self._processes:
                process.kill()
                process.join(10)
                self._processes[process].close()

    def kill(self, chance: random.Random) -> None:
        """SIGKILL one of them, and put another in its place."""
        victim = chance.choice(list(self._processes))
        os.kill(victim.pid or 0, signal.SIGKILL)
        victim.join(10)
        self._processes.pop(victim).close()
        self._hire()

    @property
    def are_up(self) -> bool:
        """True when one of them has come to work."""
        return any(up.poll() for up in self._processes.values())

    def dismiss(self) -> list[int | None]:
        """Ask all to stop, once they can be asked; their exit codes."""
        for process, up in self._processes.items():
            up.poll(30)
            process.terminate()
        for process in self._processes:
            process.join(30)
        return [process.exitcode for process in self._processes]

    def _hire(self) -> None:
        up, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(*self._args, theirs))
        process.start()
        # The pipe ends when the worker closes it: then it handles signals, or is gone.
        theirs.close()
        self._processes[process] = up
