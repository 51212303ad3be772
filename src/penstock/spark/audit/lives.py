"""What was known of a job before each of its events, as the checker of `core.history` keeps it.

All of it comes from windows over the events of one job in the order of their numbers, which every store gives
out in the order in which the job's moves happened: one exchange and one sort for all rules.
"""

from typing import Final

from pyspark.sql import DataFrame

from penstock.core.events import COUNTED_MOVES, LEASE_MOVES
from penstock.core.moves import Move
from penstock.spark.audit.sqltext import ENDINGS, PATHS, listed, path_of

COUNTED: Final = listed(COUNTED_MOVES)
UNDER_LEASE: Final = listed(LEASE_MOVES - {Move.CLAIM})
_JOB: Final = "PARTITION BY tenant, queue, job ORDER BY seq, place"
_WINDOWS: Final = f"""
WINDOW
    past AS ({_JOB} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
    now AS ({_JOB} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
    line AS ({_JOB})
"""

# Each column has what the newest event that says something of it said: `last(…, true)` skips the others. A
# struct with NULL in it says "not known any longer"; nor is what a job had before its first event that is
# there. `life` tells apart the jobs that had the same id one after the other.
_FIRST: Final = f"""
SELECT
    *,
    last(CASE WHEN is_known THEN struct(target, drive, visible_at, removes) END, true) OVER past AS before,
    last(CASE
        WHEN is_known OR is_blank THEN struct(is_blank, version IS NULL AS is_uncounted)
    END, true) OVER past AS newest,
    count_if(is_known AND move = 'enqueue') OVER now + count_if(removes) OVER past AS life,
    count_if(is_known AND move IN ({COUNTED})) OVER past AS counted,
    (last(CASE
        WHEN removes THEN struct(cast(NULL AS int) AS most)
        WHEN is_known AND move = 'enqueue' THEN struct(max_attempts AS most)
    END, true) OVER past).most AS most_attempts,
    last(CASE
        WHEN is_known AND move = 'unblock' THEN true
        WHEN removes OR is_known AND move IN ('enqueue', 'redrive') THEN false
    END, true) OVER past AS was_unblocked,
    (last(CASE
        WHEN removes OR is_blank THEN struct(cast(NULL AS boolean) AS is_asked)
        WHEN is_known AND move IN ('enqueue', 'redrive') THEN struct(false AS is_asked)
        WHEN is_known AND move = 'cancel' THEN struct(target <=> 'active' AS is_asked)
    END, true) OVER past).is_asked AS is_cancelling,
    (last(CASE
        WHEN removes OR is_blank THEN struct(false AS is_there)
        WHEN is_known AND (move = 'enqueue' OR move IN ({UNDER_LEASE}) AND fence IS NOT NULL)
            THEN struct(true AS is_there)
        WHEN is_known AND move = 'claim' THEN struct(fence IS NOT NULL AS is_there)
    END, true) OVER past).is_there AS knows_lease,
    (last(CASE
        WHEN removes OR is_blank OR is_known AND move = 'enqueue'
            THEN struct(cast(NULL AS timestamp) AS until)
        WHEN is_known AND move = 'claim' THEN struct(deadline AS until)
    END, true) OVER past).until AS leased_until,
    (last(CASE
        WHEN removes OR is_blank OR is_known AND move = 'enqueue'
            THEN struct(cast(NULL AS bigint) AS ms)
        WHEN is_known AND move = 'claim' THEN struct(unix_millis(deadline) - unix_millis(at) AS ms)
    END, true) OVER past).ms AS leased_for_ms,
    last(CASE
        WHEN is_known AND move = 'claim' THEN struct(true AS is_counted, key)
        WHEN removes OR is_blank OR is_known AND (move = 'enqueue' OR NOT target <=> 'active')
            THEN struct(false AS is_counted, key)
    END, true) OVER past AS slot,
    (last(CASE
        WHEN is_known AND move = 'enqueue' AND idempotency_key IS NOT NULL
            THEN struct(struct(idempotency_key AS key, seq) AS hold)
        WHEN removes OR is_blank OR is_known AND (move = 'enqueue' OR target IN ({ENDINGS}))
            THEN struct(cast(NULL AS struct<key: string, seq: bigint>) AS hold)
    END, true) OVER past).hold AS held
FROM {{marked}}
{_WINDOWS}
"""  # noqa: S608 (constants)

# The first event under a lease that is not known tells of it: `tells_lease`. Failures are counted from the
# newest event that gave their number.
_SECOND: Final = f"""
SELECT
    *,
    max(CASE WHEN is_known OR is_blank THEN struct(life, version) END) OVER past AS newest_version,
    last(CASE
        WHEN is_known AND move = 'enqueue'
            THEN struct(0L AS fence, 0 AS delivery, cast(NULL AS string) AS worker)
        WHEN is_known AND (move = 'claim' OR tells_lease) THEN struct(fence, delivery, worker)
    END, true) OVER past AS lease,
    counted + coalesce(last(CASE
        WHEN removes OR is_known AND move IN ('enqueue', 'redrive') THEN -counted
        WHEN is_known AND (move = 'claim' OR tells_lease) AND attempt IS NOT NULL THEN attempt - 1 - counted
    END, true) OVER past, 0) AS failures,
    lead(place) OVER line IS NULL AS is_newest
FROM (
    SELECT
        *,
        is_known AND move IN ({UNDER_LEASE}) AND NOT coalesce(knows_lease, false) AS tells_lease
    FROM {{first}}
)
{_WINDOWS}
"""  # noqa: S608 (constants)

_NAMED: Final = f"""
SELECT
    *,
    {path_of("move", "source", "target")} IN ({PATHS}) AS is_legal,
    is_known AND move = 'enqueue' AND NOT is_bulk AS is_birth,
    is_known AND move <> 'enqueue' AND NOT is_bulk AS follows,
    is_known AND move <> 'enqueue' AND NOT is_bulk AND NOT is_there AS is_met,
    CASE WHEN is_there AND NOT newest.is_blank THEN before.target END AS state,
    CASE WHEN is_there AND NOT newest.is_blank THEN before.visible_at END AS due,
    CASE WHEN is_there THEN
        before.drive + CASE WHEN move = 'redrive' THEN 1 ELSE 0 END
    END AS next_drive,
    CASE WHEN is_there THEN
        newest_version.version + CASE WHEN newest.is_blank AND newest.is_uncounted THEN 2 ELSE 1 END
    END AS next_version
FROM (SELECT *, before IS NOT NULL AND NOT before.removes AS is_there FROM {{second}})
"""  # noqa: S608 (constants)


def lives_of(marked: DataFrame) -> DataFrame:
    """Every row with what was known of its job before: `state`, `lease`, `failures` and so on."""
    spark = marked.sparkSession
    first = spark.sql(_FIRST, marked=marked)
    return spark.sql(_NAMED, second=spark.sql(_SECOND, first=first))
