"""Rules on what may be there once: idempotency keys of live jobs, and instants of schedules."""

from typing import Final

from pyspark.sql import DataFrame

from penstock.core.history.rules import Rule
from penstock.spark.audit.sqltext import ENDINGS

IS_HELD: Final = "is_birth AND idempotency_key IS NOT NULL"
"""SQL: the job takes an idempotency key."""
IS_FREED: Final = (
    f"held IS NOT NULL AND (removes OR is_blank OR is_birth OR follows AND target IN ({ENDINGS}))"
)
"""SQL: what is known of the job's key ends here."""
IS_INSTANT: Final = "is_birth AND schedule IS NOT NULL AND instant IS NOT NULL"

# Who took a key last is free of it if something with its number says so.
_KEY_TWICE: Final = f"""
SELECT
    '{Rule.KEY_TWICE}' AS rule, tenant, queue, job, seq,
    concat('got the key \\'', key, '\\' of a job that has not ended') AS says
FROM (
    SELECT *, max(taken) OVER past AS last_taken, max(freed) OVER past AS last_freed
    FROM (
        SELECT tenant, queue, job, seq, freed_key AS key, freed_since AS freed, cast(NULL AS bigint) AS taken
        FROM {{found}} WHERE freed_key IS NOT NULL
        UNION ALL
        SELECT tenant, queue, job, seq, taken_key, cast(NULL AS bigint), seq
        FROM {{found}} WHERE taken_key IS NOT NULL
    )
    WINDOW past AS (
        PARTITION BY tenant, queue, key ORDER BY seq, taken NULLS FIRST
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
WHERE taken IS NOT NULL AND last_taken IS NOT NULL AND coalesce(last_freed < last_taken, true)
"""  # noqa: S608 (constants)

_INSTANT: Final = f"""
SELECT
    '{Rule.INSTANT}' AS rule, tenant, queue, job, seq,
    concat('schedule \\'', schedule, '\\' made a second job for instant ', unix_millis(instant)) AS says
FROM (
    SELECT *, row_number() OVER (PARTITION BY tenant, queue, schedule, instant ORDER BY seq) AS nth
    FROM {{found}} WHERE instant IS NOT NULL
)
WHERE nth > 1
"""  # noqa: S608 (constants)


def breaches(found: DataFrame) -> DataFrame:
    """Breaches of `key-twice` and `instant`."""
    spark = found.sparkSession
    return spark.sql(_KEY_TWICE, found=found).union(spark.sql(_INSTANT, found=found))
