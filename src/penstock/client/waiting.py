"""Waiting for jobs to end: one read for all waiting calls, at every notification of the queue."""

import asyncio
from typing import Final

from penstock.client.retrying import RetryingCaller
from penstock.core.errors import JobNotFoundError, PenstockError, ResultTimeoutError
from penstock.core.job import Job, QueueRef
from penstock.stores.protocol import Store
from penstock.stores.values import Topic

FIRST_POLL: Final = 0.1
LONGEST_POLL: Final = 5.0
LOOK_LIMIT: Final = 200


class EndingWatcher:
    """Those who wait for jobs of one queue, on one event loop."""

    def __init__(self, store: Store, queue: QueueRef, retrying: RetryingCaller) -> None:
        self._store = store
        self._queue = queue
        self._retrying = retrying
        self._waiting: dict[str, set[asyncio.Future[Job]]] = {}
        self._runner: asyncio.Task[None] | None = None
        self._is_listening = False
        self._poll = FIRST_POLL

    async def ended(self, job: str, timeout: float | None) -> Job:
        """The record once the job has ended."""
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, set()).add(future)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                if self._is_listening:
                    # It may have ended before; from here on the subscription is notified.
                    self._poll = FIRST_POLL
                    await self._look([job])
                else:
                    self._listen()
                return await future
        except TimeoutError:
            if not limit.expired():
                raise
            raise ResultTimeoutError(f"job {self._queue}/{job} did not end within {timeout} s") from None
        finally:
            self._forget(job, future)

    async def close(self) -> None:
        """Stop; those who still wait get an error."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])
        for future in self._futures():
            future.set_exception(PenstockError("the app was closed while a result was waited for"))

    def _listen(self) -> None:
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._store.notifier.subscribe(self._queue, Topic.ENDED) as subscription:
                self._is_listening = True
                self._poll = FIRST_POLL
                while self._waiting:
                    await self._look(list(self._waiting))
                    poll, self._poll = self._poll, min(2 * self._poll, LONGEST_POLL)
                    if await subscription.wait(poll):
                        self._poll = FIRST_POLL
                self._is_listening = False
        except Exception as error:  # noqa: BLE001 (handed on to those who wait)
            for future in self._futures():
                future.set_exception(error)
        finally:
            self._is_listening = False
            self._runner = None
        if self._futures():
            # A call began to wait while the subscription was closed.
            self._listen()

    async def _look(self, jobs: list[str]) -> None:
        for start in range(0, len(jobs), LOOK_LIMIT):
            ids = jobs[start : start + LOOK_LIMIT]
            found = await self._retrying.call(lambda ids=ids: self._store.reads.get(self._queue, ids))  # type: ignore[misc]
            for each, record in zip(ids, found, strict=True):
                self._tell(each, record)

    def _tell(self, job: str, record: Job | None) -> None:
        for future in self._waiting.get(job, ()):
            if future.done():
                continue
            if record is None:
                future.set_exception(
                    JobNotFoundError(f"no job {self._queue}/{job}: pruned, deleted or never there")
                )
            elif record.state.is_ended:
                future.set_result(record)

    def _futures(self) -> list["asyncio.Future[Job]"]:
        return [each for futures in self._waiting.values() for each in futures if not each.done()]

    def _forget(self, job: str, future: "asyncio.Future[Job]") -> None:
        futures = self._waiting[job]
        futures.discard(future)
        if not futures:
            del self._waiting[job]
        if future.done() and not future.cancelled():
            # Read, so that an error nobody waited for any longer is not reported as lost.
            future.exception()
