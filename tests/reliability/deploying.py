"""Worker processes of two versions of one app, replaced one by one as a rolling deploy does."""

import asyncio
import logging
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import msgspec

from penstock import Penstock
from tests.reliability.hands import PRELOADED, QUEUE

KNOWN = "known"
NEW = "new"
LEASE = 30.0
SECONDS = 60.0


def make_app(url: str, *, is_new: bool) -> Penstock:
    """The app before and after the deploy that brings a task. A job that is tried twice counts as a fault."""
    app = Penstock(url)
    queue = app.queue(QUEUE.name, max_attempts=1)

    @queue.task(name=KNOWN)
    async def known(number: int) -> int:
        await asyncio.sleep(0.005)
        return number

    if is_new:

        @queue.task(name=NEW)
        async def new(number: int) -> int:
            await asyncio.sleep(0.005)
            return number

    return app


def _work(url: str, is_new: bool, concurrency: int, up: Connection) -> None:
    app = make_app(url, is_new=is_new)
    # That a task is not known is part of the plan here.
    logging.getLogger("penstock").setLevel(logging.CRITICAL)

    async def run() -> None:
        async with app:
            pool = app.worker({QUEUE.name: concurrency}, lease=LEASE, poll=0.5, shutdown_timeout=20)
            running = asyncio.create_task(pool.run(handle_signals=True))
            # Nothing tells of the handler but the handler.
            while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            up.close()
            await running

    asyncio.run(run())


class _Member(msgspec.Struct, frozen=True, eq=False):
    process: BaseProcess
    up: Connection
    is_new: bool


class Deploy:
    """Workers of the old version and of the new one, each stopped as a deploy stops it: by SIGTERM."""

    def __init__(self, url: str, *, concurrency: int = 10) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, "tests.reliability.deploying"])
        self._url = url
        self._concurrency = concurrency
        self._members: list[_Member] = []

    @contextmanager
    def at_work(self) -> Iterator["Deploy"]:
        """None of the workers outlives the block."""
        try:
            yield self
        finally:
            for member in self._members:
                member.process.kill()
                member.process.join(10)
                member.up.close()

    @property
    def versions(self) -> list[bool]:
        """Whether each worker is of the new version."""
        return [member.is_new for member in self._members]

    def start(self, *, is_new: bool) -> None:
        """Start a worker; it is at work when this returns."""
        up, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(self._url, is_new, self._concurrency, theirs))
        process.start()
        # The pipe ends when the worker closes it: then it handles signals, or is gone.
        theirs.close()
        assert up.poll(SECONDS), "the worker did not start"
        assert process.is_alive(), f"the worker ended with {process.exitcode}"
        self._members.append(_Member(process, up, is_new))

    def stop(self, place: int) -> int | None:
        """Ask a worker to end, and wait for that; its exit code."""
        member = self._members.pop(place)
        member.process.terminate()
        member.process.join(SECONDS)
        member.up.close()
        return member.process.exitcode
