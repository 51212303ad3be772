"""What the log leaves behind, held against what the store has."""

from typing import Final

from pyspark.sql import DataFrame

from penstock.core.history.rules import Rule
from penstock.spark.audit.sqltext import LIVE_STATES

# A job that the log does not know may be from before its beginning where that was trimmed.
_DIFFERENT: Final = f"""
SELECT rule, tenant, queue, job, cast(NULL AS bigint) AS seq, says
FROM (
    SELECT
        coalesce(log.tenant, live.tenant) AS tenant, coalesce(log.queue, live.queue) AS queue,
        coalesce(log.job, live.id) AS job,
        CASE
            WHEN NOT coalesce(log.is_left, false) AND live.id IS NOT NULL
                AND (log.job IS NOT NULL OR coalesce(queues.start, 1) <= 1) THEN '{Rule.NOT_IN_LOG}'
            WHEN log.is_left AND live.id IS NOT NULL AND log.left_in <> live.state THEN '{Rule.STORE_STATE}'
            WHEN log.is_left AND live.id IS NULL AND log.left_in IN ({LIVE_STATES}) THEN '{Rule.NOT_IN_STORE}'
        END AS rule,
        concat(
            coalesce(concat(live.state, ' in the store'), 'not in the store'), ', ',
            if(log.is_left, concat(coalesce(log.left_in, 'unknown'), ' by the log'), 'not in the log')
        ) AS says
    FROM (SELECT * FROM {{found}} WHERE is_newest) AS log
    FULL OUTER JOIN {{live}} AS live
        ON live.tenant = log.tenant AND live.queue = log.queue AND live.id = log.job
    LEFT JOIN {{queues}} AS queues ON queues.tenant = live.tenant AND queues.queue = live.queue
)
WHERE rule IS NOT NULL
"""  # noqa: S608 (constants)


def breaches(found: DataFrame, live: DataFrame, queues: DataFrame, moved: DataFrame | None) -> DataFrame:
    """Breaches of `not-in-log`, `not-in-store` and `store-state`; of jobs that moved meanwhile none."""
    spark = found.sparkSession
    different = spark.sql(
        _DIFFERENT, found=found, live=live.select("tenant", "queue", "id", "state"), queues=queues
    )
    if moved is None:
        return different
    return different.join(
        moved.select("tenant", "queue", "job").distinct(), ["tenant", "queue", "job"], "left_anti"
    ).select(*different.columns)
