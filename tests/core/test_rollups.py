"""Events folded into rollups: the same whatever the pages are, and right beside a plain count."""

from collections import Counter

import msgspec
import pytest

from penstock.core import rollups, sketch
from penstock.core.events import EVENT_VERSION, Event
from penstock.core.moves import Move
from penstock.core.rollups import (
    HOUR_MS,
    MINUTE_MS,
    OTHER,
    Deltas,
    FoldState,
    Gap,
    Row,
    fold,
    fold_gap,
    merge_rows,
)
from penstock.core.states import State

BEGAN = 1_700_000_040_000
Rows = dict[int, dict[int, dict[str, Row]]]


def event(move: Move, job: str, at: int, **fields: object) -> Event:
    """An event of a job, so many milliseconds after the beginning."""
    known: dict[str, object] = {"task": "send"} | fields
    return Event(v=EVENT_VERSION, tenant="t", queue="q", seq=1, move=move, job=job, at=BEGAN + at, **known)  # type: ignore[arg-type]


def life(job: str, *, at: int, wait: int, run: int, task: str = "send") -> list[Event]:
    """A job that waits, runs and completes."""
    fence = (BEGAN + at + wait) * 1000
    return [
        event(Move.ENQUEUE, job, at, target=State.PENDING, task=task),
        event(Move.CLAIM, job, at + wait, target=State.ACTIVE, fence=fence, task=task),
        event(Move.COMPLETE, job, at + wait + run, target=State.COMPLETED, fence=fence, task=task),
    ]


def folded(events: list[Event], size: int) -> tuple[FoldState, Rows]:
    """The events in pages of a size, added up."""
    state, rows = FoldState(), {span: dict[int, dict[str, Row]]() for span in rollups.SPANS}
    rest = events
    while rest:
        deltas, many = fold(state, rest[:size])
        state, rest = deltas.state, rest[many:]
        for span, begins in deltas.rows.items():
            for begin, tasks in begins.items():
                merge_rows(rows[span].setdefault(begin, {}), tasks)
    return state, rows


def test_a_job_is_counted_in_its_minutes_and_its_hour() -> None:
    _, rows = folded(life("a", at=10_000, wait=2_000, run=60_000), 10)
    first, second = BEGAN - BEGAN % MINUTE_MS, BEGAN - BEGAN % MINUTE_MS + MINUTE_MS
    hour = BEGAN - BEGAN % HOUR_MS

    assert rows[MINUTE_MS][first]["send"].counts == {"enqueue": 1, "claim": 1}
    assert rows[MINUTE_MS][second]["send"].counts == {"complete": 1, "ended_completed": 1}
    assert rows[HOUR_MS][hour]["send"].counts == {
        "enqueue": 1, "claim": 1, "complete": 1, "ended_completed": 1,
    }  # fmt: skip
    assert sketch.quantile(rows[HOUR_MS][hour]["send"].wait, 0.5) in range(1_938, 2_063)
    assert sketch.quantile(rows[HOUR_MS][hour]["send"].run, 0.5) in range(58_125, 61_876)


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_pages_of_any_size_give_the_same(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more jobs wait than are timed, more tasks come than have rows, and a page has to be cut."""
    monkeypatch.setattr(rollups, "WAITING", 10)
    monkeypatch.setattr(rollups, "ROWS", 30)
    lives = [life(f"j{n}", at=n * 900, wait=n * 40, run=n, task=f"task-{n % 20}") for n in range(300)]
    events = sorted((each for one in lives for each in one), key=lambda each: each.at)
    whole, part = folded(events, len(events)), folded(events, size)
    counts = Counter(each.move for each in events)
    found = Counter[str]()
    for tasks in whole[1][HOUR_MS].values():
        for row in tasks.values():
            found.update(row.counts)

    assert msgspec.to_builtins(part[0]) == msgspec.to_builtins(whole[0])
    assert msgspec.to_builtins(part[1]) == msgspec.to_builtins(whole[1])
    assert {move: found[move] for move in counts} == counts
    assert all(len(tasks) <= rollups.TASKS + 1 for tasks in whole[1][MINUTE_MS].values())
    assert part[0].level > 0


def test_of_very_many_waiting_jobs_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half of the jobs or fewer, the times are near those of all."""
    monkeypatch.setattr(rollups, "WAITING", 500)
    enqueued = [event(Move.ENQUEUE, f"j{n}", n, target=State.PENDING) for n in range(5_000)]
    claimed = [
        event(Move.CLAIM, f"j{n}", 100_000 + 2 * n, target=State.ACTIVE, fence=1) for n in range(5_000)
    ]
    _, rows = folded(enqueued + claimed, 1_000)
    waits: sketch.Sketch = {}
    for tasks in rows[HOUR_MS].values():
        sketch.merge(waits, tasks["send"].wait)
    median = sketch.quantile(waits, 0.5)

    assert median is not None
    assert abs(median - 102_500) < 5_000
    assert 3_500 < sum(waits.values()) < 6_500


def test_a_delayed_job_waits_from_the_time_when_it_was_due() -> None:
    _, rows = folded(
        [
            event(Move.ENQUEUE, "a", 0, target=State.DELAYED, visible_at=BEGAN + 5_000),
            event(Move.PROMOTE, "a", 5_900, source=State.DELAYED, target=State.PENDING),
            event(Move.CLAIM, "a", 6_000, target=State.ACTIVE, fence=1),
        ],
        10,
    )
    [(_, tasks)] = rows[HOUR_MS].items()

    assert list(tasks["send"].wait) == [sketch.bucket_of(1_000)]


def test_an_event_of_many_jobs_counts_each_of_them() -> None:
    many = Event(
        v=EVENT_VERSION, tenant="t", queue="q", seq=1, move=Move.PRUNE, at=BEGAN, jobs=["a", "b", "c"]
    )
    _, rows = folded([many], 10)
    [(_, tasks)] = rows[HOUR_MS].items()

    assert tasks[OTHER].counts == {"prune": 3}


def test_a_gap_is_remembered_and_nobody_is_timed_across_it() -> None:
    state, _ = folded(life("a", at=0, wait=1, run=1)[:1], 10)
    deltas = fold_gap(state, BEGAN + 90_000)
    after, _ = fold(deltas.state, [event(Move.CLAIM, "a", 100_000, target=State.ACTIVE, fence=1)])

    assert deltas.state.gaps == [Gap(BEGAN, BEGAN + 90_000)]
    assert deltas.size == 0
    assert all(not row.wait for tasks in after.rows[HOUR_MS].values() for row in tasks.values())


def test_spans_that_nobody_keeps_are_not_made() -> None:
    kept_since = {MINUTE_MS: BEGAN + HOUR_MS, HOUR_MS: 0}
    deltas, many = fold(FoldState(), life("a", at=0, wait=1, run=1), kept_since)

    assert isinstance(deltas, Deltas)
    assert (many, deltas.rows[MINUTE_MS]) == (3, {})
    assert len(deltas.rows[HOUR_MS]) == 1
