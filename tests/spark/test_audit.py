"""The audit by itself: what it counts, what it says of nothing, and logs that are not whole."""

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.core.events import Event
from penstock.core.history import Rule
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.spark.audit import audit, log
from tests.core.histories import MAIL, History, told_history
from tests.core.test_history import plain_lives
from tests.spark.audited import table


@pytest.fixture(scope="module")
def told() -> History:
    return told_history()


def test_a_log_without_events_is_a_breach(spark: SparkSession) -> None:
    found = audit(table(spark, []))

    assert found.events == 0
    assert found.by_rule == {Rule.NOTHING_READ: 1}
    assert [str(each) for each in found.first(5)] == ["nothing-read: no event was read"]


def test_a_breach_says_where_it_is(spark: SparkSession, told: History) -> None:
    at = next(i for i, each in enumerate(told.events) if each.job == "running" and each.move is Move.CLAIM)
    events = [*told.events]
    events[at] = replace(events[at], attempt=2)
    (breach,) = audit(table(spark, events)).first(5)

    assert breach.queue == MAIL
    assert (
        str(breach)
        == f"attempt: queue mail, job running, event {events[at].seq}, attempt 2 came after 0 failures"
    )


def test_numbers_are_not_looked_at_where_cursors_say_that_they_are_in_no_order(spark: SparkSession) -> None:
    """Such as those of PostgreSQL; an event that is there twice is one too many all the same."""
    lives = [replace(each, seq=3 * each.seq, at=each.at - each.seq % 5) for each in plain_lives(9, 9)]
    stamped = [replace(each, tenant="u", cursor=f"700-{each.seq}-0a0b0c0d") for each in lives]
    events = table(spark, [*lives, *stamped, stamped[4]])
    told, by_cursors = audit(events, in_order=False), audit(events)

    assert told.by_rule == {Rule.SEQ_TWICE: 1}
    assert by_cursors.by_rule.keys() == {Rule.SEQ_TWICE, Rule.SEQ_GAP, Rule.TIME_BACK}
    assert {row.rule for row in by_cursors.breaches.where("tenant = 'u'").collect()} == {Rule.SEQ_TWICE}


def test_a_gap_at_the_edge_of_a_stretch_is_found(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_STRETCHES", log._STRETCHES.replace("65536", "8"))
    missing = {"none": 0, "before": 6, "last": 7, "first": 8, "next": 15}
    events = [
        replace(each, tenant=tenant)
        for tenant, number in missing.items()
        for each in plain_lives(12, kept=12)
        if each.seq != number
    ]
    found = audit(table(spark, events)).breaches.where("rule = 'seq-gap'").collect()

    assert {(row.tenant, row.seq) for row in found} == {
        (tenant, number + 1) for tenant, number in missing.items() if number
    }


def test_a_row_for_events_that_were_trimmed_unread_is_a_gap(spark: SparkSession, told: History) -> None:
    gap = Event(v=1, tenant="default", queue="mail", seq=5, move="gap", at=0)  # type: ignore[arg-type]
    rows = table(spark, [gap, *told.events]).selectExpr(
        *(name for name in table(spark, [gap]).columns if name != "problem"),
        "if(move = 'gap', 'events 1 to 5 were trimmed', problem) AS problem",
    )
    found = audit(rows.select(*table(spark, [gap]).columns))

    assert found.events == len(told.events)
    assert [each.says for each in found.first(5)] == ["events 1 to 5 were trimmed"]


def test_jobs_that_moved_meanwhile_are_not_compared(spark: SparkSession, told: History) -> None:
    """The store was read when the job ran, and the log after it was done."""
    live = {job: State.PENDING if job[2] == "second" else state for job, state in told.live.items()}
    rows = [(tenant, queue, job, str(state)) for (tenant, queue, job), state in live.items()]
    jobs = spark.createDataFrame(rows, "tenant string, queue string, id string, state string")
    moved = spark.createDataFrame([("default", "mail", "second")], "tenant string, queue string, job string")
    events = table(spark, told.events)

    assert audit(events, live=jobs).by_rule == {Rule.STORE_STATE: 1}
    assert audit(events, live=jobs, moved=moved).is_clean


def test_where_a_log_was_trimmed_the_store_may_know_more_jobs(spark: SparkSession) -> None:
    events = [each for each in plain_lives(4, kept=4) if each.seq > 6]
    jobs = spark.createDataFrame(
        [("t", "q", f"job-{number}", "completed") for number in range(4)],
        "tenant string, queue string, id string, state string",
    )
    found = audit(table(spark, events), live=jobs, starts={QueueRef("t", "q"): 7})

    assert found.is_clean
    assert found.events == 6
