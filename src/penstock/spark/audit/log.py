"""Rules on the log itself: its numbers and its clock, queue by queue."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr, lit

from penstock.core.clocks import STEP_MS
from penstock.core.history.rules import Rule
from penstock.spark.audit.rows import GAP

_STRETCH: Final = 1 << 16
"""A queue's log is looked at in stretches of so many numbers, so that a large queue is no single task."""

_ORDERED: Final = "NOT coalesce(cursor, '') LIKE '%-%-%'"
"""SQL: the cursor has no stamp. One is there where a log has another order than that of its numbers."""

# The last number of a stretch stands in the next one too, as its first row: `is_own` is false there.
_STRETCHES: Final = f"""
SELECT
    tenant, queue, seq, at, job, in_order,
    stands DIV {_STRETCH} AS stretch, stands = seq AS is_own
FROM {{events}}
LATERAL VIEW explode(
    if((seq + 1) % {_STRETCH} = 0, array(seq, seq + 1), array(seq))
) AS stands
WHERE seq IS NOT NULL AND (move IS NULL OR move <> '{GAP}')
"""  # noqa: S608 (constants)

_BROKEN: Final = f"""
SELECT tenant, queue, job, seq, in_order, inline(array_compact(array(
    CASE WHEN seq = seq_before THEN struct('{Rule.SEQ_TWICE}' AS rule, 'is there twice' AS says) END,
    CASE WHEN seq_before IS NULL OR seq_before < seq - 1 THEN struct(
        '{Rule.SEQ_GAP}' AS rule,
        concat(coalesce(concat(seq_before + 1, ' to '), 'numbers up to '), seq - 1, ' are missing') AS says
    ) END,
    CASE WHEN unix_millis(at_before) - unix_millis(at) BETWEEN 1 AND {STEP_MS} - 1 THEN struct(
        '{Rule.TIME_BACK}' AS rule,
        concat(unix_millis(at_before) - unix_millis(at), ' ms before the event ahead of it') AS says
    ) END
)))
FROM (
    SELECT *, lag(seq) OVER line AS seq_before, lag(at) OVER line AS at_before
    FROM {{stretches}}
    WINDOW line AS (PARTITION BY tenant, queue, stretch ORDER BY seq, is_own, at, job)
)
WHERE is_own AND (seq_before IS NULL OR seq_before <> seq - 1 OR at < at_before)
"""  # noqa: S608 (constants)

# A log that was trimmed begins with a higher number than one; where many write at once, numbers are left out
# and times stand side by side.
_JUDGED: Final = f"""
SELECT broken.rule, broken.tenant, broken.queue, broken.job, broken.seq, broken.says
FROM {{broken}} AS broken
LEFT JOIN {{queues}} AS queues ON queues.tenant = broken.tenant AND queues.queue = broken.queue
WHERE broken.rule = '{Rule.SEQ_TWICE}'
    OR broken.in_order AND (broken.rule <> '{Rule.SEQ_GAP}' OR broken.seq > coalesce(queues.start, 1))
"""  # noqa: S608 (constants)

_GAPS: Final = f"""
SELECT '{Rule.SEQ_GAP}' AS rule, tenant, queue, job, seq, problem AS says FROM {{events}} WHERE move = '{GAP}'
"""  # noqa: S608 (constants)


def breaches(events: DataFrame, queues: DataFrame, *, in_order: bool | None) -> DataFrame:
    """Breaches of `seq-gap`, `seq-twice` and `time-back`; if None, cursors tell what is in order."""
    spark = events.sparkSession
    ordered = expr(_ORDERED) if in_order is None else lit(in_order)
    stretches = spark.sql(_STRETCHES, events=events.withColumn("in_order", ordered))
    judged = spark.sql(_JUDGED, broken=spark.sql(_BROKEN, stretches=stretches), queues=queues)
    return judged.union(spark.sql(_GAPS, events=events))
