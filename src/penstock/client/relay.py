"""Carries over what one queue has for others: jobs, more children, endings of children.

The order of a queue's entries is kept: an entry is applied only after all before it were applied, by this run
or by one that removed them. Runs may overlap and may stop anywhere: applying an entry again changes nothing.

Some entries cannot be carried over for a while: a job for a queue that is full, and whatever is for a queue
that cannot be reached, as on a node of a cluster that is away. They stay, and hold back what belongs to them
(a job's children, and whatever is addressed to it) but nothing else, since the endings that make room may
well stand behind them. Within one call there is no room for a child where there was none for its parent. A
job that can never be taken in ends for its parents as if it was deleted.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from penstock.core.errors import StoreUnavailableError
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.stores.bounds import CHUNK_BYTES, RELAY_LIMIT
from penstock.stores.protocol import Store
from penstock.stores.values import Adoption, Relay

_LOGGER: Final = logging.getLogger("penstock.relay")
MOST_HELD: Final = 10_000
"""Entries that one run looks past when they cannot be carried over yet."""
PORTION: Final = 128
"""Entries that are read at a time, while they are small."""
LARGE_PORTION: Final = 16
"""The same of entries that are large together: each can have a payload of a mebibyte."""


async def relay(store: Store, queue: QueueRef, *, limit: int = RELAY_LIMIT) -> int:
    """Carry over the next entries of a queue, `limit` of them at most; how many were.

    Fewer than `limit` means that nothing else can be carried over now. Where nothing was because a queue
    cannot be reached, that error is raised.
    """
    run = _Run(store, queue)
    carried = after = 0
    portion = PORTION
    while carried < limit and len(run.held) < MOST_HELD:
        wanted = min(portion, limit - carried)
        entries = await store.flows.list_relay_entries(queue, wanted, after=after)
        done = await run.carry(entries)
        if done:
            await store.flows.delete_relay_entries(queue, done)
            carried += len(done)
        if len(entries) < wanted:
            break
        after = entries[-1].number
        portion = PORTION if sum(map(size_of, entries)) < CHUNK_BYTES else LARGE_PORTION
    if run.failure is not None and not carried:
        raise run.failure
    return carried


class _Run:
    """One pass over the entries of a queue."""

    def __init__(self, store: Store, queue: QueueRef) -> None:
        self._store = store
        self._queue = queue
        self.held: set[int] = set()
        self._late: set[JobRef] = set()
        """Jobs that are not in their queue yet, or do not know all their children."""
        self._away: set[QueueRef] = set()
        self.failure: StoreUnavailableError | None = None
        """Why a queue could not be reached."""

    async def carry(self, entries: Sequence[Relay]) -> list[int]:
        """Apply entries in their order; the numbers of those that are dealt with."""
        done: list[int] = []
        for queue, group in _groups(entries):
            target = QueueRef(self._queue.tenant, queue)
            free = [entry for entry in group if not self._waits(entry)]
            if free and target not in self._away:
                try:
                    done += await self._apply(target, free)
                    continue
                except StoreUnavailableError as error:
                    # What was applied is applied again when the queue is back.
                    self._away.add(target)
                    self.failure = error
            for entry in free:
                self._hold(entry)
        return done

    async def _apply(self, target: QueueRef, entries: Sequence[Relay]) -> list[int]:
        """Apply entries of one kind to their queue; the numbers of those that are dealt with."""
        match entries[0].what:
            case NewJob():
                return await self._jobs(target, entries)
            case Adoption():
                adoptions = [entry.what for entry in entries if isinstance(entry.what, Adoption)]
                await self._store.flows.adopt(target, adoptions)
            case _:
                # Refused where the parent is gone or waits no longer: then nobody wants to know.
                endings = [entry.what for entry in entries if isinstance(entry.what, ChildEnding)]
                await self._store.flows.child_ended(target, endings)
        return [entry.number for entry in entries]

    def _waits(self, entry: Relay) -> bool:
        """True when the entry belongs to a job that is not in its queue yet; it is held back, too."""
        what = entry.what
        needed = what.parents if isinstance(what, NewJob) else (JobRef(entry.queue, what.parent),)
        is_early = not self._late.isdisjoint(needed)
        if is_early:
            self._hold(entry)
        return is_early

    def _hold(self, entry: Relay) -> None:
        self.held.add(entry.number)
        match entry.what:
            case NewJob(id=job):
                self._late.add(JobRef(entry.queue, job))
            case Adoption(parent=parent):
                # A child that ended before its parent knows of it would be waited for for ever.
                self._late.add(JobRef(entry.queue, parent))

    async def _jobs(self, target: QueueRef, entries: Sequence[Relay]) -> list[int]:
        jobs = [entry.what for entry in entries if isinstance(entry.what, NewJob)]
        answers = await self._store.moves.enqueue(target, jobs)
        done: list[int] = []
        for entry, new, answer in zip(entries, jobs, answers, strict=True):
            if isinstance(answer, Refused) and answer.why is Refusal.FULL:
                self._hold(entry)
                continue
            if isinstance(answer, Refused) or answer.id != new.id:
                await self._lost(target, new, answer)
            done.append(entry.number)
        return done

    async def _lost(self, target: QueueRef, new: NewJob, answer: Enqueued | Refused) -> None:
        """Tell the parents of a job that will never exist, before the relay entry is deleted."""
        why = answer.why if isinstance(answer, Refused) else f"job {answer.id} has its id or key"
        _LOGGER.warning(
            "the queue refused a job of a flow: %s",
            why,
            extra={"tenant": target.tenant, "queue": target.name, "job": new.id, "task": new.task},
        )
        child = JobRef(target.name, new.id)
        for parent in new.parents:
            ending = ChildEnding(parent.id, child, None)
            await self._store.flows.child_ended(QueueRef(target.tenant, parent.queue), [ending])


def _groups(entries: Sequence[Relay]) -> Iterator[tuple[str, list[Relay]]]:
    """Runs of neighbours that are one call: the same queue, the same kind of entry, bounded in size."""
    for (queue, _), run in groupby(entries, key=lambda entry: (entry.queue, type(entry.what))):
        group: list[Relay] = []
        size = 0
        for entry in run:
            weight = size_of(entry)
            if group and size + weight > CHUNK_BYTES:
                yield queue, group
                group, size = [], 0
            group.append(entry)
            size += weight
        yield queue, group


def size_of(entry: Relay) -> int:
    """The bytes of an entry's payload or result."""
    match entry.what:
        case NewJob(payload=payload):
            return len(payload)
        case ChildEnding(result=result):
            return len(result or b"")
        case _:
            return 0
