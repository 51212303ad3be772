"""The checker: holds histories of queues against every promise, event by event."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from penstock.core.events import Event
from penstock.core.history.life import Life
from penstock.core.history.queue import QueueHistory, UnreadEvent
from penstock.core.history.rules import (
    Breach,
    Declared,
    Executed,
    JobName,
    LiveStates,
    OrderedStates,
    Produced,
    Rule,
    Verdict,
)
from penstock.core.history.scratch import NewTable
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import LIVE, State


class Checker:
    """Takes events as they come: in log order within a queue, in any order between queues.

    Records of producers and handlers are handed in first, so that each is kept only until its event has
    come; `executed` is None where handlers kept none. `starts` gives the first number of a log that was
    trimmed: jobs from before it are then taken as they are met. `limits` gives what was declared of
    queues and when: limits and turns are checked where it does. Without `in_order` many wrote at once, and
    only what happened to one job is in the order of numbers and time: gaps, lines and clock are not checked.
    With `new_table` the memory that jobs take is bounded: what is known of most of them is in scratch tables.
    Records of producers and handlers, and what `limits` needs, stay in memory.

    >>> checker = Checker()
    >>> checker.finish().is_clean
    True
    """

    def __init__(
        self,
        *,
        produced: Iterable[Produced] = (),
        executed: Iterable[Executed] | None = None,
        starts: Mapping[QueueRef, int] | None = None,
        limits: Mapping[QueueRef, Sequence[Declared]] | None = None,
        in_order: bool = True,
        new_table: NewTable | None = None,
    ) -> None:
        self._new_table = new_table
        self._breaches: list[Breach] = []
        self._in_order = in_order
        self._queues: dict[tuple[str, str], QueueHistory] = {}
        self._starts = dict(starts or {})
        self._limits = dict(limits or {})
        self._has_executions = executed is not None
        self._unplaced = 0
        self._has_records = False
        for record in produced:
            self._has_records = True
            self._queue(record.queue.tenant, record.queue.name).expect(record)
        for execution in executed or ():
            self._has_records = True
            self._queue(execution.queue.tenant, execution.queue.name).ran(execution)

    @property
    def kept(self) -> int:
        """Of how many jobs something is kept: those that are not gone by what was read so far."""
        return sum(len(queue.lives) for queue in self._queues.values())

    def feed(self, event: Event) -> None:
        """Check one event."""
        queue = self._queues.get((event.tenant, event.queue))
        if queue is None:
            queue = self._queue(event.tenant, event.queue)
        queue.feed(event)

    def feed_json(self, data: bytes | str) -> None:
        """Check one event as it stands in a log. What cannot be read is a breach, not an error."""
        try:
            event = Event.from_json(data)
        except msgspec.ValidationError:
            self._feed_unread(data)
        except msgspec.DecodeError:
            self._misread("not JSON")
        else:
            self.feed(event)

    def finish(self, live: LiveStates | OrderedStates | None = None) -> Verdict:
        """The verdict so far; with what the store holds now, if given. Feeding may go on after it."""
        events = self._unplaced + sum(queue.totals.events for queue in self._queues.values())
        left = dict.fromkeys((state for state in State if state in LIVE), 0)
        differences: list[Breach] = []
        is_stored = False
        for name, life, state in _side_by_side(self._lives(), _in_order(live)):
            is_stored = is_stored or state is not None
            if life is not None and life.state is not None and life.state in left:
                left[life.state] += 1
            if live is not None and (difference := _difference(name, life, state)) is not None:
                differences.append(difference)
        breaches = [*self._breaches]
        if not events and (self._has_records or is_stored):
            breaches.append(Breach(Rule.NOTHING_READ, None, None, None, "no event was read"))
        for queue in self._queues.values():
            breaches += queue.unmet()
        return self._verdict(events, left, (*breaches, *differences))

    def _lives(self) -> Iterator[tuple[JobName, Life]]:
        for (tenant, name), queue in sorted(self._queues.items(), key=lambda each: each[0]):
            for job, life in queue.lives.ordered():
                yield (tenant, name, job), life

    def _queue(self, tenant: str, name: str) -> QueueHistory:
        queue = self._queues.get((tenant, name))
        if queue is None:
            ref = QueueRef(tenant, name)
            first = self._starts.get(ref, 1)
            executed: dict[tuple[str, int], int] | None = {} if self._has_executions else None
            queue = self._queues[tenant, name] = QueueHistory(
                ref,
                self._breaches,
                first,
                executed,
                self._limits.get(ref),
                in_order=self._in_order,
                new_table=self._new_table,
            )
        return queue

    def _feed_unread(self, data: bytes | str) -> None:
        try:
            event = msgspec.json.decode(data, type=UnreadEvent)
        except msgspec.ValidationError as error:
            self._misread(str(error))
        else:
            self._queue(event.tenant, event.queue).feed_unread(event)

    def _misread(self, says: str) -> None:
        self._unplaced += 1
        self._breaches.append(Breach(Rule.UNKNOWN, None, None, None, f"not an event: {says}"))

    def _verdict(self, events: int, live: dict[State, int], breaches: tuple[Breach, ...]) -> Verdict:
        queues = self._queues.values()
        moves: Counter[Move] = Counter()
        ends: Counter[State] = Counter()
        for queue in queues:
            moves.update(queue.totals.moves)
            ends.update(queue.totals.ends)
        return Verdict(
            events=events,
            unknown=self._unplaced + sum(queue.totals.unknown for queue in queues),
            jobs=sum(queue.totals.jobs for queue in queues),
            enqueued=moves[Move.ENQUEUE],
            completed=ends[State.COMPLETED],
            failed=ends[State.FAILED],
            dead=ends[State.DEAD],
            cancelled=ends[State.CANCELLED],
            deleted=sum(queue.totals.deleted for queue in queues),
            live=live,
            removed=sum(queue.totals.removed for queue in queues),
            claimed=moves[Move.CLAIM],
            retried=moves[Move.RETRY],
            recovered=moves[Move.EXPIRE],
            redriven=moves[Move.REDRIVE],
            lost=sum(breach.rule in _LOSSES for breach in breaches),
            breaches=breaches,
        )


_LOSSES = frozenset({Rule.LOST, Rule.NOT_IN_STORE})


def _in_order(live: LiveStates | OrderedStates | None) -> Iterator[tuple[JobName, State]]:
    if live is None:
        return iter(())
    return iter(sorted(live.items()) if isinstance(live, Mapping) else live)


def _side_by_side(
    lives: Iterator[tuple[JobName, Life]], stored: Iterator[tuple[JobName, State]]
) -> Iterator[tuple[JobName, Life | None, State | None]]:
    """Each job that the log or the store has, with what either has of it; both come in the order of names."""
    ahead = next(stored, None)
    for name, life in lives:
        while ahead is not None and ahead[0] < name:
            yield ahead[0], None, ahead[1]
            ahead = next(stored, None)
        if ahead is not None and ahead[0] == name:
            yield name, life, ahead[1]
            ahead = next(stored, None)
        else:
            yield name, life, None
    while ahead is not None:
        yield ahead[0], None, ahead[1]
        ahead = next(stored, None)


def _difference(name: JobName, life: Life | None, state: State | None) -> Breach | None:
    """What the log and the store do not agree on."""
    if life is None:
        rule, says = Rule.NOT_IN_LOG, f"{state} in the store, and not in the log"
    elif state is None:
        if life.state not in LIVE:
            return None
        rule, says = Rule.NOT_IN_STORE, f"{life.state} by the log, and not in the store"
    elif life.state is state or life.state is None:
        return None
    else:
        rule, says = Rule.STORE_STATE, f"{state} in the store, {life.state} by the log"
    tenant, queue, job = name
    return Breach(rule, QueueRef(tenant, queue), job, None, says)


def check(
    events: Iterable[Event],
    *,
    produced: Iterable[Produced] = (),
    executed: Iterable[Executed] | None = None,
    live: LiveStates | OrderedStates | None = None,
    starts: Mapping[QueueRef, int] | None = None,
    limits: Mapping[QueueRef, Sequence[Declared]] | None = None,
    new_table: NewTable | None = None,
) -> Verdict:
    """The verdict on a history that is all at hand.

    >>> check([]).breaches
    ()
    """
    checker = Checker(produced=produced, executed=executed, starts=starts, limits=limits, new_table=new_table)
    for event in events:
        checker.feed(event)
    return checker.finish(live)
