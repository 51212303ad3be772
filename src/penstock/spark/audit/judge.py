"""The audit: every rule that events can show, over tables of any size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from penstock.core.history.rules import Declared, Rule
from penstock.core.job import QueueRef
from penstock.core.states import LIVE, State
from penstock.spark.audit import keys, limits, log, reconcile
from penstock.spark.audit.covered import BY_NAME
from penstock.spark.audit.found import Kind
from penstock.spark.audit.keep import kept
from penstock.spark.audit.lives import judged
from penstock.spark.audit.rows import rows_of, together, with_known
from penstock.spark.audit.verdict import Verdict
from penstock.spark.audit.wanted import Wanted

_QUEUES: Final = "tenant string, queue string, start bigint"
_BREACHES: Final = "rule string, tenant string, queue string, job string, seq bigint, says string"
_FOUND: Final = f"""
SELECT name AS rule, tenant, queue, job, seq, text AS says FROM {{found}} WHERE kind = {int(Kind.BREACH)}
"""  # noqa: S608 (constants)
_SUMS: Final = f"""
SELECT kind, name, sum(number) AS number
FROM (
    SELECT kind, if(kind = {int(Kind.FIGURE)}, name, NULL) AS name, number FROM {{found}}
    UNION ALL SELECT kind, NULL, NULL FROM {{logged}}
)
GROUP BY kind, name
"""  # noqa: S608 (constants)


def audit(
    events: DataFrame,
    *,
    live: DataFrame | None = None,
    moved: DataFrame | None = None,
    starts: Mapping[QueueRef, int] | None = None,
    declared: Mapping[QueueRef, Sequence[Declared]] | None = None,
    in_order: bool | None = None,
) -> Verdict:
    """Hold events, in the shape of `schemas.EVENTS`, against every rule that they can show.

    `live` has the jobs of the store, in the shape of `schemas.JOBS` or with its columns tenant, queue, id and
    state; ended ones may be left out. Jobs in `moved` (tenant, queue, job) had events since then and are not
    compared. `starts`, `declared` and `in_order` mean what `starts`, `limits` and `in_order` mean to
    `penstock.core.history.Checker`; without the last one the cursors of events tell.
    """
    begins = {(queue.tenant, queue.name): first for queue, first in (starts or {}).items() if first > 1}
    wanted = Wanted(begins, is_compared=live is not None, is_limited=bool(declared))
    examined = examine(events, wanted, in_order=in_order)
    parts = examined.parts
    if declared and not examined.kinds.isdisjoint({Kind.STEP, Kind.KEYLESS}):
        parts += limits.breaches(examined.found, declared)
    if live is not None:
        parts.append(reconcile.breaches(examined.found, live, _queues(events.sparkSession, begins), moved))
    if not examined.figures["events"]:
        parts.append(nothing_read(events.sparkSession))
    return verdict_of(examined, is_compared=live is not None)


@dataclass(frozen=True, slots=True)
class Examined:
    """What the events say by themselves: rows of `found.SCHEMA`, and `parts` of the breaches."""

    found: DataFrame
    logged: DataFrame
    kinds: frozenset[int]
    figures: dict[str, int]
    parts: list[DataFrame]


def examine(
    events: DataFrame, wanted: Wanted, *, known: DataFrame | None = None, in_order: bool | None = None
) -> Examined:
    """Hold events to the rules on jobs, on keys and on the log, after what is `known` of earlier ones."""
    spark = events.sparkSession
    rows = rows_of(events, with_keys=wanted.is_limited)
    found = kept(judged(together(rows if known is None else with_known(rows, known)), wanted))
    logged = kept(log.logged(events, wanted, in_order=in_order))
    sums = {
        (row.kind, row.name): row.number for row in spark.sql(_SUMS, found=found, logged=logged).collect()
    }
    kinds = frozenset(kind for kind, _ in sums)
    parts: list[DataFrame] = []
    if Kind.BREACH in kinds:
        parts += [spark.sql(_FOUND, found=found), spark.sql(_FOUND, found=logged)]
    if Kind.SPAN in kinds:
        parts.append(log.twice(events, logged))
    if Kind.HOLD in kinds:
        holds = found if known is None else kept(keys.with_known_keys(found, known))
        again = kept(keys.taken_again(holds))
        if not again.isEmpty():
            parts.append(keys.key_breaches(holds, again))
    if Kind.INSTANT in kinds:
        parts.append(
            keys.instant_breaches(found if known is None else keys.with_known_instants(found, known))
        )
    figures = {name: number for (kind, name), number in sums.items() if kind == Kind.FIGURE}
    return Examined(found, logged, kinds, figures, parts)


def verdict_of(examined: Examined, *, is_compared: bool = False) -> Verdict:
    """The verdict by all parts."""
    spark, parts = examined.found.sparkSession, examined.parts
    breaches = (
        kept(reduce(lambda one, other: one.union(other), parts))
        if parts
        else spark.createDataFrame([], _BREACHES)
    )
    counts = breaches.groupBy("rule").count().collect() if parts else []
    figures = dict(examined.figures)
    left = {state: figures.pop(state) for state in State}
    return Verdict(
        **figures,
        **{state: many for state, many in left.items() if state not in LIVE},
        live={state: many for state, many in left.items() if state in LIVE},
        is_compared=is_compared,
        by_rule={BY_NAME[row.rule]: row["count"] for row in counts},
        breaches=breaches,
    )


def _queues(spark: SparkSession, starts: Mapping[tuple[str, str], int]) -> DataFrame:
    """Where logs begin that were trimmed."""
    rows = [(tenant, queue, start) for (tenant, queue), start in starts.items()]
    return broadcast(spark.createDataFrame(rows, _QUEUES))


def nothing_read(spark: SparkSession) -> DataFrame:
    """The breach of a log without any event."""
    return spark.createDataFrame(
        [(Rule.NOTHING_READ.value, None, None, None, None, "no event was read")], _BREACHES
    )
