"""The database's fsck: what a queue's records, keys and events should agree on."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.stores.protocol import Finding

_LIVE: Final = {
    "an active job without a lease": "state = 'active' AND (token IS NULL OR deadline IS NULL)",
    "a lease on a job that is not active": (
        "state <> 'active' AND (token IS NOT NULL OR deadline IS NOT NULL)"
    ),
    "a delayed job without a time": "state = 'delayed' AND visible_at IS NULL",
    "a time to become visible on a job that is not delayed": "state <> 'delayed' AND visible_at IS NOT NULL",
    "an ended job among the live ones": "state NOT IN ('blocked', 'pending', 'delayed', 'active')",
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
    AND (newest.version <> record.version OR newest.target <> record.state OR newest.stamp <> record.stamp)
LIMIT $2::bigint
"""

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]


async def findings(ask: Ask, number: int) -> list[Finding]:
    """Everything that is not as it should be, up to a hundred jobs per rule."""
    found: list[Finding] = []
    for table, rules in (("job", _LIVE), ("ended", _ENDED), ("record", _ALL)):
        for what, rule in rules.items():
            rows = await ask(
                f"SELECT id FROM penstock.{table} AS record WHERE queue = $1 AND ({rule}) LIMIT $2::bigint",  # noqa: S608 (constants)
                number,
                _LIMIT,
            )
            found += [Finding(what, job) for (job,) in rows]
    rows = await ask(_VERSIONS, number, _LIMIT)
    return found + [Finding("the record and its newest event disagree", job) for (job,) in rows]
