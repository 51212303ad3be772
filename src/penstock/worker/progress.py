"""What handlers report while they run: the newest value of each job, sent together."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.moves import Report
from penstock.core.outcomes import Applied
from penstock.core.payload import PROGRESS_LIMIT, check_json, encode_json
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.protocol import Store
from penstock.worker.delivery import Delivery

_LOGGER: Final = logging.getLogger("penstock.worker")
EVERY: Final = 0.1
"""Seconds between two sendings; each carries the newest value of every job that has one."""


class ProgressReporter:
    """Sends progress, at most every 100 ms. `cancel_requested` is called when the store tells of one."""

    def __init__(self, store: Store, queue: QueueRef, cancel_requested: Callable[[Delivery], None]) -> None:
        self._store = store
        self._queue = queue
        self._cancel_requested = cancel_requested
        self._loop = asyncio.get_running_loop()
        self._fresh: dict[str, Delivery] = {}
        self._sending: dict[str, Delivery] = {}
        self._sent = asyncio.Condition()
        self._is_awake = False
        self._runner: asyncio.Task[None] | None = None

    def note(self, delivery: Delivery, value: Any) -> None:
        """Take a value from a handler, in any thread; PayloadError when it is not JSON."""
        check_json("progress", value, PROGRESS_LIMIT)
        encoded = encode_json("progress", value, PROGRESS_LIMIT)
        if not delivery.is_open or delivery.lease.is_lost:
            return
        delivery.progress = encoded
        delivery.has_progress = True
        self._fresh[delivery.token] = delivery
        if not self._is_awake:
            self._is_awake = True
            # A closed loop has nobody left who sends.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    async def flush(self, delivery: Delivery) -> None:
        """Send what the delivery still has to say, before its settlement makes that impossible."""
        async with self._sent:
            await self._sent.wait_for(lambda: delivery.token not in self._sending)
        if self._fresh.pop(delivery.token, None) is not None:
            await self._send([delivery])

    async def close(self) -> None:
        """Stop sending."""
        self._fresh.clear()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])

    def _wake(self) -> None:
        self._runner = self._loop.create_task(self._run())

    async def _run(self) -> None:
        while self._fresh:
            for batch in _chunks(self._fresh):
                await self._send(batch)
            await asyncio.sleep(EVERY)
        self._is_awake = False
        # A value noted between the last look and the line above did not wake anyone.
        if self._fresh:
            self._is_awake = True
            self._wake()

    async def _send(self, deliveries: Sequence[Delivery]) -> None:
        sent: list[Delivery] = []
        reports: list[Report] = []
        for delivery in deliveries:
            value = delivery.progress
            if value is not None:
                sent.append(delivery)
                reports.append(Report(delivery.job.id, delivery.token, value))
                self._sending[delivery.token] = delivery
        try:
            answers = await self._store.moves.progress(self._queue, reports)
        except StoreError as error:
            # The next value comes through, or the settlement says what matters.
            _LOGGER.debug("progress of %d jobs not kept: %s", len(reports), error)
        else:
            for delivery, answer in zip(sent, answers, strict=True):
                if isinstance(answer, Applied) and answer.cancel_requested:
                    self._cancel_requested(delivery)
        finally:
            for delivery in sent:
                self._sending.pop(delivery.token, None)
        async with self._sent:
            self._sent.notify_all()


def _chunks(fresh: dict[str, Delivery]) -> list[list[Delivery]]:
    """Everything fresh, taken out, in parts of bounded size."""
    taken: list[Delivery] = []
    while fresh:
        taken.append(fresh.popitem()[1])
    return [taken[start : start + CHUNK_JOBS] for start in range(0, len(taken), CHUNK_JOBS)]
