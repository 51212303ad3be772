"""Silver has the rows that a plain fold over the events has, whatever batches they came in."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.core.events import Event
from penstock.spark import tables
from penstock.spark.tables.bronze import Bronze
from penstock.spark.tables.files import files_at
from penstock.spark.tables.silver import SHAPES, Silver
from penstock.spark.tables.table import Batch
from tests.core.histories import random_history, told_history
from tests.docs.test_reference import text_of
from tests.spark.tables_kit import Row, event_rows, expected_attempts, expected_jobs, frame, seen, wanted

EXPECTED = {"attempts": expected_attempts, "jobs": expected_jobs}
QUERY = "a-query"


def fill(spark: SparkSession, folder: Path, batches: Sequence[Sequence[Row]]) -> None:
    """Bring batches of events into all three tables."""
    bronze = Bronze(spark, files_at(f"{folder}/events"))
    for rows in batches:
        batch = bronze.last() + 1
        bronze.write(Batch(first=batch, last=batch, query=QUERY), frame(spark, rows))
        for name in SHAPES:
            Silver(spark, files_at(f"{folder}/{name}"), name).follow(bronze, QUERY)


def check(spark: SparkSession, folder: Path, events: Sequence[Event]) -> None:
    """Hold both tables against the fold."""
    for name, fold in EXPECTED.items():
        found = tables.read(spark, str(folder), name)
        assert seen(found) == wanted(fold(events), found.columns), name


def cut(rows: Sequence[Row], chance: random.Random, pieces: int) -> list[list[Row]]:
    """The rows in their order, cut at random."""
    cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(pieces - 1))
    return [list(rows[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def many_histories(seeds: range, steps: int = 120) -> list[Event]:
    """Several histories as one: each with tenants of its own."""
    return [
        msgspec.structs.replace(event, tenant=f"{event.tenant}{seed}")
        for seed in seeds
        for event in random_history(seed, steps).events
    ]


def test_histories_become_the_rows_of_the_fold(spark: SparkSession) -> None:
    """The told one, and random ones."""
    events = [*told_history().events, *many_histories(range(60))]
    rows = frame(spark, event_rows(events))

    for name, fold in EXPECTED.items():
        found = SHAPES[name].of(rows)
        assert seen(found) == wanted(fold(events), found.columns), name


def test_batches_become_the_same_rows_as_the_whole_and_so_do_compacted_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, chance = many_histories(range(100, 110)), random.Random(1)
    by_queue: dict[tuple[str, str], list[Row]] = {}
    for row in event_rows(events):
        by_queue.setdefault((row["tenant"], row["queue"]), []).append(row)
    parts = [cut(rows, chance, 3) for rows in by_queue.values()]
    batches = [[row for part in parts for row in part[at]] for at in range(3)]

    fill(spark, tmp_path, batches)

    check(spark, tmp_path, events)
    for name in tables.NAMES:
        done = tables.compact(spark, str(tmp_path), name)
        assert (done.before, done.after) == (3, 1)
    check(spark, tmp_path, events)
    assert tables.read(spark, str(tmp_path), "events").count() == len(events)


def test_late_and_repeated_events_change_nothing_but_the_rows_of_their_jobs(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, chance = many_histories(range(200, 210)), random.Random(2)
    births = Counter((each.tenant, each.queue, each.job) for each in events if each.move == "enqueue")
    again = {job for job, count in births.items() if count > 1}
    # An id that is used again is told from its first job by the order of numbers, which late events break.
    once = [
        each
        for each in events
        if (each.tenant, each.queue, each.job) not in again
        and not any((each.tenant, each.queue, job) in again for job in each.jobs or ())
    ]
    rows = event_rows(once)
    chance.shuffle(rows)
    batches = cut(rows, chance, 2)
    batches[1] += chance.sample(batches[0], 20)
    batches[1] += chance.sample(rows, 20)

    fill(spark, tmp_path, batches)

    check(spark, tmp_path, once)
    counted = [
        count for each in tables.open_table(spark, str(tmp_path), "events").live() for count in each.queues
    ]
    everything = [(row["tenant"], row["queue"], row["seq"]) for batch in batches for row in batch]
    assert sum(count.duplicates for count in counted) == len(everything) - len(set(everything))


def test_what_cannot_be_read_and_gaps_are_kept_and_counted_and_leave_silver_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = told_history().events
    bad = {"tenant": "default", "queue": "mail", "seq": 900, "move": "claim", "problem": "no job"}
    nowhere = {"problem": "not JSON"}
    gap = {"tenant": "default", "queue": "mail", "seq": 950, "move": "gap", "problem": "901 to 950"}

    fill(spark, tmp_path, [[*event_rows(events), bad, nowhere, gap]])

    check(spark, tmp_path, events)
    bronze = tables.open_table(spark, str(tmp_path), "events")
    assert bronze.rows().count() == len(events) + 3
    counts = {(each.tenant, each.queue): each for each in bronze.live()[0].queues}
    assert (counts["default", "mail"].problems, counts["default", "mail"].gaps) == (1, 1)
    assert (counts[None, None].problems, counts[None, None].rows) == (1, 1)


def test_a_batch_reads_only_its_own_events(spark: SparkSession, tmp_path: Path) -> None:
    rows = event_rows(told_history().events)
    fill(spark, tmp_path, [rows[:30], rows[30:]])
    for name in SHAPES:
        first, second = tables.open_table(spark, str(tmp_path), name).live()

        assert (first.first, first.last, second.first, second.last) == (0, 0, 1, 1)
        assert second.rows <= 2 * len(rows[30:])
        for file in first.files:
            (tmp_path / name / file.path).unlink()

    # What the first batch wrote is needed by no later one.
    fill(spark, tmp_path, [rows[:1]])
    assert {tables.open_table(spark, str(tmp_path), name).last() for name in SHAPES} == {2}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_column_is_on_the_page_with_its_type(spark: SparkSession, name: str) -> None:
    page = text_of("spark.md")
    start = page.index(f"### `{name}` (silver)")
    listed = re.findall(
        r"^\| `(\w+)` \| (\w+) \|", page[start : page.index("\n### ", start + 1)], re.MULTILINE
    )

    assert listed == SHAPES[name].of(frame(spark, [])).dtypes
