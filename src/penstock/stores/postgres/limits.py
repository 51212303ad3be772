"""Limits of queues, keys that take turns, and what they are told of."""

from typing import Final

from penstock.core.job import QueueRef
from penstock.core.limits import (
    Declaration,
    KeyRule,
    Mode,
    agreed,
    check_declaration,
    check_key_rule,
)
from penstock.stores.postgres.queues import PostgresQueues
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.turn import Turn, is_plain
from penstock.stores.rows import encode, restored, stored
from penstock.stores.values import KeyInfo, QueueInfo

_IS_LIVE: Final = "SELECT EXISTS (SELECT 1 FROM penstock.job WHERE queue = $1)"
# Whoever makes or leases jobs without holding the queue's row is through after this, or sees the news.
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


class PostgresLimits(PostgresQueues):
    """What queues and keys may have at once."""

    @renumbers
    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        """Compare with what is stored, and keep what was agreed; the row is held only if that is news."""
        wanted = check_declaration(declaration)
        known = await self.open_queue(queue)
        before = known.declaration
        if wanted.mode is known.mode and before and agreed(before, wanted, is_live=True) == before:
            return known
        async with self._turn(await self._number(queue)) as turn:
            await self._declare(turn, wanted)
        self._ring_ready(queue)
        return await self.open_queue(queue)

    async def _declare(self, turn: Turn, wanted: Declaration) -> None:
        after = await self._agreed(turn, wanted)
        if after == turn.declaration:
            return
        if after.mode is not turn.declared.mode or (turn.is_plain and not is_plain(after)):
            await self._ask(_WAIT_FOR_MOVES, on=turn.connection)
            after = await self._agreed(turn, wanted)
        turn.declaration = after
        has_keys = after.mode.has_keys
        self._learn(turn.number, is_plain=is_plain(after), has_keys=has_keys)
        await self._ask(_DECLARE, turn.number, encode(after), is_plain(after), has_keys, on=turn.connection)
        # What other rates left behind counts no further than these could have come.
        most = (
            0 if rate is None else rate.owed_at_most(MAX_US, turn.now_us)
            for rate in (after.rate, after.key_rate)
        )
        await self._ask(_OWED_AT_MOST, turn.number, *most, on=turn.connection)
        if not has_keys:
            await self._ask(_NO_LANES, turn.number, on=turn.connection)
            return
        rows = await self._ask(_ALL_KEYS, turn.number, on=turn.connection)
        turn.look_at(sorted(key for (key,) in rows))
        await turn.refresh()
        await turn.share("held", turn.now_us, turn.key_params[-1], turn.key_slack_us)

    async def _agreed(self, turn: Turn, wanted: Declaration) -> Declaration:
        [(is_live,)] = await self._ask(_IS_LIVE, turn.number, on=turn.connection)
        return agreed(turn.declaration, wanted, is_live=is_live)

    @renumbers
    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        """Change a key's own limit or weight; None takes both back."""
        name = stored(key) or ""
        async with self._turn(await self._number(queue)) as turn:
            rows = await self._ask(_RULE_OF, turn.number, name, on=turn.connection)
            before = KeyRule(*rows[0]) if rows else KeyRule()
            after = KeyRule() if rule is None else check_key_rule(turn.declared.mode, rule).over(before)
            if after.is_plain:
                await self._ask(_NO_RULE, turn.number, name, on=turn.connection)
            else:
                said = (after.limit, after.weight or 1, after.stride)
                await self._ask(_RULE, turn.number, name, *said, on=turn.connection)
            turn.look_at([name])
        self._ring_ready(queue)

    @renumbers
    async def keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""
        info = await self.queue(queue)
        if info is None or info.declaration is None or not info.mode.has_keys:
            return []
        said = (info.declaration.key_limit, info.mode is Mode.DYNAMIC)
        rows = await self._look_at(queue, _KEYS, limit, *said)
        found = [KeyInfo(restored(key) or "", *rest) for key, *rest in rows]
        return sorted(found, key=lambda each: each.key)
