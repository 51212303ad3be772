"""Checks that read a queue from end to end, in bounded memory: its live jobs and its event log."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from penstock.cli.doctor.check import Check
from penstock.cli.jobs.job_pages import PAGE, each_page, progress
from penstock.core.events import Event
from penstock.core.history import Breach, Checker, NewTable, Rule, SpillingMap
from penstock.core.job import QueueRef
from penstock.core.states import LIVE, State
from penstock.stores.protocol import HasHoldups, ListsStates, Store
from penstock.stores.values import Query

COMMIT_WAIT_MS: Final = 100
"""How long a read of the newest events waits for transactions that are about to commit."""
CHUNK: Final = 1_000
QUIET_UNDER: Final = 20_000
"""Below this number of jobs or events no progress is printed: they are read within a second."""


class LiveJobs:
    """The live jobs of a queue and their states, as the store lists them."""

    def __init__(self, ref: QueueRef, new_table: NewTable | None) -> None:
        self._ref = ref
        self._states = SpillingMap(State, new_table)
        self.listed = dict.fromkeys(LIVE, 0)
        """How many jobs the store listed in each state."""

    def add(self, jobs: Iterable[tuple[str, State]]) -> None:
        """Add jobs that the store listed."""
        for job, state in jobs:
            self._states[job] = state
            self.listed[state] += 1
        self._states.trim()

    def apply(self, event: Event) -> None:
        """Apply an event that was written after the jobs were listed."""
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


async def read_live_jobs(
    store: Store, ref: QueueRef, counts: dict[State, int], new_table: NewTable | None
) -> LiveJobs:
    """All live jobs of the queue, read page by page."""
    live_jobs = LiveJobs(ref, new_table)
    total = sum(counts[state] for state in LIVE)
    with progress(f"reading the live jobs of {ref.name}", total, quiet_under=QUIET_UNDER) as advance:
        async for jobs in _live(store, ref):
            live_jobs.add(jobs)
            advance(len(jobs))
    return live_jobs


async def _live(store: Store, ref: QueueRef) -> AsyncIterator[list[tuple[str, State]]]:
    if isinstance(store, ListsStates):
        after = ""
        while states := await store.live_states(ref, after, PAGE):
            yield states
            after = states[-1][0]
        return
    # Some stores scan all jobs for each page: so pages are large, and contain only what is used.
    query = Query(states=LIVE, limit=PAGE, payloads=False, results=False)
    async for jobs in each_page(store, ref, query):
        yield [(job.id, job.state) for job in jobs]


async def examine_counts(
    store: Store, ref: QueueRef, counts: dict[State, int], live_jobs: LiveJobs, newest: int
) -> Check:
    """Check that the store lists as many live jobs as it counts.

    `newest` is the number of the newest event before the jobs were counted and listed.
    """
    total = sum(counts.values())
    check = Check("counts", f"{total} jobs, {sum(counts[state] for state in LIVE)} live", ref.name)
    if (await store.events.event_range(ref))[1] != newest or await _is_held(store):
        check.seen += "; not compared, because jobs changed meanwhile"
        return check
    check.findings += [
        f"{counts[state]} are counted as {state} and {live_jobs.listed[state]} are listed"
        for state in State
        if state in LIVE and live_jobs.listed[state] != counts[state]
    ]
    return check


async def examine_history(
    store: Store,
    ref: QueueRef,
    first: int,
    newest_before: int,
    live_jobs: LiveJobs,
    new_table: NewTable | None,
) -> Check:
    """Check the event log against every promise, and its end against the live jobs.

    The jobs were listed after event `newest_before`.
    """
    checker = Checker(starts={ref: first}, in_order=store.numbers_in_order, new_table=new_table)
    newest = (await store.events.event_range(ref))[1]
    is_held = await _is_held(store)
    is_late = newest_before < first
    reached, read = first - 1, 0
    total = newest - first + 1
    with progress(f"checking the events of {ref.name}", total, quiet_under=QUIET_UNDER) as advance:
        async for events in _events(store, ref, first - 1, newest):
            for event in events:
                checker.feed(event)
                if is_late:
                    # This event was written while the live jobs were read: the log is newer than the list.
                    live_jobs.apply(event)
                is_late = is_late or event.seq == newest_before
                reached = event.seq
            read += len(events)
            advance(len(events))
    is_whole = first == 1
    # The reader passed over events that are damaged: what these changed is not known.
    damages = await store.events.damaged_events(ref, first - 1) if read < total else []
    verdict = checker.finish(live_jobs.ordered() if is_whole and not is_held and not damages else None)
    summary = f"{verdict.events} events of {verdict.jobs} jobs, {verdict.lost} lost"
    check = Check("history", summary if is_whole else f"{summary}; the log begins at {first}", ref.name)
    if is_held:
        check.seen += "; not compared with the jobs, whose newest events cannot be read yet"
    check.findings = [str(breach) for breach in verdict.breaches]
    check.findings += [each.why for each in damages]
    if damages:
        check.seen += "; not compared with the jobs, some events cannot be read"
    elif store.numbers_in_order and reached < newest:
        detail = f"{reached + 1} to {newest} are missing"
        check.findings.append(str(Breach(Rule.SEQ_GAP, ref, None, newest, detail)))
    return check


async def _is_held(store: Store) -> bool:
    """True if a transaction that is not committed yet holds back newer events; wait for it for a moment."""
    held = await store.holdup() if isinstance(store, HasHoldups) else None
    return held is not None and (held.age_ms is None or held.age_ms >= COMMIT_WAIT_MS)


async def _events(store: Store, ref: QueueRef, after: int, newest: int) -> AsyncIterator[list[Event]]:
    """The events after a number, page by page, up to the event `newest`.

    In stores whose numbers are not in order, events with lower numbers may follow it: there one page more.
    """
    cursor: str | int = after
    pages_left: int | None = None
    while (
        after < newest and pages_left != 0 and (events := await store.events.read_events(ref, cursor, CHUNK))
    ):
        pages_left = None if pages_left is None else pages_left - 1
        end = next((at for at, event in enumerate(events, 1) if event.seq == newest), None)
        if end is not None and store.numbers_in_order:
            yield events[:end]
            return
        yield events
        pages_left = pages_left if end is None else 1
        cursor = events[-1].cursor
