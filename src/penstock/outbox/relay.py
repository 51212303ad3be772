"""The relay: carries what was written into an outbox over to a store."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.client.declaring import declare
from penstock.client.producer import chunks
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import PenstockError, StoreError
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.repeated_failures import RepeatedFailures
from penstock.core.retry_pause import RetryPause
from penstock.core.unique import UniqueRule
from penstock.outbox.sources import open_outbox
from penstock.stores.outbox import OutboxEntry, OutboxMessage, OutboxSource, RejectedEntry
from penstock.stores.protocol import Store, Subscription

_LOGGER: Final = logging.getLogger("penstock.outbox")
BATCH: Final = 200
POLL: Final = 1.0
ROUND_SECONDS: Final = 4.0
"""After so long a round ends with what it has done: the outbox's transaction has a limit too."""
HOLD_SECONDS: Final = 1.0
FAULTS: Final = 5
"""So often the store may fail on a job before that is set aside."""
PAUSE: Final = RetryPause(0.1, 10.0)
_ONCE: Final = RetryingCaller(tries=1)
_DECODER: Final = msgspec.json.Decoder(OutboxMessage)


class Carried(msgspec.Struct, frozen=True):
    """What one round did. `waits` says that nothing could be carried: there is nothing, or others carry."""

    jobs: int
    failed: int
    waits: bool


class OutboxRelay:
    """Carries the jobs of an outbox, in their order per queue, to an open store.

    Any number may run on one outbox in PostgreSQL: one carries, the others stand by. A job is taken in once
    however often it is brought: by its id and nonce, and for at least a week by an idempotency key. What the
    store refuses for good is set aside with the reason.
    """

    def __init__(self, outbox: OutboxSource | str, store: Store, *, poll: float = POLL) -> None:
        self._outbox = open_outbox(outbox) if isinstance(outbox, str) else outbox
        self._store = store
        self._poll = poll
        self._opened: set[tuple[QueueRef, bytes]] = set()
        self._held: dict[QueueRef, float] = {}
        self._full: set[QueueRef] = set()
        self._faults: Counter[int] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def stop(self, now: bool = False) -> None:
        """Ask `run` to return, from any thread; what is on its way is brought to its end."""
        if self._loop is None:
            self._stopping.set()
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Carry until stopped. A database or store that is away is tried again, after growing pauses."""
        self._loop = asyncio.get_running_loop()
        _LOGGER.info("outbox relay started")
        await self._outbox.open()
        try:
            async with self._outbox.subscribe() as subscription:
                await self._run(subscription)
        finally:
            await self._outbox.close()
            _LOGGER.info("outbox relay stopped")

    async def _run(self, subscription: Subscription) -> None:
        failures, reasons = 0, RepeatedFailures()
        while not self._stopping.is_set():
            try:
                carried = await self.carry()
                failures = 0
                if reasons.over():
                    _LOGGER.info("carrying works again")
                if carried.waits:
                    await self._unless_stopped(subscription.wait(self._poll))
            except StoreError as error:
                failures += 1
                pause = PAUSE.after(failures, random.uniform)
                if reasons.is_new(error):
                    _LOGGER.warning("carrying failed, will repeat: %s", error)
                await self._unless_stopped(asyncio.sleep(pause))

    async def carry(self) -> Carried:
        """One round: carry the oldest entries over, then forget them. The outbox has to be open."""
        now = self._clock()
        self._held = {queue: until for queue, until in self._held.items() if until > now}
        async with self._outbox.next_batch(BATCH, list(self._held)) as found:
            if found is None or not found.entries:
                return Carried(0, 0, True)
            carried: list[int] = []
            failed: list[RejectedEntry] = []
            for queue, group in groupby(sorted(found.entries, key=_by_queue), key=lambda each: each.queue):
                some, refused = await self._bring(queue, list(group), now + ROUND_SECONDS)
                carried += some
                failed += refused
                if self._clock() > now + ROUND_SECONDS:
                    break
            await found.finish(carried, failed)
        for each in failed:
            about = {"tenant": each.queue.tenant, "queue": each.queue.name, "reason": each.reason}
            _LOGGER.error("entry %d was set aside", each.number, extra=about)
        return Carried(len(carried), len(failed), not carried and not failed)

    async def _bring(
        self, queue: QueueRef, entries: list[OutboxEntry], end: float
    ) -> tuple[list[int], list[RejectedEntry]]:
        """Bring entries of one queue; the numbers of those taken in, and those that never will be."""
        good: list[tuple[int, NewJob]] = []
        failed: list[RejectedEntry] = []
        for entry in entries:
            try:
                good.append((entry.number, await self._unpacked(entry)))
            except (PenstockError, msgspec.MsgspecError) as error:
                if isinstance(error, StoreError):
                    raise
                failed.append(RejectedEntry(entry.number, queue, f"{type(error).__name__}: {error}"))
        carried: list[int] = []
        start, is_full = 0, False
        for chunk in chunks([new for _, new in good]):
            some, start = good[start : start + len(chunk)], start + len(chunk)
            for (number, new), answer in zip(some, await self._answers(queue, some), strict=False):
                if isinstance(answer, Enqueued):
                    carried.append(number)
                elif isinstance(answer, Refused) and answer.why is Refusal.FULL:
                    self._hold(queue)
                    is_full = True
                else:
                    failed.append(RejectedEntry(number, queue, _reason(new, answer)))
            if queue in self._held or self._clock() > end:
                break
        self._tell(queue, is_full=is_full)
        return carried, failed

    def _tell(self, queue: QueueRef, *, is_full: bool) -> None:
        """Say once that a queue is full, and once that it is no longer."""
        about = {"tenant": queue.tenant, "queue": queue.name}
        if is_full and queue not in self._full:
            self._full.add(queue)
            _LOGGER.warning("the queue is full: its entries wait in the outbox", extra=about)
        elif not is_full and queue in self._full:
            self._full.discard(queue)
            _LOGGER.info("the queue takes jobs again", extra=about)

    async def _unpacked(self, entry: OutboxEntry) -> NewJob:
        """The job of an entry, for a queue that is open and declared."""
        message = _DECODER.decode(entry.body)
        declared = entry.queue, msgspec.json.encode(message.declaration)
        if declared not in self._opened:
            await declare(self._store, entry.queue, message.declaration, _ONCE, is_producer=True)
            self._opened.add(declared)
        new = message.job
        if new.unique is not None and new.unique.rule is UniqueRule.DEBOUNCE:
            return new
        # A delay counts from when it was asked for.
        return replace(new, delay_ms=max(0, new.delay_ms - entry.waited_ms))

    async def _answers(
        self, queue: QueueRef, good: Sequence[tuple[int, NewJob]]
    ) -> list[Enqueued | Refused | Exception]:
        """The store's answers, up to the first job that it fails on."""
        try:
            return list(await self._store.moves.enqueue(queue, [new for _, new in good]))
        except Exception as error:  # noqa: BLE001 (whatever one job does to a store, others are carried)
            _raise_outage(error)
        out: list[Enqueued | Refused | Exception] = []
        for number, new in good:
            try:
                out += await self._store.moves.enqueue(queue, [new])
            except Exception as error:  # noqa: BLE001 (as above)
                _raise_outage(error)
                self._faults[number] += 1
                if self._faults[number] < FAULTS:
                    self._hold(queue)
                    return out
                del self._faults[number]
                out.append(error)
        return out

    def _hold(self, queue: QueueRef) -> None:
        """Leave a queue alone for a while; what is behind the entry waits with it, and other queues go on."""
        self._held[queue] = self._clock() + HOLD_SECONDS

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def _unless_stopped(self, work: Coroutine[Any, Any, object]) -> None:
        waits = [asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


def _raise_outage(error: Exception) -> None:
    """A store that is away, full or of another version has nothing against the job."""
    if isinstance(error, StoreError) and type(error) is not StoreError:
        raise error


def _by_queue(entry: OutboxEntry) -> tuple[str, str]:
    return entry.queue.tenant, entry.queue.name


def _reason(new: NewJob, answer: Refused | Exception) -> str:
    if isinstance(answer, Refused):
        return {
            Refusal.DUPLICATE: f"the id {new.id!r} is taken by another job, {answer.state}",
            Refusal.KEYLESS: "the jobs of the queue need a key, and this one has none",
        }.get(answer.why, str(answer.why))
    return f"{type(answer).__name__}: {answer}"
