"""What `doctor` reads of a queue from end to end, in bounded memory: its live jobs and its event log."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from penstock.cli.bulk import PAGE, each_page, progress
from penstock.cli.checks import Check
from penstock.core.events import Event
from penstock.core.history import Breach, Checker, NewTable, Rule, SpillingMap
from penstock.core.job import QueueRef
from penstock.core.states import LIVE, State
from penstock.stores.protocol import HasHoldups, ListsStates, Store
from penstock.stores.values import Query

WAITED_MS: Final = 100
"""A look at the newest event waits so long for others to come to an end."""
CHUNK: Final = 1_000
QUIET_UNDER: Final = 20_000
"""Fewer jobs or events than this are read within a second."""


class StoredStates:
    """The states of a queue's live jobs as the store has them."""

    def __init__(self, ref: QueueRef, new_table: NewTable | None) -> None:
        self._ref = ref
        self._states = SpillingMap(State, new_table)
        self.listed = dict.fromkeys(LIVE, 0)
        """How many jobs the store listed in each state."""

    def take(self, jobs: Iterable[tuple[str, State]]) -> None:
        """Take jobs over as the store listed them."""
        for job, state in jobs:
            self._states[job] = state
            self.listed[state] += 1
        self._states.trim()

    def follow(self, event: Event) -> None:
        """Take over what an event changed after the jobs were listed."""
        for job in [event.job] if event.job is not None else event.jobs or ():
            if event.target is not None and event.target in LIVE:
                self._states[job] = event.target
            else:
                self._states.discard(job)
        self._states.trim()

    def ordered(self) -> Iterator[tuple[tuple[str, str, str], State]]:
        """The jobs by tenant, queue and id, with their states, in the order of their ids."""
        tenant, queue = self._ref.tenant, self._ref.name
        for job, state in self._states.ordered():
            yield (tenant, queue, job), state


async def read_live(
    store: Store, ref: QueueRef, counts: dict[State, int], new_table: NewTable | None
) -> StoredStates:
    """The live jobs that the store lists."""
    stored = StoredStates(ref, new_table)
    total = sum(counts[state] for state in LIVE)
    with progress(f"reading the live jobs of {ref.name}", total, quiet_under=QUIET_UNDER) as advance:
        async for jobs in _live(store, ref):
            stored.take(jobs)
            advance(len(jobs))
    return stored


async def _live(store: Store, ref: QueueRef) -> AsyncIterator[list[tuple[str, State]]]:
    if isinstance(store, ListsStates):
        after = ""
        while states := await store.live_states(ref, after, PAGE):
            yield states
            after = states[-1][0]
        return
    # A store may have to go through all jobs for each page: few pages, with nothing in them that is not used.
    query = Query(states=LIVE, limit=PAGE, payloads=False, results=False)
    async for jobs in each_page(store, ref, query):
        yield [(job.id, job.state) for job in jobs]


async def examine_counts(
    store: Store, ref: QueueRef, counts: dict[State, int], stored: StoredStates, mark: int
) -> Check:
    """Whether the store lists as many live jobs as it counts; `mark` is the newest event before both."""
    total = sum(counts.values())
    check = Check("counts", f"{total} jobs, {sum(counts[state] for state in LIVE)} live", ref.name)
    if (await store.event_range(ref))[1] != mark or await _is_held(store):
        check.seen += "; not compared, the queue is at work"
        return check
    check.findings += [
        f"{counts[state]} are counted as {state} and {stored.listed[state]} are listed"
        for state in State
        if state in LIVE and stored.listed[state] != counts[state]
    ]
    return check


async def examine_history(
    store: Store, ref: QueueRef, first: int, mark: int, stored: StoredStates, new_table: NewTable | None
) -> Check:
    """Hold the event log against every promise, and its end against the live jobs, listed after `mark`."""
    checker = Checker(starts={ref: first}, in_order=store.numbers_in_order, new_table=new_table)
    newest = (await store.event_range(ref))[1]
    is_held = await _is_held(store)
    is_late = mark < first
    reached, read = first - 1, 0
    total = newest - first + 1
    with progress(f"checking the events of {ref.name}", total, quiet_under=QUIET_UNDER) as advance:
        async for events in _events(store, ref, first - 1, newest):
            for event in events:
                checker.feed(event)
                if is_late:
                    # Written while the live jobs were read: the log knows better than what was read.
                    stored.follow(event)
                is_late = is_late or event.seq == mark
                reached = event.seq
            read += len(events)
            advance(len(events))
    whole = first == 1
    # Events that cannot be read were passed over: what they did is not known.
    damages = await store.damaged_events(ref, first - 1) if read < total else []
    verdict = checker.finish(stored.ordered() if whole and not is_held and not damages else None)
    told = f"{verdict.events} events of {verdict.jobs} jobs, {verdict.lost} lost"
    check = Check("history", told if whole else f"{told}; the log begins at {first}", ref.name)
    if is_held:
        check.seen += "; not compared with the jobs, whose newest events cannot be read yet"
    check.findings = [str(breach) for breach in verdict.breaches]
    check.findings += [each.why for each in damages]
    if damages:
        check.seen += "; not compared with the jobs, some events cannot be read"
    elif store.numbers_in_order and reached < newest:
        says = f"{reached + 1} to {newest} are missing"
        check.findings.append(str(Breach(Rule.SEQ_GAP, ref, None, newest, says)))
    return check


async def _is_held(store: Store) -> bool:
    """True when something may have happened that cannot be read yet; after a look at the newest event."""
    held = await store.holdup() if isinstance(store, HasHoldups) else None
    return held is not None and (held.age_ms is None or held.age_ms >= WAITED_MS)


async def _events(store: Store, ref: QueueRef, after: int, newest: int) -> AsyncIterator[list[Event]]:
    """The events behind a number, page by page, up to the one that was the newest.

    Where numbers are not in order some with lower ones may follow it: then a page more.
    """
    cursor: str | int = after
    pages_left: int | None = None
    while after < newest and pages_left != 0 and (events := await store.events(ref, cursor, CHUNK)):
        pages_left = None if pages_left is None else pages_left - 1
        end = next((at for at, event in enumerate(events, 1) if event.seq == newest), None)
        if end is not None and store.numbers_in_order:
            yield events[:end]
            return
        yield events
        pages_left = pages_left if end is None else 1
        cursor = events[-1].cursor
