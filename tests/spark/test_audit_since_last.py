"""An audit that goes on where the last one ended finds, all in all, what one audit of everything finds."""

import random
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from penstock.core.events import Event
from penstock.core.history import Rule
from penstock.core.states import State
from penstock.spark.audit import Verdict, since_last
from penstock.spark.audit.since_last import Proofs, audit_since
from penstock.spark.errors import TableError
from tests.core.test_history import plain_lives
from tests.spark.audited import Case, Found, found_by_case, numbered, table
from tests.spark.test_audit_random import COUNTS, honest, spoiled
from tests.spark.test_audit_spoiled import NAMES, draft_of

RUNS = 3
SEEDS = [*range(20), *range(1_000, 1_060)]
TWICE = frozenset({"an_event_stands_twice", "an_early_event_comes_again_at_the_end"})
"""Bronze has an event once: its second time is not in a later batch."""


class Batches:
    """Events by the batch that brought them."""

    def __init__(self, spark: SparkSession, batches: Sequence[Sequence[Event]]) -> None:
        self._spark = spark
        self._batches = batches

    def upto(self, last: int) -> DataFrame:
        """The table when this batch was its last."""
        found = [
            table(self._spark, batch).selectExpr("*", f"cast({at} AS bigint) AS batch_id")
            for at, batch in enumerate(self._batches[: last + 1])
        ]
        whole = found[0]
        for each in found[1:]:
            whole = whole.union(each)
        return whole

    def audit(self, proofs: Proofs, last: int) -> Verdict:
        """Audit what came up to this batch."""
        whole = self.upto(last)
        return audit_since(self._spark, partial(_after, whole), proofs)[0]


def cut(events: Sequence[Event], chance: random.Random) -> list[list[Event]]:
    """A log in batches, each of which goes on where the one before it ended, in each queue."""
    batches: list[list[Event]] = [[] for _ in range(RUNS)]
    ends: dict[tuple[str, str], list[int]] = {}
    for event in events:
        highest = max(each.seq for each in events if (each.tenant, each.queue) == (event.tenant, event.queue))
        log = ends.setdefault(
            (event.tenant, event.queue), sorted(chance.randint(0, highest) for _ in range(RUNS - 1))
        )
        batches[sum(event.seq > end for end in log)].append(event)
    return batches


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """Spoiled histories, each named."""
    made = {name: Case(draft_of(name).events) for name in NAMES if name not in TWICE}
    made |= {f"seed {seed}": Case((honest if seed < 1_000 else spoiled)(seed).events) for seed in SEEDS}
    return {
        name: case
        for name, case in made.items()
        if len({(each.tenant, each.queue, each.seq) for each in case.events}) == len(case.events)
    }


@pytest.fixture(scope="module")
def verdicts(
    spark: SparkSession, cases: Mapping[str, Case], tmp_path_factory: pytest.TempPathFactory
) -> list[Verdict]:
    """Those of three audits of everything, one after the other."""
    batches: list[list[Event]] = [[] for _ in range(RUNS)]
    for number, (name, case) in enumerate(cases.items()):
        for at, batch in enumerate(cut(numbered(number, case), random.Random(name))):
            batches[at] += batch
    log, proofs = Batches(spark, batches), Proofs(str(tmp_path_factory.mktemp("audit") / "proofs"))
    return [log.audit(proofs, last) for last in range(RUNS)]


def test_three_audits_find_what_one_finds(cases: Mapping[str, Case], verdicts: Sequence[Verdict]) -> None:
    found: list[Found] = [set() for _ in cases]
    for verdict in verdicts:
        for at, each in enumerate(found_by_case(verdict, len(cases))):
            found[at] |= each
    differ = {}
    for (name, case), ours in zip(cases.items(), found, strict=True):
        whole = Case(case.events).covered_by_checker()
        if ours != whole:
            differ[name] = (ours - whole, whole - ours)

    assert differ == {}
    assert sum(bool(each) for each in found) > 60


def test_a_breach_is_told_by_the_audit_that_comes_upon_it_and_by_no_later_one(
    verdicts: Sequence[Verdict],
) -> None:
    rows = [
        (row.rule, row.tenant, row.queue, row.job, row.seq)
        for verdict in verdicts
        for row in verdict.breaches.collect()
    ]

    assert len(rows) == len(set(rows))


def test_the_figures_of_the_last_are_those_of_one(
    cases: Mapping[str, Case], verdicts: Sequence[Verdict]
) -> None:
    whole = [case.by_checker() for case in cases.values()]

    assert {name: getattr(verdicts[-1], name) for name in COUNTS} == {
        name: sum(getattr(each, name) for each in whole) for name in COUNTS
    }
    assert verdicts[-1].live == {
        state: sum(each.live[state] for each in whole) for state in verdicts[-1].live
    }


@pytest.fixture
def lives() -> list[list[Event]]:
    """Jobs whose lives are cut through by batches: an event in each."""
    return [[each] for each in plain_lives(3, kept=3)]


def test_what_is_known_is_written_anew_when_it_is_in_many_parts(
    spark: SparkSession, tmp_path: Path, lives: list[list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(since_last, "MOST_PARTS", 2)
    log, proofs = Batches(spark, lives), Proofs(str(tmp_path))
    verdicts = [log.audit(proofs, last) for last in range(5)]

    assert [each.by_rule for each in verdicts] == [{}] * 5
    assert (verdicts[-1].events, verdicts[-1].completed, verdicts[-1].live[State.ACTIVE]) == (5, 1, 1)
    assert [each.name for each in sorted(tmp_path.glob("*/lives"))] == ["lives"] * len(proofs.last().parts)
    assert len(proofs.last().parts) <= 2


def test_an_audit_without_new_events_finds_nothing_new(
    spark: SparkSession, tmp_path: Path, lives: list[list[Event]]
) -> None:
    log, proofs = Batches(spark, lives[1:]), Proofs(str(tmp_path))
    first, again = (log.audit(proofs, 2) for _ in range(2))

    assert first.by_rule[Rule.NO_ENQUEUE] == first.by_rule[Rule.SEQ_GAP] == 1
    assert again.by_rule == {}
    assert again.events == first.events
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o700}
    assert pq.read_table(tmp_path / "run-00000001" / "breaches.parquet").num_rows == sum(
        first.by_rule.values()
    )
    assert pq.read_table(tmp_path / "run-00000002" / "run.parquet")["is_clean"].to_pylist() == [True]


def test_of_two_audits_at_once_one_is_refused(
    spark: SparkSession, tmp_path: Path, lives: list[list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, proofs = Batches(spark, lives), Proofs(str(tmp_path))
    begun = proofs.last()
    log.audit(proofs, 2)
    monkeypatch.setattr(Proofs, "last", lambda _: begun)

    with pytest.raises(TableError, match="another audit came first"):
        log.audit(proofs, 3)
    assert [each.name for each in tmp_path.iterdir()] == ["run-00000001"]


def test_what_was_kept_is_refused_beside_another_table_or_where_it_is_damaged(
    spark: SparkSession, tmp_path: Path, lives: list[list[Event]]
) -> None:
    proofs = Proofs(str(tmp_path))
    Batches(spark, lives).audit(proofs, 3)

    with pytest.raises(TableError, match="batch 3, which the table of events does not have"):
        Batches(spark, lives).audit(proofs, 1)

    (tmp_path / "run-00000001" / "run.parquet").write_bytes(b"no table")
    with pytest.raises(TableError, match=r"run\.parquet: cannot be read .* remove .* to audit anew"):
        Batches(spark, lives).audit(proofs, 4)


def test_a_trimmed_log_is_audited_from_where_it_began_then(
    spark: SparkSession, tmp_path: Path, lives: list[list[Event]]
) -> None:
    """Jobs from before may come up in any later audit."""
    log, proofs = Batches(spark, lives), Proofs(str(tmp_path))

    def audit_from_the_second(last: int) -> Verdict:
        whole = log.upto(last).where("seq > 1")
        after = partial(_after, whole)
        return audit_since(spark, after, proofs, is_trimmed=True)[0]

    assert [audit_from_the_second(last).by_rule for last in (1, 8)] == [{}, {}]
    assert [each.start for each in proofs.last().logs] == [2]


def _after(whole: DataFrame, batch: int) -> DataFrame:
    return whole.where(col("batch_id") > batch)
