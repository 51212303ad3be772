"""Many histories in one table, so that one audit looks at all of them: each has tenants of its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.core.events import Event
from penstock.core.history import Declared, Rule, check
from penstock.core.history import Verdict as CoreVerdict
from penstock.core.history.rules import LiveStates
from penstock.core.job import QueueRef
from penstock.spark.audit import COVERED, Verdict, audit
from penstock.spark.audit.covered import BY_NAME
from penstock.spark.schemas import EVENTS

Found = set[tuple[Rule, str | None, int | None]]
TIMES = frozenset(field.name for field in EVENTS if pa.types.is_timestamp(field.type))


class Case(msgspec.Struct):
    """A history to audit, and what the store has."""

    events: Sequence[Event]
    live: LiveStates | None = None
    limits: Mapping[QueueRef, Sequence[Declared]] = {}
    starts: Mapping[QueueRef, int] = {}

    def by_checker(self) -> CoreVerdict:
        """What the checker of the core says, which reads a log in the order of its numbers."""
        ordered = sorted(self.events, key=lambda event: event.seq)
        return check(ordered, live=self.live, limits=self.limits, starts=self.starts)

    def covered_by_checker(self) -> "Found":
        """Those of its breaches that the audit is to find as well."""
        return covered(self.by_checker())


def covered(verdict: CoreVerdict) -> Found:
    """Those breaches that the audit is to find as well."""
    return {
        (breach.rule, breach.job, breach.seq) for breach in verdict.breaches if breach.rule in COVERED
    } - {(Rule.NOTHING_READ, None, None)}


def table(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    """Events as rows."""
    return spark.createDataFrame(pa.Table.from_pylist([row(event) for event in events], schema=EVENTS))


def row(event: Event) -> dict[str, Any]:
    """One event as a row."""
    fields = msgspec.structs.asdict(event)
    fields["from_state"], fields["to_state"] = fields.pop("source"), fields.pop("target")
    return {
        name: value * 1000 if name in TIMES and value is not None else value for name, value in fields.items()
    }


def audit_all(spark: SparkSession, cases: Sequence[Case]) -> tuple[Verdict, list[Found]]:
    """The verdict on all of them, by one run, and what it finds in each."""
    events = [event for number, case in enumerate(cases) for event in numbered(number, case)]
    live = [
        (f"{number}.{tenant}", queue, job, str(state))
        for number, case in enumerate(cases)
        for (tenant, queue, job), state in (case.live or {}).items()
    ]
    verdict = audit(
        table(spark, events),
        live=spark.createDataFrame(live, "tenant string, queue string, id string, state string")
        if live
        else None,
        declared={
            _of(number, queue): declared
            for number, case in enumerate(cases)
            for queue, declared in case.limits.items()
        },
        starts={
            _of(number, queue): first
            for number, case in enumerate(cases)
            for queue, first in case.starts.items()
        },
    )
    assert verdict.events == len(events)
    return verdict, found_by_case(verdict, len(cases))


def numbered(number: int, case: Case) -> list[Event]:
    """The events of a case under tenants of its own."""
    return [msgspec.structs.replace(event, tenant=f"{number}.{event.tenant}") for event in case.events]


def found_by_case(verdict: Verdict, cases: int) -> list[Found]:
    """What was found in each case."""
    found: list[Found] = [set() for _ in range(cases)]
    for each in verdict.breaches.collect():
        found[int(each.tenant.partition(".")[0])].add((BY_NAME[each.rule], each.job, each.seq))
    return found


def _of(number: int, queue: QueueRef) -> QueueRef:
    return QueueRef(f"{number}.{queue.tenant}", queue.name)
