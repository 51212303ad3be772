"""The audit of a table of events: of the log alone, of all jobs, and with what may be compared besides."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from benchmarks.cases import OURS, Case
from benchmarks.spark.meter import measured_session, timed
from benchmarks.spark.plan import Plan
from benchmarks.spawn import Figures, run
from penstock.core.history.rules import Declared, Rule
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.spark.audit import COVERED, audit
from penstock.spark.schemas import EVENTS

JOBS: Final = "jobs, leases, attempts, keys, log"
LIMITS: Final = "the same, and limits"
STORE: Final = "the same, and the store"
_OF_LIMITS: Final = {Rule.KEY_LIMIT, Rule.MAX_ACTIVE, Rule.RATE, Rule.KEY_RATE, Rule.KEYLESS}
_OF_STORE: Final = {Rule.NOT_IN_STORE, Rule.NOT_IN_LOG, Rule.STORE_STATE}
_ALWAYS: Final = COVERED - _OF_LIMITS - _OF_STORE
RULES: Final = {
    JOBS: len(_ALWAYS),
    LIMITS: len(_ALWAYS | _OF_LIMITS),
    STORE: len(_ALWAYS | _OF_STORE),
}
"""How many rules a run looks at, all in one go."""
_MODULE: Final = "benchmarks.spark.auditing"
_UNITS: Final = {
    "rate": "events/s",
    "each": "events/s and rule",
    "cpu": "processor s per million events",
}
_QUEUES: Final = 8
_BLOCK: Final = 301
_DECLARED: Final = Declaration(mode=Mode.KEYED, key_limit=1, max_active=10)

# A queue's events come in blocks: a hundred jobs are enqueued, claimed and completed one after the other,
# then the first fifty of them are pruned in one go.
_PLACES: Final = f"""
SELECT
    concat('q', id % {_QUEUES}) AS queue, id DIV {_QUEUES} + 1 AS seq,
    id DIV {_QUEUES} DIV {_BLOCK} * 100 AS first, id DIV {_QUEUES} % {_BLOCK} AS place
FROM range({{events}})
"""
_JOB: Final = "concat('0192f3a4', lpad(cast({} AS string), 16, '0'))"
_MADE: Final = f"""
SELECT
    'default' AS tenant, queue, seq, concat(seq, '-00000000') AS cursor, 1 AS v,
    if(place = 300, 'prune', element_at(array('enqueue', 'claim', 'complete'), step)) AS move,
    timestamp_millis(1700000000000 + seq) AS at,
    CASE WHEN place < 300 THEN {_JOB.format("number")} END AS job,
    CASE WHEN place < 300 THEN step END AS version,
    CASE WHEN place < 300 THEN 1 END AS drive,
    CASE WHEN place < 300 THEN element_at(array(NULL, 'pending', 'active'), step) END AS from_state,
    CASE WHEN place < 300 THEN element_at(array('pending', 'active', 'completed'), step) END AS to_state,
    CASE WHEN place < 300 THEN 'noop' END AS task,
    CASE WHEN place < 300 THEN concat('k', number % 1000) END AS key,
    CASE WHEN place < 300 THEN 5 END AS priority,
    CASE WHEN place < 300 AND step > 1 THEN 1 END AS delivery,
    CASE WHEN place < 300 AND step > 1 THEN 1 END AS attempt,
    CASE WHEN place < 300 AND step > 1 THEN 1700000000000000 + number END AS fence,
    CASE WHEN place < 300 AND step > 1 THEN 'host-1-4711' END AS worker,
    CASE WHEN place < 300 AND step = 2 THEN timestamp_millis(1700000030000 + seq) END AS deadline,
    CASE WHEN place < 300 AND step = 1 THEN concat('once-', number) END AS idempotency_key,
    CASE WHEN place < 300 AND step = 1 THEN 4 END AS max_attempts,
    CASE WHEN place = 300 THEN
        transform(sequence(first, first + 49), number -> {_JOB.format("number")})
    END AS jobs
FROM (SELECT *, first + place DIV 3 AS number, cast(place % 3 + 1 AS int) AS step FROM {{places}})
"""


def auditing(plan: Plan) -> Iterator[list[Case]]:
    """The same table for each."""
    yield [Case("audit", "", OURS, label, partial(_side, plan, label), _UNITS) for label in RULES]


def _side(plan: Plan, label: str, folder: Path) -> Figures:
    return run(_MODULE, "measure", events=plan.audited, label=label, folder=str(folder))


def measure(events: int, label: str, folder: str) -> Figures:
    """Over Parquet files, as the pipeline writes them. A small audit before it warms up."""
    spark = measured_session()
    few, events = _whole(events // 20), _whole(events)
    _write(spark, few, f"{folder}/few")
    _write(spark, events, f"{folder}/events")
    _audit(spark, f"{folder}/few", few, label)
    found = timed(lambda: _audit(spark, f"{folder}/events", events, label), events)
    return found | {"each": found["rate"] * RULES[label]}


def _whole(events: int) -> int:
    """No block is cut short: what a store would hold then is easy to say."""
    return events - events % (_BLOCK * _QUEUES)


def _write(spark: SparkSession, events: int, path: str) -> None:
    made = spark.sql(_MADE, places=spark.sql(_PLACES, events=events))
    columns = [f"cast(NULL AS {_type(name)}) AS {name}" for name in EVENTS.names if name not in made.columns]
    made.selectExpr("*", *columns).select(*EVENTS.names).write.parquet(path)


def _type(name: str) -> str:
    found = str(EVENTS.field(name).type)
    return "timestamp" if found.startswith("timestamp") else found


def _audit(spark: SparkSession, path: str, events: int, label: str) -> None:
    found = spark.read.parquet(path)
    more: dict[str, Any] = {}
    if label == LIMITS:
        queues = [QueueRef("default", f"q{number}") for number in range(_QUEUES)]
        more["declared"] = {queue: [Declared(0, _DECLARED)] for queue in queues}
    if label == STORE:
        more["live"] = _store(found)
    verdict = audit(found, **more)
    if verdict.events != events or not verdict.is_clean:
        raise RuntimeError(f"read {verdict.events} events of {events}: {verdict.by_rule}")


def _store(events: DataFrame) -> DataFrame:
    """What a store would hold: jobs that are not pruned."""
    return events.where(f"move = 'complete' AND (seq - 1) % {_BLOCK} >= 150").selectExpr(
        "tenant", "queue", "job AS id", "to_state AS state"
    )
