"""A worker whose event loop is blocked leaves, also where its log lines cannot be written."""

import asyncio
import logging
import os
import threading

import pytest

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.worker import blocked_loop
from tests.kit.waiting import PATIENCE
from tests.worker.kit import Desk


class _Holder:
    shutdown_timeout = 0.0
    has_given_back = False

    async def give_back(self) -> int:
        self.has_given_back = True
        return 1


def test_a_log_that_blocks_keeps_nobody_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    is_free, left = threading.Event(), threading.Event()

    class _Blocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_free.wait()

    holder, handler, logger = _Holder(), _Blocked(), logging.getLogger("penstock.worker")
    monkeypatch.setattr(blocked_loop, "GRACE", 0.0)
    monkeypatch.setattr(blocked_loop, "LOG", 0.05)
    monkeypatch.setattr(logging, "shutdown", is_free.wait)
    monkeypatch.setattr(os, "_exit", lambda code: left.set())
    # The line is written when the test has ended: to its own handler alone.
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)
    try:
        blocked_loop.Watch([holder]).begin(is_urgent=True)
        assert left.wait(PATIENCE)
        assert holder.has_given_back
    finally:
        is_free.set()
        logger.removeHandler(handler)


async def test_what_did_not_get_through_to_the_loop_is_given_back_too(queue: QueueRef) -> None:
    """A claim whose answer waits, or a job that was handed over: the store knows whose they are."""
    desk = Desk(queue)
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    async with desk.working(work, concurrency=1) as worker:
        running = await desk.enqueue("work")
        await desk.reaches(running, State.ACTIVE)
        unseen = await desk.enqueue("work")
        await desk.store.moves.claim(queue, worker=worker.name, limit=1, lease_ms=30_000)
        given_back = await worker.give_back()
        states = [(await desk.job(job)).state for job in (running, unseen)]
        go_on.set()

    assert given_back == 2
    assert states == [State.PENDING, State.PENDING]
