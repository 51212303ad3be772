"""What an owner does to a queue as a whole: pause, purge, drain, delete, look at its numbers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from penstock.bloom.rotating import RotatingBloom
from penstock.client.job_filter import JobFilter, matching_pages
from penstock.client.queue_stats import read_stats
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import OptionError, QueueNotEmptyError, ResultTimeoutError, UnknownQueueError
from penstock.core.job import Job, QueueRef
from penstock.core.limits import KeyRule
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import LIVE, WAITING, State
from penstock.core.stats import QueueStats
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo, Pause, Query, QueueContents, Topic

_LOGGER: Final = logging.getLogger("penstock.client")
PAGE: Final = 500
LONGEST_POLL: Final = 2.0
ENDED: Final = frozenset(State) - LIVE
Move = Callable[[QueueRef, Sequence[str]], Awaitable[Sequence[Applied | Refused]]]


class QueueAdministration:
    """Works on one queue of an open store."""

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        retrying: RetryingCaller,
        removed: RotatingBloom | None = None,
    ) -> None:
        self._store = store
        self._queue = queue
        self._retrying = retrying
        self._removed = removed

    async def counts(self) -> dict[State, int]:
        """Jobs per state, zeros included."""
        return await self._retrying.call(lambda: self._store.reads.counts(self._queue))

    async def stats(self, since_ms: int) -> QueueStats:
        """What happened in the last `since_ms` milliseconds."""
        return await self._retrying.call(lambda: read_stats(self._store, self._queue, since_ms))

    async def keys(self) -> list[KeyInfo]:
        """Keys with waiting or running jobs, or a rule of their own."""
        return await self._retrying.call(lambda: self._store.queues.list_keys(self._queue))

    async def set_key(self, key: str, rule: KeyRule | None) -> None:
        """Change what the rule names of a key; None takes its rule back."""
        await self._retrying.call(lambda: self._store.queues.set_key_rule(self._queue, key, rule))

    async def pause(self, reason: str | None, by: str | None, for_ms: int | None) -> None:
        """Stop claims; what runs goes on."""
        pause = Pause(at=0, reason=reason, by=by)
        await self._retrying.call(lambda: self._store.queues.pause_queue(self._queue, pause, for_ms))

    async def resume(self) -> None:
        """Allow claims again."""
        await self._retrying.call(lambda: self._store.queues.pause_queue(self._queue, None))

    async def purge(self, states: Iterable[State | str] | None) -> int:
        """Delete what is not running and in one of these states; how many jobs that were."""
        chosen = WAITING if states is None else check_states(states)
        if not chosen or State.ACTIVE in chosen:
            raise OptionError("states", states, "some states, and not active: what runs cannot be deleted")
        query, deleted = Query(states=chosen, limit=PAGE, payloads=False, results=False), 0
        filtered = self._removed
        while True:
            page = await self._store.reads.find(self._queue, query)
            ids = [job.id for job in page.jobs]
            if filtered is not None:
                # Other purges here are at these; what they, or the filter, leave behind is listed once more.
                items = [f"{self._queue}/{job}" for job in ids]
                known = filtered.maybe(items)
                filtered.add(items)
                ids = [job for job, is_known in zip(ids, known, strict=True) if not is_known]
            if ids:
                answers = await self._store.moves.delete(self._queue, ids)
                deleted += sum(isinstance(answer, Applied) for answer in answers)
            if page.next is not None:
                query = replace(query, after=page.next)
            elif filtered is not None:
                filtered, query = None, replace(query, after=None)
            else:
                return deleted

    async def jobs(self, wanted: JobFilter, limit: int) -> list[Job]:
        """Jobs that are meant, the newest first, without results."""
        now, found = await self._retrying.call(self._store.clock.now), list[Job]()
        async for page in matching_pages(self._store.reads, self._queue, wanted, now, limit=limit):
            found += page
        return found

    async def retry_all(self, wanted: JobFilter, limit: int | None) -> int:
        """Run the jobs that are meant again, in their order; how many there were."""
        return await self._all(self._store.moves.redrive, wanted, limit)

    async def cancel_all(self, wanted: JobFilter, limit: int | None) -> int:
        """Cancel the jobs that are meant; how many there were."""
        return await self._all(self._store.moves.cancel, wanted, limit)

    async def delete_all(self, wanted: JobFilter, limit: int | None) -> int:
        """Delete the jobs that are meant; how many there were."""
        return await self._all(self._store.moves.delete, wanted, limit)

    async def _all(self, move: Move, wanted: JobFilter, limit: int | None) -> int:
        now, done = await self._retrying.call(self._store.clock.now), 0
        pages = matching_pages(self._store.reads, self._queue, wanted, now, limit=limit, oldest_first=True)
        async for page in pages:
            answers = await move(self._queue, [job.id for job in page])
            done += sum(isinstance(answer, Applied) for answer in answers)
        return done

    async def delete(self, *, purge: bool) -> int:
        """Delete the queue; with `purge` its ended jobs first, of which the answer says how many.

        UnknownQueueError when there is no such queue, QueueNotEmptyError when something is still there.
        """
        if await self._retrying.call(lambda: self._store.queues.find_queue(self._queue)) is None:
            raise UnknownQueueError(f"no queue {str(self._queue)!r}")
        purged = await self.purge(ENDED) if purge else 0
        # None where an earlier try whose answer was lost has deleted it, or somebody else.
        left = await self._retrying.call(lambda: self._store.queues.delete_queue(self._queue))
        if left is not None and not left.is_empty:
            raise not_empty(self._queue, left)
        _LOGGER.info("queue deleted", extra={"queue": str(self._queue), "purged": purged})
        return purged

    async def drain(self, timeout: float | None) -> None:
        """Wait until nothing is live; ResultTimeoutError when that takes longer."""
        limit = asyncio.timeout(timeout)
        live = 0
        try:
            async with limit, self._store.notifier.subscribe(self._queue, Topic.ENDED) as subscription:
                while True:
                    counts = await self.counts()
                    live = sum(counts[state] for state in LIVE)
                    if not live:
                        return
                    await subscription.wait(LONGEST_POLL)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ResultTimeoutError(
                f"queue {str(self._queue)!r} still has {live} live jobs after {timeout} s"
            ) from None


def not_empty(queue: QueueRef, left: QueueContents) -> QueueNotEmptyError:
    """The error for a queue that could not be deleted, with what to do about what is still there."""
    advice = []
    if any(left.jobs.get(state) for state in WAITING):
        advice.append("cancel or purge the jobs that wait")
    if left.jobs.get(State.ACTIVE):
        advice.append("wait for the jobs that run")
    if any(left.jobs.get(state) for state in ENDED):
        advice.append("purge the jobs that ended")
    if left.schedules:
        advice.append("remove its schedules")
    if left.relays:
        advice.append("let a worker or scheduler carry its relay entries over")
    found = f"queue {str(queue)!r} was not deleted: found {left}"
    return QueueNotEmptyError(f"{found}; first {', '.join(advice)}", left.found)


def check_states(states: Iterable[State | str]) -> frozenset[State]:
    """The states; OptionError for one that there is not."""
    return frozenset(_state(each) for each in states)


def _state(value: State | str) -> State:
    try:
        return State(value)
    except ValueError:
        raise OptionError("states", value, f"some of {', '.join(State)}") from None
