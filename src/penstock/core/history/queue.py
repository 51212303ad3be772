"""The history of one queue: the numbers of its log, its jobs, its keys and the records held against it."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from penstock.core.clocks import STEP_MS
from penstock.core.events import Event
from penstock.core.history.life import Life, Totals, advance, lose, remove
from penstock.core.history.limits import Limits
from penstock.core.history.lines import Lines
from penstock.core.history.rules import Breach, Declared, Executed, Produced, Rule
from penstock.core.history.scratch import NewTable, SpillingMap
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import ENDED, State
from penstock.core.transitions import TABLE


class UnreadEvent(msgspec.Struct):
    """What is left of an event that this version cannot read."""

    tenant: str
    queue: str
    seq: int
    at: int | None = None
    v: int | None = None
    move: str | None = None
    job: str | None = None
    version: int | None = None
    jobs: list[str] | None = None


class QueueHistory:
    """Follows one queue. Keeps something of each job until it is gone, and nothing after."""

    def __init__(
        self,
        queue: QueueRef,
        breaches: list[Breach],
        first: int,
        executed: dict[tuple[str, int], int] | None,
        declared: Sequence[Declared] | None = None,
        *,
        in_order: bool = True,
        new_table: NewTable | None = None,
    ) -> None:
        self.queue = queue
        self.lives = SpillingMap(Life, new_table)
        self.totals = Totals()
        self.executed = executed
        self._produced: set[str] = set()
        self._asked: set[tuple[str, str]] = set()
        self._breaches = breaches
        self._is_cut = first > 1
        self._next = first
        self._missing: list[range] = []
        self._in_order = in_order
        self._at: int | None = None
        self._keys = SpillingMap(str, new_table)
        """By idempotency key, the job that has it and has not ended."""
        self._instants = SpillingMap(bool, new_table)
        self._lines = Lines(self.lives, new_table)
        self._limits = None if declared is None else Limits(declared, is_whole=first == 1)

    # Records, before the events

    def expect(self, record: Produced) -> None:
        """A producer says that the job is there."""
        self._produced.add(record.job)
        if record.idempotency_key is not None:
            self._asked.add((record.job, record.idempotency_key))

    def ran(self, record: Executed) -> None:
        """A handler says that it ran."""
        if self.executed is None:
            self.executed = {}
        lease = (record.job, record.fence)
        if lease in self.executed:
            says = f"executed again under fence {record.fence}"
            self._breaches.append(Breach(Rule.EXECUTED_TWICE, self.queue, record.job, None, says))
        self.executed[lease] = record.delivery

    # Events

    def feed(self, event: Event) -> None:
        """Check one event."""
        totals = self.totals
        totals.events += 1
        if totals.events % TRIM_EVERY == 0:
            self._trim()
        if not self._is_next(event):
            return
        move = event.move
        if move not in TABLE:
            self._skip(event)
            return
        if event.jobs is not None:
            totals.moves[move] += 1
            self._remove_many(event, event.jobs)
        elif event.job is None:
            totals.moves[move] += 1
            self._tell(Rule.TABLE, event, f"{move} of no job")
        elif move is Move.ENQUEUE:
            self._enqueue(event.job, event)
        else:
            self._follow(event.job, event)

    def feed_unread(self, event: UnreadEvent) -> None:
        """Count an event that cannot be read, and forget what it may have changed."""
        self.totals.events += 1
        if self._is_next(event):
            self._skip(event)

    def _is_next(self, event: Event | UnreadEvent) -> bool:
        """False for an event that was there before."""
        seq, wanted = event.seq, self._next
        if seq == wanted:
            self._next = seq + 1
        elif seq > wanted:
            self._missing.append(range(wanted, seq))
            self._next = seq + 1
            if self._in_order:
                self._tell(Rule.SEQ_GAP, event, f"{seq} came where {wanted} was next")
                if self._limits is not None:
                    self._limits.lose_track()
        else:
            gap = next((each for each in self._missing if seq in each), None)
            if gap is None:
                self._tell(Rule.SEQ_TWICE, event, f"{seq} came again where {wanted} was next")
                return False
            if self._in_order:
                self._tell(Rule.SEQ_ORDER, event, f"{seq} came late, where {wanted} was next")
            self._missing.remove(gap)
            parts = (range(gap.start, seq), range(seq + 1, gap.stop))
            self._missing += [part for part in parts if part]
        if event.at is not None and self._in_order:
            if self._at is not None and 0 < self._at - event.at < STEP_MS:
                self._tell(Rule.TIME_BACK, event, f"{self._at - event.at} ms before the event ahead of it")
            self._at = event.at
        return True

    def _enqueue(self, job: str, event: Event) -> None:
        before = self.lives.get(job)
        life = advance(before, event, self._tell, self.totals, is_cut=self._is_cut)
        if before is not None:
            self._forget(job, before)
        if life is None:
            return
        self.lives[job] = life
        self._stand(job, life, event)
        if event.schedule is not None and event.instant is not None:
            self._check_instant(event.schedule, event.instant, event)
        key = event.idempotency_key
        if key is not None:
            if self._keys.get(key) is not None:
                self._tell(Rule.KEY_TWICE, event, f"got the key {key!r} of a job that has not ended")
            self._keys[key] = job
            self._asked.discard((job, key))
        self._produced.discard(job)

    def _follow(self, job: str, event: Event) -> None:
        before = self.lives.get(job)
        life = advance(before, event, self._tell, self.totals, is_cut=self._is_cut)
        if before is None:
            self._produced.discard(job)
        if life is None:
            if before is not None:
                self._remove(job, before, event)
            return
        if before is None:
            self.lives[job] = life
        target = event.target
        if self._limits is not None or life.tier is not None or target is State.PENDING:
            self._stand(job, life, event)
        if self.executed is not None:
            self._check_execution(job, life, event, self.executed)
        if target in ENDED:
            # From its ending on, the time that a key is held for runs, and events do not tell how long it is.
            self._free_key(job, life)

    def _stand(self, job: str, life: Life, event: Event) -> None:
        """Put the job where it waits now, by tier or by key."""
        if self._limits is not None:
            self._limits.follow(job, life, event, self._tell)
            if self._limits.has_keys:
                return
        # Where no declaration is known, a key may mean that turns go by it.
        if self._in_order:
            self._lines.follow(job, life, event, self._tell, any_key=self._limits is not None)

    def _check_instant(self, schedule: str, instant: int, event: Event) -> None:
        name = f"{instant} {schedule}"
        if self._instants.get(name):
            self._tell(Rule.INSTANT, event, f"schedule {schedule!r} made a second job for instant {instant}")
        self._instants[name] = True

    def _check_execution(
        self, job: str, life: Life, event: Event, executed: dict[tuple[str, int], int]
    ) -> None:
        if event.move is Move.CLAIM:
            lease = (job, event.fence or 0)
            if executed.get(lease) == event.delivery:
                life.was_executed = True
                del executed[lease]
        elif event.move is Move.COMPLETE and not life.was_executed:
            self._tell(Rule.NO_EXECUTION, event, f"completed, but no handler ran under fence {event.fence}")

    def _remove_many(self, event: Event, jobs: list[str]) -> None:
        for job in jobs:
            life = self.lives.get(job)
            broken = remove(life, event.move, self.totals, is_cut=self._is_cut)
            if broken is not None:
                self._breaches.append(Breach(broken[0], self.queue, job, event.seq, broken[1]))
            if life is not None:
                self._remove(job, life, event)

    def _remove(self, job: str, life: Life, event: Event) -> None:
        if self._limits is not None:
            self._limits.removed(job, life, event.at)
        self._forget(job, life)

    def _forget(self, job: str, life: Life) -> None:
        self._lines.leave(life)
        if self._limits is not None:
            self._limits.leave(job, life)
        self._free_key(job, life)
        self.lives.discard(job)

    def _free_key(self, job: str, life: Life) -> None:
        key, life.idempotency_key = life.idempotency_key, None
        if key is not None and self._keys.get(key) == job:
            self._keys.discard(key)

    def _trim(self) -> None:
        self.lives.trim()
        self._keys.trim()
        self._instants.trim()

    def _skip(self, event: Event | UnreadEvent) -> None:
        self._tell(Rule.UNKNOWN, event, f"move {event.move} in version {event.v} of the event record")
        self.totals.unknown += 1
        if self._limits is not None:
            self._limits.lose_track()
        for job in event.jobs or ([] if event.job is None else [event.job]):
            life = self.lives.get(job)
            if life is None:
                continue
            self._lines.leave(life)
            if self._limits is not None:
                self._limits.leave(job, life)
            self._free_key(job, life)
            lose(life, event.version, self.totals)

    # The end

    def unmet(self) -> Iterator[Breach]:
        """Records that the events did not bear out."""
        for job in sorted(self._produced):
            yield Breach(
                Rule.LOST, self.queue, job, None, "its enqueue returned, and the log does not know it"
            )
        for job, key in sorted(self._asked):
            if job not in self._produced and not self._is_cut:
                says = f"its producer got it for the key {key!r}, which it does not have"
                yield Breach(Rule.KEY_OTHER, self.queue, job, None, says)
        for (job, fence), delivery in (self.executed or {}).items():
            says = f"executed as delivery {delivery} under fence {fence}, which was never claimed"
            yield Breach(Rule.NO_CLAIM, self.queue, job, None, says)

    def _tell(self, rule: Rule, event: Event | UnreadEvent, says: str) -> None:
        self._breaches.append(Breach(rule, self.queue, event.job, event.seq, says))


TRIM_EVERY: Final = 512
"""Events between two looks at how much is in memory."""
