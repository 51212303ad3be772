"""Jobs that are passed in columns are such as the rules pass, and the same is taken down of them."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.spark.audit import lives
from penstock.spark.audit.columns import Jobs, jobs_of
from penstock.spark.audit.found import Kind
from penstock.spark.audit.plain import plain
from penstock.spark.audit.rows import rows_of, together
from penstock.spark.audit.wanted import Wanted
from tests.spark.audited import Case, numbered, table
from tests.spark.test_audit_random import HONEST, SPOILED, honest, spoiled
from tests.spark.test_audit_spoiled import NAMES, draft_of

EVERYTHING = Wanted({}, is_compared=True, is_limited=True, is_kept=True)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> pa.RecordBatch:
    """The rows of all honest and spoiled histories, job after job."""
    cases = [
        *map(honest, HONEST),
        *map(spoiled, SPOILED),
        *(Case(draft_of(name).events) for name in NAMES),
    ]
    events = [event for number, case in enumerate(cases) for event in numbered(number, case)]
    found = together(rows_of(table(spark, events), with_keys=True).coalesce(1)).toArrow()
    # As each partition is: in the order of jobs.
    order = np.argsort(found["life"].to_numpy(), kind="stable")
    return pa.concat_batches(found.take(pa.array(order)).to_batches())


def none_plain(jobs: Jobs) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Takes every job to be remarkable."""
    return np.zeros(len(jobs.starts), np.bool_)


def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    """What is found in these rows."""
    for batch in lives.judge(iter(batches), EVERYTHING):
        yield from batch.to_pylist()


def counted(found: Iterable[dict[str, object]]) -> Counter[tuple[object, ...]]:
    """The rows, in no order."""
    return Counter(tuple(row.values()) for row in found)


def test_the_same_is_found_with_and_without_a_look_in_columns(
    rows: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaches, figures, keys, instants, leases, states, and what the next audit has to know."""
    quick = counted(judged([rows]))
    monkeypatch.setattr(lives, "plain", none_plain)
    slow = counted(judged([rows]))

    assert quick - slow == Counter()
    assert slow - quick == Counter()
    assert {kind for kind, *_ in slow} == set(Kind) - {Kind.SPAN, Kind.EDGE}


def test_most_jobs_are_passed_in_columns(rows: pa.RecordBatch) -> None:
    """Retries, expiries, releases, flows and removals among them."""
    jobs = jobs_of(rows)
    is_plain = plain(jobs)
    moves = set(rows.filter(pa.array(is_plain[np.cumsum(jobs.is_start) - 1])).column("move").to_pylist())

    assert is_plain.mean() > 0.5
    assert moves >= {
        "retry",
        "expire",
        "release",
        "snooze",
        "unblock",
        "promote",
        "replace",
        "delete",
        "prune",
    }
    assert moves >= {"bury", "fail", "cancel", "progress"}


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_jobs_are_whole_however_rows_come(rows: pa.RecordBatch, size: int) -> None:
    some = rows.slice(0, 2_000)
    batches = [some.slice(start, size) for start in range(0, some.num_rows, size)]

    assert counted(judged(batches)) == counted(judged([some]))
