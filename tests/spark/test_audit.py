"""The audit by itself: what it counts, what it says of nothing, and logs that are not whole."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from penstock.core.events import Event
from penstock.core.history import Breach, Rule
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.spark.audit import Verdict, audit, keep
from tests.core.histories import History, told_history
from tests.core.test_history import plain_lives
from tests.spark.audited import table

MISSING = {"none": 0, "before": 6, "last": 7, "first": 8, "next": 15}
"""By tenant an event that its log lacks: at the edges of batches of eight, and none."""


@pytest.fixture(scope="module")
def told() -> History:
    return told_history()


@pytest.fixture(scope="module")
def spoiled(told: History) -> Event:
    """A claim of the told history with a wrong attempt."""
    claim = next(each for each in told.events if each.job == "running" and each.move is Move.CLAIM)
    return replace(claim, attempt=2)


class Audited(msgspec.Struct):
    """What was audited, and what was found."""

    events: Sequence[Event]
    verdict: Verdict
    breaches: Sequence[Breach]

    def of(self, *tenants: str) -> list[Breach]:
        """The breaches of these tenants."""
        return [each for each in self.breaches if each.queue is not None and each.queue.tenant in tenants]


@pytest.fixture(scope="module")
def audited(spark: SparkSession, told: History, spoiled: Event) -> Audited:
    """One audit of all logs that tests look at below: each is that of a tenant of its own."""
    lives = list(plain_lives(12, kept=12))
    gap = Event(v=1, tenant="gap", queue="mail", seq=5, move="gap", at=0)  # type: ignore[arg-type]
    events = [
        *_of("spoiled", (spoiled if each.seq == spoiled.seq else each for each in told.events)),
        *(each for name, seq in MISSING.items() for each in _of(name, lives) if each.seq != seq),
        *(each for tenant in ("gap", "still", "moved") for each in _of(tenant, told.events)),
        *_of("trimmed", (each for each in lives if each.seq > 6)),
        *unordered(),
    ]
    states = [
        (
            tenant,
            queue,
            job,
            str(State.PENDING if job == "second" and tenant in ("still", "moved") else state),
        )
        for (_, queue, job), state in told.live.items()
        for tenant in ("spoiled", "gap", "still", "moved")
    ]
    states += [("trimmed", "q", f"job-{number}", "completed") for number in range(12)]
    problem = "if(move = 'gap', 'events 1 to 5 were trimmed', problem)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(keep.RUNNING, "spark.sql.execution.arrow.maxRecordsPerBatch", "8")
        verdict = audit(
            table(spark, [*events, gap]).withColumn("problem", expr(problem)),
            live=spark.createDataFrame(states, "tenant string, queue string, id string, state string"),
            moved=spark.createDataFrame(
                [("moved", "mail", "second")], "tenant string, queue string, job string"
            ),
            starts={QueueRef("trimmed", "q"): 7},
        )
    return Audited(events, verdict, verdict.first(1_000))


def unordered() -> list[Event]:
    """A log with other numbers and times than its order has; and once more, with cursors that say so.

    Such as those of PostgreSQL. One event is there twice.
    """
    lives = [replace(each, seq=3 * each.seq, at=each.at - each.seq % 5) for each in plain_lives(9, 9)]
    stamped = [replace(each, cursor=f"700-{each.seq}-0a0b0c0d") for each in lives]
    return [*_of("numbered", lives), *_of("stamped", [*stamped, stamped[4]])]


def _of(tenant: str, events: Iterable[Event]) -> list[Event]:
    return [replace(each, tenant=tenant) for each in events]


def test_a_log_without_events_is_a_breach(spark: SparkSession) -> None:
    found = audit(table(spark, []))

    assert found.events == 0
    assert found.by_rule == {Rule.NOTHING_READ: 1}
    assert [str(each) for each in found.first(5)] == ["nothing-read: no event was read"]


def test_a_breach_says_where_it_is(audited: Audited, spoiled: Event) -> None:
    (breach,) = audited.of("spoiled")

    assert str(breach) == (
        f"attempt: queue spoiled/mail, job running, event {spoiled.seq}, attempt 2 came after 0 failures"
    )
    assert audited.verdict.events == len(audited.events)


def test_events_that_are_missing_are_named_wherever_they_are(audited: Audited) -> None:
    """At the edges of batches, and those that were trimmed unread."""
    gaps = {
        tenant: [each.seq for each in audited.of(tenant) if each.rule is Rule.SEQ_GAP] for tenant in MISSING
    }

    assert gaps == {tenant: [seq + 1] if seq else [] for tenant, seq in MISSING.items()}
    assert audited.of("none") == []
    assert [each.says for each in audited.of("gap")] == ["events 1 to 5 were trimmed"]


def test_numbers_are_not_looked_at_where_cursors_say_that_they_are_in_no_order(audited: Audited) -> None:
    """An event that is there twice is one too many all the same."""
    assert {each.rule for each in audited.of("numbered")} == {Rule.SEQ_GAP, Rule.TIME_BACK}
    assert [each.rule for each in audited.of("stamped")] == [Rule.SEQ_TWICE]


def test_numbers_are_not_looked_at_where_the_caller_says_that_they_are_in_no_order(
    spark: SparkSession,
) -> None:
    assert audit(table(spark, unordered()), in_order=False).by_rule == {Rule.SEQ_TWICE: 1}


def test_only_jobs_are_compared_that_the_log_tells_of_and_that_did_not_move_meanwhile(
    audited: Audited,
) -> None:
    """The store was read when a job ran, and the log after it was done; another log was trimmed."""
    (breach,) = audited.of("still", "moved", "trimmed")

    assert (breach.rule, breach.queue, breach.job) == (Rule.STORE_STATE, QueueRef("still", "mail"), "second")
