"""Enqueues jobs with idempotency keys: those that may be duplicates are looked up before they are sent."""

from collections.abc import Sequence

from penstock.bloom.rotating import RotatingBloom
from penstock.client.retrying import RetryingCaller
from penstock.core.ids import queue_number
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.protocol import Store

Outcome = Enqueued | Refused


class KnownKeys:
    """Sends no payload for an idempotency key that is already held.

    A key that the filter does not know goes straight to the store, whose enqueue decides. The keys that it
    may know are looked up in one call; where a job holds one, that job is the answer, like the store's.
    """

    def __init__(self, store: Store, filter_: RotatingBloom, retrying: RetryingCaller) -> None:
        self._store = store
        self._filter = filter_
        self._retrying = retrying

    async def enqueue(
        self, queue: QueueRef, jobs: Sequence[NewJob], mode: Mode | None = None
    ) -> list[Outcome]:
        """The store's answers for the jobs, in their order; `mode` is what the caller knows of the queue."""
        out: list[Outcome | None] = await self._look_up(queue, jobs)
        rest = [new for new, answer in zip(jobs, out, strict=True) if answer is None]
        answers = iter(
            await self._retrying.call(lambda: self._store.moves.enqueue(queue, rest, mode=mode))
            if rest
            else ()
        )
        done = [next(answers) if answer is None else answer for answer in out]
        self._filter.add(
            _item(queue, new.idempotency_key)
            for new, answer in zip(jobs, done, strict=True)
            if new.idempotency_key is not None and isinstance(answer, Enqueued)
        )
        return done

    async def _look_up(self, queue: QueueRef, jobs: Sequence[NewJob]) -> list[Outcome | None]:
        """For each job the one that already holds its key; None for jobs that have to be sent."""
        out: list[Outcome | None] = [None] * len(jobs)
        # A chosen id may be taken, and an enqueue says so before it looks at the key.
        keyed = [
            (place, new.idempotency_key)
            for place, new in enumerate(jobs)
            if new.idempotency_key is not None and queue_number(new.id) is not None
        ]
        known = self._filter.maybe([_item(queue, key) for _, key in keyed])
        asked = [each for each, is_known in zip(keyed, known, strict=True) if is_known]
        if not asked:
            return out
        keys = list(dict.fromkeys(key for _, key in asked))
        found = await self._retrying.call(lambda: self._store.reads.key_holders(queue, keys))
        holders = dict(zip(keys, found, strict=True))
        self._filter.refuted(sum(holder is None for holder in found))
        for place, key in asked:
            holder, new = holders[key], jobs[place]
            # Its own id says that an earlier try brought the job in, and its answer was lost.
            if holder is not None and holder.id != new.id:
                out[place] = Enqueued(holder.id, False, holder.state, holder.digest == new.digest)
        return out


def _item(queue: QueueRef, key: str | None) -> str:
    return f"{queue}/{key}"
