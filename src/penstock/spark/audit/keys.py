"""Rules on what may be there once: idempotency keys of live jobs, and instants of schedules."""

from typing import Final

from pyspark.sql import DataFrame

from penstock.core.history.rules import Rule
from penstock.spark.audit.found import KNOWN, Kind
from penstock.spark.audit.known import newest

# Keys that were taken more than once, by their hashes: mostly there are none, and then nothing is sorted.
_AGAIN: Final = f"""
SELECT hash FROM (SELECT xxhash64(tenant, queue, text) AS hash FROM {{found}} WHERE kind = {int(Kind.HOLD)})
GROUP BY hash HAVING count(*) > 1
"""  # noqa: S608 (constants)

# A caller that takes a key finds it free if its last holder has freed it by then.
_KEY_TWICE: Final = f"""
SELECT
    '{Rule.KEY_TWICE}' AS rule, tenant, queue, job, seq,
    concat('got the key \\'', text, '\\' of a job that has not ended') AS says
FROM (
    SELECT *, lag(seq) OVER line IS NOT NULL AND coalesce(lag(number) OVER line > seq, true) AS is_held
    FROM (
        SELECT * FROM {{found}}
        WHERE kind = {int(Kind.HOLD)} AND xxhash64(tenant, queue, text) IN (SELECT hash FROM {{again}})
    )
    WINDOW line AS (PARTITION BY tenant, queue, text ORDER BY seq)
)
WHERE is_held AND name IS NULL
"""  # noqa: S608 (constants)

_INSTANT: Final = f"""
SELECT
    '{Rule.INSTANT}' AS rule, tenant, queue, job, seq,
    concat('schedule \\'', text, '\\' made a second job for instant ', number) AS says
FROM (
    SELECT *, row_number() OVER (PARTITION BY tenant, queue, text, number ORDER BY seq, job) AS nth
    FROM {{found}} WHERE kind = {int(Kind.INSTANT)}
)
WHERE nth > 1 AND name IS NULL
"""  # noqa: S608 (constants)

# Instants that an earlier audit saw used, where they are used now.
_INSTANTS_BEFORE: Final = f"""
SELECT /*+ BROADCAST(now) */ known.kind, known.tenant, known.queue, known.job, known.seq, known.text,
    known.number, '{KNOWN}' AS name
FROM {{known}} AS known
LEFT SEMI JOIN (SELECT * FROM {{found}} WHERE kind = {int(Kind.INSTANT)}) AS now
    ON now.tenant = known.tenant AND now.queue = known.queue AND now.text = known.text
    AND now.number = known.number
WHERE known.kind = {int(Kind.INSTANT)}
"""  # noqa: S608 (constants)

# Jobs that may hold a key that is taken now.
_HOLDERS: Final = f"""
SELECT /*+ BROADCAST(now) */ DISTINCT known.life
FROM {{known}} AS known
LEFT SEMI JOIN (SELECT * FROM {{found}} WHERE kind = {int(Kind.HOLD)}) AS now
    ON now.tenant = known.tenant AND now.queue = known.queue AND now.text = known.text
WHERE known.kind = {int(Kind.LIFE)}
"""  # noqa: S608 (constants)

# What became of a job with a new event is told by that: the others have their keys as they had them.
_HOLDS_BEFORE: Final = f"""
SELECT {int(Kind.HOLD)} AS kind, held.tenant, held.queue, held.job, held.number AS seq, held.text,
    cast(NULL AS bigint) AS number, '{KNOWN}' AS name
FROM {{held}} AS held
LEFT ANTI JOIN (SELECT life FROM {{found}} WHERE kind = {int(Kind.LIFE)}) AS now ON now.life = held.life
WHERE held.text IS NOT NULL
"""  # noqa: S608 (constants)
_COLUMNS: Final = ("kind", "tenant", "queue", "job", "seq", "text", "number", "name")


def with_known_keys(found: DataFrame, known: DataFrame) -> DataFrame:
    """Keys that were taken now, and those of earlier audits that are the same."""
    spark = found.sparkSession
    now = found.where(f"kind = {int(Kind.HOLD)}").select(*_COLUMNS)
    held = newest(known, spark.sql(_HOLDERS, found=found, known=known))
    return now.union(spark.sql(_HOLDS_BEFORE, found=found, held=held).select(*_COLUMNS))


def with_known_instants(found: DataFrame, known: DataFrame) -> DataFrame:
    """Instants that were used now, and those of earlier audits that are the same."""
    now = found.where(f"kind = {int(Kind.INSTANT)}").select(*_COLUMNS)
    return now.union(found.sparkSession.sql(_INSTANTS_BEFORE, found=found, known=known).select(*_COLUMNS))


def taken_again(found: DataFrame) -> DataFrame:
    """Hashes of keys that were taken more than once."""
    return found.sparkSession.sql(_AGAIN, found=found)


def key_breaches(found: DataFrame, again: DataFrame) -> DataFrame:
    """Breaches of `key-twice`, among the keys with these hashes."""
    return found.sparkSession.sql(_KEY_TWICE, found=found, again=again)


def instant_breaches(found: DataFrame) -> DataFrame:
    """Breaches of `instant`."""
    return found.sparkSession.sql(_INSTANT, found=found)
