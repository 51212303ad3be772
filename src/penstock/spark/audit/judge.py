"""The audit: every rule that events can show, over tables of any size."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import broadcast, col

from penstock.core.history.rules import Declared, Rule
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.spark.audit import keys, leases, limits, log, reconcile, states
from penstock.spark.audit.counts import LIVE_NAMES, sums
from penstock.spark.audit.covered import BY_NAME
from penstock.spark.audit.keep import kept
from penstock.spark.audit.lives import lives_of
from penstock.spark.audit.rows import rows_of
from penstock.spark.audit.verdict import Verdict

_CHECKS: Final = (*states.CHECKS, *leases.CHECKS)
_QUEUES: Final = "tenant string, queue string, start bigint"
_BREACHES: Final = "rule string, tenant string, queue string, job string, seq bigint, says string"
_BROKEN: Final = " OR ".join(f"({check.condition})" for check in _CHECKS)


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
    spark = events.sparkSession
    queues = _queues(spark, starts or {})
    counted = Observation()
    lives = lives_of(rows_of(events)).observe(counted, *sums())
    found = kept(_found(lives, is_compared=live is not None, is_limited=bool(declared)))
    figures: dict[str, Any] = counted.get
    parts = [
        _of_jobs(found, queues),
        keys.breaches(found),
        log.breaches(events, queues, in_order=in_order),
    ]
    if declared:
        parts.append(limits.breaches(found, declared))
    if live is not None:
        parts.append(reconcile.breaches(found, live, queues, moved))
    if not figures["events"]:
        parts.append(_nothing(spark))
    breaches = kept(reduce(DataFrame.union, parts))
    by_rule = {BY_NAME[row.rule]: row["count"] for row in breaches.groupBy("rule").count().collect()}
    left = {state: figures.pop(state) for state in State}
    return Verdict(
        **figures,
        **{state: many for state, many in left.items() if state not in LIVE_NAMES},
        live={state: left[state] for state in LIVE_NAMES},
        is_compared=live is not None,
        by_rule=by_rule,
        breaches=breaches,
    )


def _found(lives: DataFrame, *, is_compared: bool, is_limited: bool) -> DataFrame:
    """The rows that the verdict is made of: what is broken, and what rules across jobs are about.

    Everything else is read and left behind.
    """
    is_step = f"({limits.IS_CLAIM}) OR ({limits.IS_END})" if is_limited else "false"
    is_keyless = "is_birth AND key IS NULL" if is_limited else "false"
    wanted = [_BROKEN, keys.IS_HELD, keys.IS_FREED, keys.IS_INSTANT, is_step, is_keyless]
    wanted += ["is_newest"] if is_compared else []
    broken = ", ".join(
        f"CASE WHEN {each.condition} THEN struct('{each.rule}' AS rule, {each.says} AS says) END"
        for each in _CHECKS
    )
    return lives.where(" OR ".join(f"({condition})" for condition in wanted)).selectExpr(
        "tenant",
        "queue",
        "job",
        "seq",
        "at",
        "is_bulk",
        f"CASE WHEN {_BROKEN} THEN array_compact(array({broken})) END AS broken",
        f"CASE WHEN {keys.IS_HELD} THEN idempotency_key END AS taken_key",
        f"CASE WHEN {keys.IS_FREED} THEN held.key END AS freed_key",
        f"CASE WHEN {keys.IS_FREED} THEN held.seq END AS freed_since",
        f"CASE WHEN {keys.IS_INSTANT} THEN schedule END AS schedule",
        f"CASE WHEN {keys.IS_INSTANT} THEN instant END AS instant",
        f"({limits.IS_CLAIM}) AS is_claim" if is_limited else "false AS is_claim",
        f"({is_keyless}) AS is_keyless",
        f"""CASE
            WHEN {limits.IS_CLAIM} THEN if(coalesce(slot.is_counted, false), 0, 1)
            WHEN {limits.IS_END} THEN -1
        END AS step"""
        if is_limited
        else "cast(NULL AS int) AS step",
        f"CASE WHEN {limits.IS_CLAIM} THEN key ELSE slot.key END AS slot_key"
        if is_limited
        else "cast(NULL AS string) AS slot_key",
        "is_newest" if is_compared else "false AS is_newest",
        "CASE WHEN is_known THEN NOT removes ELSE is_there END AS is_left",
        "CASE WHEN is_known THEN target WHEN is_again THEN state END AS left_in",
    )


def _of_jobs(found: DataFrame, queues: DataFrame) -> DataFrame:
    """Breaches that the events of one job show; where a log was trimmed a job may begin with any event."""
    broken = found.where("broken IS NOT NULL").selectExpr("*", "inline(broken) AS (rule, says)")
    trimmed = queues.where("start > 1").select("tenant", "queue")
    of_old = broken.where(col("rule") == Rule.NO_ENQUEUE).join(trimmed, ["tenant", "queue"], "left_anti")
    others = broken.where(col("rule") != Rule.NO_ENQUEUE)
    unread = f"if(rule = '{Rule.UNKNOWN}' AND is_bulk, NULL, job) AS job"
    shape = ["rule", "tenant", "queue", unread, "seq", "says"]
    return others.selectExpr(*shape).union(of_old.selectExpr(*shape))


def _queues(spark: SparkSession, starts: Mapping[QueueRef, int]) -> DataFrame:
    """Where logs begin that were trimmed."""
    rows = [(queue.tenant, queue.name, start) for queue, start in starts.items()]
    return broadcast(spark.createDataFrame(rows, _QUEUES))


def _nothing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(Rule.NOTHING_READ.value, None, None, None, None, "no event was read")], _BREACHES
    )
