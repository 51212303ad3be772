"""Events as the audit folds them: one row per event and job, all rows of a job together, in their order."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr, lit

from penstock.core.decide import NO_HANDLER
from penstock.spark.audit.known import newest

GAP: Final = "gap"
"""The move of a row that stands for events that were trimmed before they were read."""

# An event that removed many jobs is a row for each of them; `place` tells them apart, 0 is there once.
_ROWS: Final = f"""
SELECT
    xxhash64(tenant, queue, one) AS life, tenant, queue, one AS job, seq, coalesce(nth, 0) AS place,
    jobs IS NOT NULL AS is_bulk, problem IS NULL AS is_read, move, from_state AS source, to_state AS target,
    unix_millis(at) AS at, version, drive, delivery, attempt, fence, worker,
    unix_millis(deadline) AS deadline, unix_millis(visible_at) AS visible_at, max_attempts,
    coalesce(reason = '{NO_HANDLER}', false) AS is_unhandled, idempotency_key, schedule,
    unix_millis(instant) AS instant{{key}}
FROM {{{{events}}}}
LATERAL VIEW OUTER posexplode(coalesce(jobs, array(job))) AS nth, one
WHERE move IS NULL OR move <> '{GAP}'
"""  # noqa: S608 (constants)


def rows_of(events: DataFrame, *, with_keys: bool) -> DataFrame:
    """The rows of events in the shape of `schemas.EVENTS`; those of gaps are left out."""
    text = _ROWS.format(key=", key" if with_keys else "")
    return events.sparkSession.sql(text, events=events)


def with_known(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """The same, each job after what earlier audits knew of it."""
    columns = ("life", "tenant", "queue", "job", "seq", "-1 AS place", "packed")
    known = newest(lives, rows.select("life").distinct()).selectExpr(*columns)
    return known.unionByName(rows.withColumn("packed", lit(None).cast("binary")), allowMissingColumns=True)


def together(rows: DataFrame) -> DataFrame:
    """The rows of each job in one partition, one after the other: the one exchange of the audit."""
    first = ["life", expr("place >= 0")] if "packed" in rows.columns else ["life"]
    return rows.repartition("life").sortWithinPartitions(*first, "seq", "place")
