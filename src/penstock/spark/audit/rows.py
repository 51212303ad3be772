"""Events as the audit wants them: one row per event and job, told apart by whether it can be read."""

from typing import Final

from pyspark.sql import DataFrame

from penstock.core.decide import NO_HANDLER
from penstock.core.moves import Move
from penstock.spark.audit.sqltext import MOVES, listed

GAP: Final = "gap"
"""The move of a row that stands for events that were trimmed before they were read."""
REMOVALS: Final = listed({Move.DELETE, Move.PRUNE})

# An event that removed many jobs is a row for each of them; `place` tells them apart, 0 is there once.
_ROWS: Final = f"""
SELECT
    tenant, queue, seq, at, move, version, drive, from_state AS source, to_state AS target, key, delivery,
    attempt, fence, worker, deadline, visible_at, schedule, instant, idempotency_key, max_attempts,
    coalesce(reason = '{NO_HANDLER}', false) AS is_unhandled,
    one AS job,
    coalesce(nth, 0) AS place,
    jobs IS NOT NULL AS is_bulk,
    problem IS NULL AND move IN ({MOVES}) AS is_read
FROM {{events}}
LATERAL VIEW OUTER posexplode(coalesce(jobs, array(job))) AS nth, one
WHERE move IS NULL OR move <> '{GAP}'
"""  # noqa: S608 (constants)

# The same event may have been read twice: what it says of its job counts once.
_MARKED: Final = f"""
SELECT
    *,
    is_read AND job IS NOT NULL AND NOT is_again AS is_known,
    NOT is_read AND job IS NOT NULL AND NOT is_again AS is_blank,
    is_read AND NOT is_again AND job IS NOT NULL AND (is_bulk OR move IN ({REMOVALS})) AS removes
FROM (
    SELECT *, coalesce(lag(struct(seq, place)) OVER line = struct(seq, place), false) AS is_again
    FROM {{rows}}
    WINDOW line AS (PARTITION BY tenant, queue, job ORDER BY seq, place)
)
"""  # noqa: S608 (constants)


def rows_of(events: DataFrame) -> DataFrame:
    """The rows of events in the shape of `schemas.EVENTS`; those of gaps are left out."""
    spark = events.sparkSession
    return spark.sql(_MARKED, rows=spark.sql(_ROWS, events=events))
