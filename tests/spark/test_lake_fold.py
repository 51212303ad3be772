"""Silver has the rows that a plain fold over the events has, whatever batches they came in. Without Spark."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.core.events import Event
from penstock.spark.lake.silver import attempts, jobs
from penstock.spark.lake.silver.fold import fold, readable
from penstock.spark.lake.silver.jobs import Folded
from penstock.spark.schemas import EVENTS
from tests.core.histories import random_history, told_history
from tests.spark.lake_kit import Row, event_rows, expected_attempts, expected_jobs, text_of_row


class Tables:
    """Both tables in memory: open rows, and the closed ones of all batches."""

    def __init__(self) -> None:
        self.attempts = Folded(attempts.SCHEMA.empty_table(), attempts.SCHEMA.empty_table())
        self.jobs = Folded(jobs.SCHEMA.empty_table(), jobs.SCHEMA.empty_table())

    def take(self, rows: Sequence[Row]) -> None:
        """One batch."""
        events = readable(pa.Table.from_pylist(list(rows), EVENTS))
        found = fold(events, self.attempts.open, self.jobs.open)
        self.attempts = _grown(self.attempts, found.attempts)
        self.jobs = _grown(self.jobs, found.jobs)


def _grown(before: Folded, after: Folded) -> Folded:
    return Folded(after.open, pa.concat_tables([before.closed, after.closed]))


def check(tables: Tables, events: Sequence[Event]) -> None:
    """Hold both tables against the fold."""
    for found, rows in ((tables.attempts, expected_attempts(events)), (tables.jobs, expected_jobs(events))):
        whole = pa.concat_tables([found.open, found.closed])
        assert _seen(whole) == sorted(
            text_of_row({name: row.get(name) for name in whole.column_names}) for row in rows
        )


def _seen(table: pa.Table) -> list[str]:
    return sorted(map(text_of_row, table.to_pylist()))


def many_histories(seeds: Iterable[int], steps: int = 120) -> list[Event]:
    """Several histories as one: each with tenants of its own."""
    return [
        msgspec.structs.replace(event, tenant=f"{event.tenant}{seed}")
        for seed in seeds
        for event in random_history(seed, steps).events
    ]


def cut(rows: Sequence[Row], chance: random.Random, pieces: int) -> list[list[Row]]:
    """The rows in their order, cut at random."""
    cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(pieces - 1))
    return [list(rows[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def test_histories_become_the_rows_of_the_fold() -> None:
    """The told one, and random ones."""
    events = [*told_history().events, *many_histories(range(60))]
    tables = Tables()

    tables.take(event_rows(events))

    check(tables, events)


@pytest.mark.parametrize("pieces", [2, 7, 40])
def test_batches_become_the_same_rows_as_the_whole(pieces: int) -> None:
    events, chance = many_histories(range(100, 140)), random.Random(pieces)
    by_queue: dict[tuple[str, str], list[Row]] = {}
    for row in event_rows(events):
        by_queue.setdefault((row["tenant"], row["queue"]), []).append(row)
    parts = [cut(rows, chance, pieces) for rows in by_queue.values()]
    tables = Tables()

    for at in range(pieces):
        batch = [row for part in parts for row in part[at]]
        chance.shuffle(batch)
        tables.take(batch)

    check(tables, events)


def test_an_event_at_a_time_becomes_the_same_rows() -> None:
    events = told_history().events
    tables = Tables()

    for row in event_rows(events):
        tables.take([row])

    check(tables, events)


def test_repeated_events_change_nothing() -> None:
    events, chance = many_histories(range(200, 210)), random.Random(2)
    rows = event_rows(events)
    tables = Tables()

    tables.take(rows + chance.sample(rows, 200))

    check(tables, events)
    live = {(row["tenant"], row["queue"], row["job"]) for row in tables.jobs.open.to_pylist()}
    tables.take([row for row in rows if (row["tenant"], row["queue"], row["job"]) in live])
    check(tables, events)


def test_closed_rows_never_change_and_what_is_open_is_what_may() -> None:
    events = many_histories(range(300, 310))
    tables, closed = Tables(), Counter[str]()

    for batch in cut(event_rows(events), random.Random(3), 20):
        tables.take(batch)
        assert closed <= Counter(_seen(tables.jobs.closed))
        closed = Counter(_seen(tables.jobs.closed))

    assert {row["state"] for row in tables.jobs.open.to_pylist()}.isdisjoint({"completed"})
    assert all(row["outcome"] is None for row in tables.attempts.open.to_pylist())


def test_what_cannot_be_read_and_gaps_leave_silver_alone() -> None:
    events = told_history().events
    bad: list[dict[str, Any]] = [
        {"tenant": "default", "queue": "mail", "seq": 900, "move": "claim", "problem": "no job"},
        {"problem": "not JSON"},
        {"tenant": "default", "queue": "mail", "seq": 950, "move": "gap", "problem": "901 to 950"},
    ]
    tables = Tables()

    tables.take([*event_rows(events), *bad])

    check(tables, events)


def test_a_log_without_its_beginning_gives_what_it_knows() -> None:
    events = [event for event in told_history().events if event.move != "enqueue"]
    tables = Tables()

    tables.take(event_rows(events))

    known = tables.jobs.open.num_rows + tables.jobs.closed.num_rows
    assert known == len(
        {(e.tenant, e.queue, e.job, e.drive) for e in events if e.job and e.drive and e.target}
    )
    assert pa.concat_tables([tables.jobs.open, tables.jobs.closed])["enqueue_seq"].null_count == known
