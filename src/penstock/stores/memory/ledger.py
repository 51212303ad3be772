"""One queue in memory: its records, the order they wait in, its events and its idempotency keys."""

import heapq

import msgspec

from penstock.core.events import DELETED, EVENT_VERSION, Event, event_of
from penstock.core.flows import Child, ChildEnding, JobRef
from penstock.core.job import Job, NewJob
from penstock.core.limits import MAX_COUNT, Declaration
from penstock.core.moves import Move
from penstock.core.states import WAITING, State
from penstock.stores.memory.lanes import Lanes
from penstock.stores.values import Adoption, QueueInfo, Reader, Relay, StoredSchedule


class HeldKey(msgspec.Struct):
    """An idempotency key and the job that holds it; `until` is set once the job's record is gone."""

    job: str
    digest: str
    until: int | None = None


class Holder(msgspec.Struct, frozen=True):
    """The job that is one of its kind, since when, and until when it keeps others away if its record goes."""

    job: str
    since: int
    until: int


class Ledger:
    """The data of one queue. Heaps are cleaned lazily: an entry counts only while it is the job's place."""

    def __init__(self, info: QueueInfo) -> None:
        self.info = info
        self.jobs: dict[str, Job] = {}
        self.places: dict[str, int] = {}
        self.counts = dict.fromkeys(State, 0)
        self.active: set[str] = set()
        self.keys: dict[str, HeldKey] = {}
        self.log: list[Event] = []
        self.seq = 0
        self.readers: dict[str, Reader] = {}
        self.lanes = Lanes()
        self.uniques: dict[str, Holder] = {}
        self.children: dict[str, dict[JobRef, Child]] = {}
        self.relays: dict[int, Relay] = {}
        self.schedules: dict[str, StoredSchedule] = {}
        self.touched: list[str] = []
        """Keys that the call under way touched."""
        self.arrival_us = 0
        """When the next claim would be on time by the queue's rate."""
        self._relayed = 0
        self._pending: list[tuple[int, int, str]] = []
        self._delayed: list[tuple[int, int, str]] = []

    def queue_info(self) -> QueueInfo:
        """What callers see of the queue."""
        return msgspec.structs.replace(self.info, arrival_us=self.arrival_us)

    @property
    def declared(self) -> Declaration:
        """The queue's declaration; a plain one until there is any."""
        return self.info.declaration or Declaration()

    def put(self, job: Job, move: Move, source: State | None, at: int, *, front: bool = False) -> None:
        """Keep the record after a move and write its event."""
        self.seq += 1
        before = self.jobs.get(job.id)
        attempt = None if before is None else before.attempts + 1
        deadline = None if before is None else before.deadline
        self.log.append(event_of(job, move, source, seq=self.seq, at=at, attempt=attempt, deadline=deadline))
        self.jobs[job.id] = job
        place = self.places[job.id] = -self.seq if front else self.seq
        if before is not None:
            self.counts[before.state] -= 1
        self.counts[job.state] += 1
        if before is not None and before.state is State.ACTIVE:
            self.lanes.end(before)
            self.active.discard(job.id)
        if job.state is State.ACTIVE:
            self.lanes.start(job)
            self.active.add(job.id)
        if job.state.is_ended:
            self.notify_parents(job, job.state, job.result)
        if job.state is State.PENDING and self.declared.mode.has_keys:
            self.lanes.wait(job, place)
        elif job.state is State.PENDING:
            heapq.heappush(self._pending, (-job.priority, place, job.id))
        elif job.state is State.DELAYED:
            heapq.heappush(self._delayed, (job.visible_at or 0, place, job.id))

    def remove(self, gone: list[Job], move: Move, at: int) -> None:
        """Take records away and write one event for all of them."""
        if not gone:
            return
        self.seq += 1
        if move is Move.DELETE and len(gone) == 1:
            job = msgspec.structs.replace(gone[0], version=gone[0].version + 1)
            self.log.append(event_of(job, move, job.state, seq=self.seq, at=at))
        else:
            ids = [job.id for job in gone]
            ref = self.info.queue
            event = Event(
                v=EVENT_VERSION,
                tenant=ref.tenant,
                queue=ref.name,
                seq=self.seq,
                move=move,
                at=at,
                jobs=ids,
                reason=DELETED if move is Move.DELETE else None,
            )
            self.log.append(event)
        for job in gone:
            del self.jobs[job.id], self.places[job.id]
            self.counts[job.state] -= 1
            self.children.pop(job.id, None)
            # One that ended well was counted; any other might have been redriven, and now will not be.
            if job.state is not State.COMPLETED:
                self.notify_parents(job, None, None)
            held = None if job.idempotency_key is None else self.keys.get(job.idempotency_key)
            # The key may be forgotten, or another job's, by the time the record goes.
            if held is not None and held.job == job.id:
                held.until = at + job.options.key_held_ms

    @property
    def free_places(self) -> int:
        """How many more jobs may wait."""
        if self.declared.max_length is None:
            return MAX_COUNT
        return self.declared.max_length - sum(self.counts[state] for state in WAITING)

    def leased(self) -> list[Job]:
        """Active jobs."""
        return [self.jobs[job] for job in self.active]

    def is_current(self, job: str, place: int) -> bool:
        """True while the job waits at this place."""
        return self.places.get(job) == place and self.jobs[job].state is State.PENDING

    def notify_parents(self, job: Job, state: State | None, result: bytes | None) -> None:
        """Leave a relay entry with an ending for every job that waits for it."""
        child = JobRef(job.queue, job.id)
        for parent in job.parents:
            self.relay(parent.queue, ChildEnding(parent.id, child, state, result))

    def relay(self, queue: str, what: NewJob | Adoption | ChildEnding) -> None:
        """Leave something for another queue."""
        self._relayed += 1
        self.relays[self._relayed] = Relay(self._relayed, queue, what)

    def pending(self, limit: int) -> list[Job]:
        """Up to `limit` jobs taken off the pending heap, in claim order."""
        found: list[Job] = []
        while self._pending and len(found) < limit:
            _, place, job = heapq.heappop(self._pending)
            if self.places.get(job) == place:
                found.append(self.jobs[job])
        return found

    def unclaimed(self, job: Job) -> None:
        """Put a job back that was taken off the pending heap and not moved."""
        heapq.heappush(self._pending, (-job.priority, self.places[job.id], job.id))

    def first_delayed(self) -> Job | None:
        """The delayed job that becomes visible first."""
        while self._delayed:
            _, place, job = self._delayed[0]
            if self.places.get(job) == place:
                return self.jobs[job]
            heapq.heappop(self._delayed)
        return None

    def key_holder(self, key: str, now: int) -> HeldKey | None:
        """Who holds the key now; a key whose time is over is forgotten."""
        held = self.keys.get(key)
        if held is None:
            return None
        if held.until is not None and held.until <= now:
            del self.keys[key]
            return None
        return held

    def forget_keys(self, now: int) -> None:
        """Forget keys whose time is over and whose jobs are gone: one still there may be redriven."""
        over = [key for key, held in self.keys.items() if held.until is not None and held.until <= now]
        for key in over:
            del self.keys[key]
        for kind, holder in list(self.uniques.items()):
            if holder.job not in self.jobs and holder.until <= now:
                del self.uniques[kind]
