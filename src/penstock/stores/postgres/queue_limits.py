"""Limits of queues and of keys that take turns: declared, ruled and listed."""

from typing import Final

from penstock.core.job import QueueRef
from penstock.core.limits import (
    STRIDE,
    Declaration,
    KeyRule,
    Mode,
    agreed,
    check_key_rule,
)
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.queue_transaction import QueueTransaction, is_plain
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import encode, restored, stored
from penstock.stores.values import KeyInfo

_IS_LIVE: Final = "SELECT EXISTS (SELECT 1 FROM penstock.job WHERE queue = $1)"
# Calls that make or lease jobs without holding the queue's row are through after this, or see the new row.
_WAIT_FOR_MOVES: Final = "LOCK TABLE penstock.job IN SHARE MODE"
_DECLARE: Final = """
UPDATE penstock.queue SET declaration = $2, is_plain = $3::boolean, has_keys = $4::boolean WHERE n = $1
"""
_ALL_KEYS: Final = """
SELECT key FROM penstock.job WHERE queue = $1 AND state = 'pending' AND key IS NOT NULL
UNION SELECT key FROM penstock.job WHERE queue = $1 AND state = 'active' AND key IS NOT NULL
UNION SELECT key FROM penstock.key_rule WHERE queue = $1
UNION SELECT key FROM penstock.lane WHERE queue = $1
"""
_OWED_AT_MOST: Final = """
WITH keys AS (
    UPDATE penstock.key_rate SET arrival_us = $3::bigint WHERE queue = $1 AND arrival_us > $3::bigint
)
UPDATE penstock.queue SET arrival_us = least(arrival_us, $2::bigint) WHERE n = $1
"""
_NO_LANES: Final = "DELETE FROM penstock.lane WHERE queue = $1"
_RULE_OF: Final = "SELECT max_active, weight FROM penstock.key_rule WHERE queue = $1 AND key = $2"
_NO_RULE: Final = "DELETE FROM penstock.key_rule WHERE queue = $1 AND key = $2"
_RULE: Final = """
INSERT INTO penstock.key_rule (queue, key, max_active, weight, stride)
VALUES ($1, $2, $3::integer, $4::integer, $5::bigint)
ON CONFLICT (queue, key) DO UPDATE SET
    max_active = excluded.max_active, weight = excluded.weight, stride = excluded.stride
"""
_KEYS: Final = """
WITH used AS (
    SELECT key
    FROM (
        SELECT key FROM penstock.job WHERE queue = $1 AND state = 'pending' AND key IS NOT NULL
        UNION SELECT key FROM penstock.job WHERE queue = $1 AND state = 'active' AND key IS NOT NULL
        UNION SELECT key FROM penstock.key_rule WHERE queue = $1
    ) AS found
    ORDER BY key COLLATE "C" LIMIT $2::bigint
)
SELECT
    used.key,
    (SELECT count(*) FROM penstock.job WHERE queue = $1 AND job.key = used.key AND state = 'pending'),
    (SELECT count(*) FROM penstock.job WHERE queue = $1 AND job.key = used.key AND state = 'active'),
    coalesce(CASE WHEN $4::boolean THEN rule.max_active END, $3::integer), coalesce(rule.weight, 1),
    lane.held_until
FROM used
LEFT JOIN penstock.key_rule AS rule ON rule.queue = $1 AND rule.key = used.key
LEFT JOIN penstock.lane ON lane.queue = $1 AND lane.key = used.key
"""

MAX_US: Final = 2**62


class QueueLimits:
    """What queues and keys may have at once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def declare(self, queue: QueueRef, wanted: Declaration) -> None:
        """Keep what the stored declaration and this one agree on."""
        async with self._backend.queue_transaction(await self._backend.open_number(queue)) as transaction:
            await self._declare(transaction, wanted)
        self._backend.notify_ready(queue)

    async def _declare(self, transaction: QueueTransaction, wanted: Declaration) -> None:
        after = await self._agreed(transaction, wanted)
        if after == transaction.declaration:
            return
        if after.mode is not transaction.declared.mode or (transaction.is_plain and not is_plain(after)):
            await self._backend.query(_WAIT_FOR_MOVES, on=transaction.connection)
            after = await self._agreed(transaction, wanted)
        transaction.declaration = after
        has_keys = after.mode.has_keys
        self._backend.note_mode(transaction.number, is_plain=is_plain(after), has_keys=has_keys)
        await self._backend.query(
            _DECLARE, transaction.number, encode(after), is_plain(after), has_keys, on=transaction.connection
        )
        # Arrival times that other rates left behind count no further than these rates could have come.
        most = (
            0 if rate is None else rate.owed_at_most(MAX_US, transaction.now_us)
            for rate in (after.rate, after.key_rate)
        )
        await self._backend.query(_OWED_AT_MOST, transaction.number, *most, on=transaction.connection)
        if not has_keys:
            await self._backend.query(_NO_LANES, transaction.number, on=transaction.connection)
            return
        rows = await self._backend.query(_ALL_KEYS, transaction.number, on=transaction.connection)
        transaction.check_keys(sorted(key for (key,) in rows))
        await transaction.refresh()
        await transaction.run_shared("apply_key_rate", transaction.now_us, STRIDE, transaction.key_slack_us)

    async def _agreed(self, transaction: QueueTransaction, wanted: Declaration) -> Declaration:
        [(is_live,)] = await self._backend.query(_IS_LIVE, transaction.number, on=transaction.connection)
        return agreed(transaction.declaration, wanted, is_live=is_live)

    @renumbers
    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        """Change a key's own limit or weight; None takes both back."""
        name = stored(key) or ""
        async with self._backend.queue_transaction(await self._backend.open_number(queue)) as transaction:
            rows = await self._backend.query(_RULE_OF, transaction.number, name, on=transaction.connection)
            before = KeyRule(*rows[0]) if rows else KeyRule()
            after = (
                KeyRule() if rule is None else check_key_rule(transaction.declared.mode, rule).over(before)
            )
            if after.is_plain:
                await self._backend.query(_NO_RULE, transaction.number, name, on=transaction.connection)
            else:
                limits = (after.limit, after.weight or 1, after.stride)
                await self._backend.query(_RULE, transaction.number, name, *limits, on=transaction.connection)
            transaction.check_keys([name])
        self._backend.notify_ready(queue)

    async def list_keys(self, queue: QueueRef, declaration: Declaration, limit: int) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""
        limits = (declaration.key_limit, declaration.mode is Mode.DYNAMIC)
        rows = await self._backend.read_queue(queue, _KEYS, limit, *limits)
        found = [KeyInfo(restored(key) or "", *rest) for key, *rest in rows]
        return sorted(found, key=lambda each: each.key)
