"""The database's fsck: what a queue's records, keys and events should agree on."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.core.limits import Declaration, Mode
from penstock.stores.postgres.queue_transaction import is_plain
from penstock.stores.rows import declaration_of, restored
from penstock.stores.values import Finding

_LIVE: Final = {
    "an active job without a lease": "state = 'active' AND (token IS NULL OR deadline IS NULL)",
    "a lease on a job that is not active": (
        "state <> 'active' AND (token IS NOT NULL OR deadline IS NOT NULL)"
    ),
    "a delayed job without a time": "state = 'delayed' AND visible_at IS NULL",
    "a time to become visible on a job that is not delayed": "state <> 'delayed' AND visible_at IS NOT NULL",
    "an ended job among the live ones": (
        "state NOT IN ('blocked', 'pending', 'delayed', 'active', 'quarantined')"
    ),
    "a job both live and ended": (
        "EXISTS (SELECT 1 FROM penstock.ended WHERE ended.queue = record.queue AND ended.id = record.id)"
    ),
}
_ENDED: Final = {
    "a lease on a job that has ended": "token IS NOT NULL OR deadline IS NOT NULL OR visible_at IS NOT NULL",
}
_ALL: Final = {
    "a job whose idempotency key belongs to nobody": (
        "idempotency_key IS NOT NULL AND NOT EXISTS ("
        "SELECT 1 FROM penstock.idempotency WHERE idempotency.queue = record.queue "
        "AND idempotency.key = record.idempotency_key AND idempotency.job = record.id)"
    ),
}
_LIMIT: Final = 100

_VERSIONS: Final = """
SELECT record.id
FROM penstock.record
JOIN (
    SELECT DISTINCT ON (event.job) event.job, event.version, event.target, event.stamp
    FROM penstock.event
    WHERE event.queue = $1 AND event.job IS NOT NULL
    ORDER BY event.job, event.stamp DESC, event.seq DESC
) AS newest ON newest.job = record.id
WHERE record.queue = $1
    AND record.state <> 'quarantined'
    AND (newest.version <> record.version OR newest.target <> record.state OR newest.stamp <> record.stamp)
LIMIT $2::bigint
"""

# Exactly the keys that could run have a lane: those with waiting jobs and a free slot, where keys take turns.
_LANES: Final = """
WITH used AS (
    SELECT key FROM penstock.job WHERE queue = $1 AND state = 'pending' AND key IS NOT NULL
    UNION SELECT key FROM penstock.lane WHERE queue = $1
)
SELECT used.key, lane.key IS NOT NULL
FROM used
LEFT JOIN penstock.key_rule AS rule ON rule.queue = $1 AND rule.key = used.key
LEFT JOIN penstock.lane ON lane.queue = $1 AND lane.key = used.key
WHERE (lane.key IS NOT NULL) <> (
    $2::boolean
    AND EXISTS (SELECT 1 FROM penstock.job WHERE queue = $1 AND key = used.key AND state = 'pending')
    AND (SELECT count(*) FROM penstock.job WHERE queue = $1 AND key = used.key AND state = 'active')
        < coalesce(CASE WHEN $3::boolean THEN rule.max_active END, $4::bigint)
)
LIMIT $5::bigint
"""
_DECLARED: Final = "SELECT declaration, is_plain, has_keys FROM penstock.queue WHERE n = $1"
_TURNS: Final = """
SELECT lane.key FROM penstock.lane JOIN penstock.queue ON queue.n = lane.queue
WHERE lane.queue = $1 AND lane.held_until IS NULL AND lane.turn < queue.virtual
LIMIT $2::bigint
"""
_KINDS: Final = """
SELECT kind.job FROM penstock.kind
WHERE kind.queue = $1 AND NOT kind.is_left
    AND NOT EXISTS (SELECT 1 FROM penstock.record WHERE record.queue = $1 AND record.id = kind.job)
LIMIT $2::bigint
"""
_KEYS: Final = """
SELECT idempotency.job FROM penstock.idempotency
WHERE idempotency.queue = $1 AND idempotency.until IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM penstock.record
        WHERE record.queue = $1 AND record.id = idempotency.job AND record.idempotency_key = idempotency.key
    )
LIMIT $2::bigint
"""

Query = Callable[..., Awaitable[list[tuple[Any, ...]]]]


async def findings(query: Query, number: int) -> list[Finding]:
    """All findings about a queue, up to `_LIMIT` jobs per rule."""
    found: list[Finding] = []
    for table, rules in (("job", _LIVE), ("ended", _ENDED), ("record", _ALL)):
        for what, rule in rules.items():
            rows = await query(
                f"SELECT id FROM penstock.{table} AS record WHERE queue = $1 AND ({rule}) LIMIT $2::bigint",  # noqa: S608 (constants)
                number,
                _LIMIT,
            )
            found += [Finding(what, job) for (job,) in rows]
    rows = await query(_VERSIONS, number, _LIMIT)
    found += [Finding("the record and its newest event disagree", job) for (job,) in rows]
    rows = await query(_KINDS, number, _LIMIT)
    found += [Finding("a kind whose job is gone, and that nobody would forget", job) for (job,) in rows]
    rows = await query(_KEYS, number, _LIMIT)
    found += [Finding("an idempotency key held for a job that does not have it", job) for (job,) in rows]
    return found + await _lanes(query, number)


async def _lanes(query: Query, number: int) -> list[Finding]:
    """Findings about keys that could be served and have no lane, or the other way round."""
    [(text, plain, has_keys)] = await query(_DECLARED, number)
    declared = Declaration() if text is None else declaration_of(text)
    found: list[Finding] = []
    if (plain, has_keys) != (is_plain(declared), declared.mode.has_keys):
        found.append(Finding("the queue's row and its declaration disagree on who has to hold the row"))
    limits = (declared.mode is Mode.DYNAMIC, declared.key_limit)
    for key, has_lane in await query(_LANES, number, declared.mode.has_keys, *limits, _LIMIT):
        wrong = "has a lane and could not be served" if has_lane else "could be served and has no lane"
        found.append(Finding(f"the key {restored(key)!r} {wrong}"))
    for (key,) in await query(_TURNS, number, _LIMIT):
        found.append(Finding(f"the turn of the key {restored(key)!r} was passed over"))
    return found
