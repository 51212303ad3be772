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
from penstock.core.history.rules import Declared
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.spark.audit import audit
from penstock.spark.audit.since_last import Proofs, audit_since
from penstock.spark.schemas import EVENTS

TABLE: Final = "what the events show by themselves"
LIMITS: Final = "the same, and limits"
STORE: Final = "the same, and the store"
ALL: Final = "all rules: events, limits and the store"
_MODULE: Final = "benchmarks.spark.auditing"
_UNITS: Final = {
    "cold": "events/s, the first in a session",
    "warm": "events/s, the third",
    "cold_cpu": "processor s per million events, the first",
    "warm_cpu": "processor s per million events, the third",
}
_SINCE_UNITS: Final = {
    "first": "s for the history, at first",
    "next": "s for what came since, the third time",
    "next_cpu": "processor s per million of its events",
}
_ROUNDS: Final = 3
_QUEUES: Final = 8
_BLOCK: Final = 301
_BATCH: Final = 100_000
_DECLARED: Final = Declaration(mode=Mode.KEYED, key_limit=1, max_active=10)

# A queue's events come in blocks: a hundred jobs are enqueued, claimed and completed one after the other,
# then the first fifty of them are pruned in one go.
_PLACES: Final = f"""
SELECT id,
    concat('q', id % {_QUEUES}) AS queue, id DIV {_QUEUES} + 1 AS seq,
    id DIV {_QUEUES} DIV {_BLOCK} * 100 AS first, id DIV {_QUEUES} % {_BLOCK} AS place
FROM range({{events}})
"""
_JOB: Final = "concat('0192f3a4', lpad(cast({} AS string), 16, '0'))"
_MADE: Final = f"""
SELECT
    id DIV {_BATCH} AS batch_id, 'default' AS tenant, queue, seq, concat(seq, '-00000000') AS cursor, 1 AS v,
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
    labels = (TABLE, LIMITS, STORE, ALL)
    yield [Case("audit", "", OURS, label, partial(_side, plan, label), _UNITS) for label in labels]


def since_last(plan: Plan) -> Iterator[list[Case]]:
    """As many events each time, after histories of different lengths."""
    yield [
        Case("since", "", OURS, f"after {history:,} events", partial(_since, plan, history), _SINCE_UNITS)
        for history in plan.histories
    ]


def _side(plan: Plan, label: str, folder: Path) -> Figures:
    path = str(folder / "events")
    run(_MODULE, "write", events=plan.audited, path=path)
    return run(_MODULE, "measure", events=plan.audited, label=label, path=path)


def _since(plan: Plan, history: int, folder: Path) -> Figures:
    path = str(folder / "events")
    run(_MODULE, "write", events=history + _ROUNDS * plan.audited_since + _BATCH, path=path)
    return run(
        _MODULE,
        "measure_since",
        history=history,
        more=plan.audited_since,
        path=path,
        proofs=str(folder / "audit"),
    )


def write(events: int, path: str) -> Figures:
    """The table, by a process of its own: the one that audits is new to everything."""
    _write(measured_session(), _whole(events), path)
    return {}


def measure(events: int, label: str, path: str) -> Figures:
    """Over Parquet files, as the pipeline writes them; again and again in one session."""
    spark, events = measured_session(), _whole(events)
    found = [timed(lambda: _audit(spark, path, events, label), events) for _ in range(_ROUNDS)]
    cold, warm = found[0], found[-1]
    return {"cold": cold["rate"], "warm": warm["rate"], "cold_cpu": cold["cpu"], "warm_cpu": warm["cpu"]}


def measure_since(history: int, more: int, path: str, proofs: str) -> Figures:
    """An audit of the history, and then some of what came after it, each going on from the last."""
    spark = measured_session()
    events = spark.read.parquet(path)

    def go_on(upto: int) -> None:
        def after(batch: int) -> DataFrame:
            return events.where(f"batch_id > {batch} AND batch_id < {upto // _BATCH}")

        verdict, _ = audit_since(spark, after, Proofs(proofs))
        if not verdict.is_clean or verdict.events != upto:
            raise RuntimeError(f"read {verdict.events} events of {upto}: {verdict.by_rule}")

    first = timed(partial(go_on, history), history)
    found = [timed(partial(go_on, history + nth * more), more) for nth in range(1, _ROUNDS + 1)]
    return {"first": history / first["rate"], "next": more / found[-1]["rate"], "next_cpu": found[-1]["cpu"]}


def _whole(events: int) -> int:
    """No block is cut short: what a store would hold then is easy to say."""
    return events - events % (_BLOCK * _QUEUES)


def _write(spark: SparkSession, events: int, path: str) -> None:
    made = spark.sql(_MADE, places=spark.sql(_PLACES, events=events))
    columns = [f"cast(NULL AS {_type(name)}) AS {name}" for name in EVENTS.names if name not in made.columns]
    made.selectExpr("*", *columns).select(*EVENTS.names, "batch_id").write.parquet(path)


def _type(name: str) -> str:
    found = str(EVENTS.field(name).type)
    return "timestamp" if found.startswith("timestamp") else found


def _audit(spark: SparkSession, path: str, events: int, label: str) -> None:
    found = spark.read.parquet(path)
    more: dict[str, Any] = {}
    if label in (LIMITS, ALL):
        queues = [QueueRef("default", f"q{number}") for number in range(_QUEUES)]
        more["declared"] = {queue: [Declared(0, _DECLARED)] for queue in queues}
    if label in (STORE, ALL):
        more["live"] = _store(found)
    verdict = audit(found, **more)
    if verdict.events != events or not verdict.is_clean:
        raise RuntimeError(f"read {verdict.events} events of {events}: {verdict.by_rule}")


def _store(events: DataFrame) -> DataFrame:
    """What a store would hold: jobs that are not pruned."""
    return events.where(f"move = 'complete' AND (seq - 1) % {_BLOCK} >= 150").selectExpr(
        "tenant", "queue", "job AS id", "to_state AS state"
    )
