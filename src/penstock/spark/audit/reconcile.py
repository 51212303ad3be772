"""What the log leaves behind, held against what the store has."""

from typing import Final

from pyspark.sql import DataFrame

from penstock.core.history.rules import Rule
from penstock.core.states import LIVE
from penstock.spark.audit.found import Kind
from penstock.spark.audit.sqltext import listed

# A job that the log does not know may be from before its beginning where that was trimmed.
_DIFFERENT: Final = f"""
SELECT rule, tenant, queue, job, cast(NULL AS bigint) AS seq, says
FROM (
    SELECT
        coalesce(log.tenant, live.tenant) AS tenant, coalesce(log.queue, live.queue) AS queue,
        coalesce(log.job, live.id) AS job,
        CASE
            WHEN log.number IS NULL AND live.id IS NOT NULL
                AND (log.job IS NOT NULL OR coalesce(queues.start, 1) <= 1) THEN '{Rule.NOT_IN_LOG}'
            WHEN log.number IS NOT NULL AND live.id IS NOT NULL AND log.name <> live.state
                THEN '{Rule.STORE_STATE}'
            WHEN log.number IS NOT NULL AND live.id IS NULL AND log.name IN ({listed(LIVE)})
                THEN '{Rule.NOT_IN_STORE}'
        END AS rule,
        concat(
            coalesce(concat(live.state, ' in the store'), 'not in the store'), ', ',
            if(log.number IS NOT NULL, concat(coalesce(log.name, 'unknown'), ' by the log'), 'not in the log')
        ) AS says
    FROM (SELECT * FROM {{found}} WHERE kind = {int(Kind.LEFT)}) AS log
    FULL OUTER JOIN (
        SELECT tenant, queue, id, state, xxhash64(tenant, queue, id) AS life FROM {{live}}
    ) AS live
        ON live.life = log.life AND live.tenant = log.tenant AND live.queue = log.queue AND live.id = log.job
    LEFT JOIN {{queues}} AS queues ON queues.tenant = live.tenant AND queues.queue = live.queue
)
WHERE rule IS NOT NULL
"""  # noqa: S608 (constants)


def breaches(found: DataFrame, live: DataFrame, queues: DataFrame, moved: DataFrame | None) -> DataFrame:
    """Breaches of `not-in-log`, `not-in-store` and `store-state`; of jobs that moved meanwhile none."""
    spark = found.sparkSession
    different = spark.sql(_DIFFERENT, found=found, live=live, queues=queues)
    if moved is None:
        return different
    return different.join(
        moved.select("tenant", "queue", "job").distinct(), ["tenant", "queue", "job"], "left_anti"
    ).select(*different.columns)
