"""What happened in a queue, by the minute and by the hour: events folded into counts and sketches of times.

`fold` is a function of the state before and a page of events, so that pages of any size give the same.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from penstock.core import sketch
from penstock.core.errors import InvalidError
from penstock.core.events import Event
from penstock.core.moves import Move
from penstock.core.names import check_name
from penstock.core.states import State

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
SPANS: Final = (MINUTE_MS, HOUR_MS)
"""The lengths of the spans of time that there are rollups of."""
KEPT_MS: Final[Mapping[int, int]] = {MINUTE_MS: 48 * HOUR_MS, HOUR_MS: 30 * 24 * HOUR_MS}
"""How long the rollups of each span are kept."""
TASKS: Final = 16
"""So many tasks have a row of their own in a span; the rest are counted together."""
OTHER: Final = "(other)"
"""The row of the tasks that are one too many, and of events that name many jobs. No task can be called so."""
WAITING: Final = 1_000
"""Jobs whose waiting is timed at a moment. Where more wait, every second, fourth, … of them is."""
GAPS: Final = 20
"""Gaps that are remembered, the newest."""
ROWS: Final = 150
"""Rows that one step changes at most: a page of events that lie far apart in time is folded in parts."""

_RAN: Final = frozenset({Move.COMPLETE, Move.FAIL, Move.RETRY, Move.BURY})
_TRIES_AGAIN: Final = frozenset({Move.RETRY, Move.EXPIRE})
_STOPS_WAITING: Final = frozenset({Move.CLAIM, Move.CANCEL, Move.DELETE})
_CLAIMABLE: Final = frozenset({State.PENDING, State.DELAYED})
_FENCE_US: Final = 1_000
_HASH_BITS: Final = 48
_MOST: Final = 1 << 53


class Row(msgspec.Struct, array_like=True):
    """What happened in a span of time: how often each thing did, and how long jobs waited and ran, in ms."""

    counts: dict[str, int] = msgspec.field(default_factory=dict)
    wait: sketch.Sketch = msgspec.field(default_factory=dict)
    run: sketch.Sketch = msgspec.field(default_factory=dict)

    def merge(self, other: "Row") -> None:
        """Count what another row has counted."""
        for name, many in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + many
        sketch.merge(self.wait, other.wait)
        sketch.merge(self.run, other.run)


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """A time of which events are missing: they were trimmed, or lost, before they were folded."""

    since: int
    until: int


class FoldState(msgspec.Struct, array_like=True):
    """What the next page needs to know of those before: since when jobs wait, and the newest time.

    A job is timed if its hash ends in `level` zeros, and stands for 2 ** level jobs.
    """

    at: int = 0
    level: int = 0
    waiting: dict[int, int] = msgspec.field(default_factory=dict)
    gaps: list[Gap] = msgspec.field(default_factory=list)


class Deltas(msgspec.Struct, array_like=True):
    """What a page of events adds: rows by span, beginning of the span, and task; and the state after it."""

    state: FoldState
    rows: dict[int, dict[int, dict[str, Row]]] = msgspec.field(
        default_factory=lambda: {span: {} for span in SPANS}
    )

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(len(tasks) for spans in self.rows.values() for tasks in spans.values())


def fold(
    state: FoldState, events: Iterable[Event], kept_since: Mapping[int, int] | None = None
) -> tuple[Deltas, int]:
    """What these events add to a state, which stays as it was, and how many of them were folded.

    Spans that began before `kept_since` are left out: nobody would keep them.
    """
    after = FoldState(state.at, state.level, dict(state.waiting), list(state.gaps))
    deltas, folded = Deltas(after), 0
    for event in events:
        if deltas.size >= ROWS:
            break
        waited = _wait(after, event)
        for span in SPANS:
            begin = event.at - event.at % span
            if kept_since is None or begin >= kept_since[span]:
                tasks = deltas.rows[span].setdefault(begin, {})
                _count(tasks.setdefault(event.task or OTHER, Row()), event, waited, 1 << after.level)
        after.at = max(after.at, event.at)
        folded += 1
    return deltas, folded


def fold_gap(state: FoldState, until: int) -> Deltas:
    """What a gap adds: jobs that waited before it may have been claimed in it."""
    gaps = [*state.gaps, Gap(state.at, max(until, state.at))][-GAPS:]
    return Deltas(FoldState(max(until, state.at), 0, {}, gaps))


def check_deltas(deltas: Deltas) -> None:
    """InvalidError where a step has what no fold makes, as from a client that was not written with care."""
    state = deltas.state
    _check("deltas.state.at", state.at)
    _check("deltas.state.level", state.level, _HASH_BITS)
    _check("deltas.state.waiting", len(state.waiting), 2 * WAITING)
    _check("deltas.state.gaps", len(state.gaps), 2 * GAPS)
    for number in (
        *state.waiting,
        *state.waiting.values(),
        *(at for gap in state.gaps for at in (gap.since, gap.until)),
    ):
        _check("deltas.state", number)
    for span, begins in deltas.rows.items():
        if span not in SPANS:
            raise InvalidError("deltas.rows", span, f"one of {', '.join(map(str, SPANS))}")
        for begin, tasks in begins.items():
            _check("deltas.rows", begin)
            for task, row in tasks.items():
                if task != OTHER:
                    check_name("deltas.rows", task)
                for number in (
                    *row.counts.values(),
                    *row.wait,
                    *row.run,
                    *row.wait.values(),
                    *row.run.values(),
                ):
                    _check("deltas.rows", number)
                for name in row.counts:
                    check_name("deltas.rows", name)


def _check(field: str, found: int, most: int = _MOST) -> None:
    if not 0 <= found <= most:
        raise InvalidError(field, found, f"a number from 0 to {most}")


def merge_rows(into: dict[str, Row], others: Mapping[str, Row]) -> None:
    """Add rows by task; tasks that come when there are enough are counted together."""
    for task, row in others.items():
        name = task if task in into or task == OTHER or _named(into) < TASKS else OTHER
        into.setdefault(name, Row()).merge(row)


def drop_last_task(rows: dict[str, Row]) -> bool:
    """Count one task more with the others, as there is no room; False when there is none left."""
    last = next((task for task in reversed(rows) if task != OTHER), None)
    if last is None:
        return False
    row = rows.pop(last)
    rows.setdefault(OTHER, Row()).merge(row)
    return True


def _named(rows: Mapping[str, Row]) -> int:
    return len(rows) - (OTHER in rows)


def _count(row: Row, event: Event, waited: int | None, weight: int) -> None:
    many = len(event.jobs) if event.jobs else 1
    row.counts[event.move] = row.counts.get(event.move, 0) + many
    if event.target is not None and event.target.is_ended:
        name = f"ended_{event.target}"
        row.counts[name] = row.counts.get(name, 0) + 1
    elif event.move in _TRIES_AGAIN:
        row.counts["tried_again"] = row.counts.get("tried_again", 0) + 1
    if waited is not None:
        sketch.add(row.wait, waited, weight)
    if event.move in _RAN and event.fence is not None:
        # A fence is the time of its claim, in microseconds.
        sketch.add(row.run, event.at - event.fence // _FENCE_US)


def _wait(state: FoldState, event: Event) -> int | None:
    """How long the job of a claim waited, if it was timed; notes who begins to wait, and who stops."""
    for name in event.jobs or ():
        state.waiting.pop(_hash(name), None)
    if event.job is None:
        return None
    job = _hash(event.job)
    if event.move in _STOPS_WAITING or (event.target is not None and event.target.is_ended):
        since = state.waiting.pop(job, None)
        return event.at - since if event.move is Move.CLAIM and since is not None else None
    if event.target not in _CLAIMABLE or event.move is Move.PROMOTE:
        # A job that was delayed waits since it was due, whenever that was noticed.
        return None
    if event.move is Move.REPLACE and event.visible_at is None:
        return None
    if job & ((1 << state.level) - 1) == 0:
        state.waiting[job] = event.visible_at if event.visible_at is not None else event.at
        while len(state.waiting) > WAITING:
            state.level += 1
            mask = (1 << state.level) - 1
            state.waiting = {each: since for each, since in state.waiting.items() if each & mask == 0}
    return None


def _hash(job: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(job.encode("utf-8", "replace"), digest_size=_HASH_BITS // 8).digest()
    )
