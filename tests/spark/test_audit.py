"""The audit by itself: what it counts, what it says of nothing, and logs that are not whole."""

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from penstock.core.events import Event
from penstock.core.history import Breach, Rule
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.spark.audit import audit, log
from tests.core.histories import History, told_history
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


def test_a_breach_says_where_it_is(
    spark: SparkSession, told: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault, events that are missing at the edges of stretches, and some that were trimmed unread."""
    monkeypatch.setattr(log, "_STRETCHES", log._STRETCHES.replace("65536", "8"))
    at = next(i for i, each in enumerate(told.events) if each.job == "running" and each.move is Move.CLAIM)
    events = [*told.events]
    events[at] = replace(events[at], attempt=2)
    missing = {"none": 0, "before": 6, "last": 7, "first": 8, "next": 15}
    for tenant, number in missing.items():
        lives = [replace(each, tenant=tenant) for each in plain_lives(12, kept=12)]
        events += [each for each in lives if each.seq != number]
    gap = Event(v=1, tenant="gap", queue="mail", seq=5, move="gap", at=0)  # type: ignore[arg-type]
    problem = "if(move = 'gap', 'events 1 to 5 were trimmed', problem)"
    rows = table(spark, [*events, gap, *(replace(each, tenant="gap") for each in told.events)])
    found = audit(rows.withColumn("problem", expr(problem)))
    by_tenant: dict[str, list[Breach]] = {}
    for breach in found.first(100):
        assert breach.queue is not None
        by_tenant.setdefault(breach.queue.tenant, []).append(breach)

    assert found.events == len(events) + len(told.events)
    assert [str(each) for each in by_tenant.pop("default")] == [
        f"attempt: queue mail, job running, event {events[at].seq}, attempt 2 came after 0 failures"
    ]
    assert [each.says for each in by_tenant.pop("gap")] == ["events 1 to 5 were trimmed"]
    assert {
        tenant: [each.seq for each in breaches if each.rule is Rule.SEQ_GAP]
        for tenant, breaches in by_tenant.items()
    } == {tenant: [number + 1] for tenant, number in missing.items() if number}


def test_numbers_are_not_looked_at_where_cursors_say_that_they_are_in_no_order(spark: SparkSession) -> None:
    """Such as those of PostgreSQL; an event that is there twice is one too many all the same."""
    lives = [replace(each, seq=3 * each.seq, at=each.at - each.seq % 5) for each in plain_lives(9, 9)]
    stamped = [replace(each, tenant="u", cursor=f"700-{each.seq}-0a0b0c0d") for each in lives]
    events = table(spark, [*lives, *stamped, stamped[4]])
    told, by_cursors = audit(events, in_order=False), audit(events)

    assert told.by_rule == {Rule.SEQ_TWICE: 1}
    assert by_cursors.by_rule.keys() == {Rule.SEQ_TWICE, Rule.SEQ_GAP, Rule.TIME_BACK}
    assert {row.rule for row in by_cursors.breaches.where("tenant = 'u'").collect()} == {Rule.SEQ_TWICE}


def test_only_jobs_are_compared_that_the_log_tells_of_and_that_did_not_move_meanwhile(
    spark: SparkSession, told: History
) -> None:
    """The store was read when a job ran, and the log after it was done; another log was trimmed."""
    live = [
        (tenant, queue, job, str(State.PENDING if job == "second" else state))
        for (_, queue, job), state in told.live.items()
        for tenant in ("still", "moved")
    ]
    live += [("t", "q", f"job-{number}", "completed") for number in range(4)]
    trimmed = [each for each in plain_lives(4, kept=4) if each.seq > 6]
    events = [replace(each, tenant=tenant) for tenant in ("still", "moved") for each in told.events]
    found = audit(
        table(spark, [*events, *trimmed]),
        live=spark.createDataFrame(live, "tenant string, queue string, id string, state string"),
        moved=spark.createDataFrame([("moved", "mail", "second")], "tenant string, queue string, job string"),
        starts={QueueRef("t", "q"): 7},
    )

    (breach,) = found.first(5)
    assert (breach.rule, breach.queue, breach.job) == (Rule.STORE_STATE, QueueRef("still", "mail"), "second")
    assert found.events == len(events) + 6
