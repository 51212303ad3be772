"""Limits of queues and keys that take turns; still to come on this store."""

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule
from penstock.stores.postgres.later import refuse
from penstock.stores.postgres.room import Room
from penstock.stores.protocol import KeyInfo, QueueInfo


class PostgresLimits(Room):
    """What queues and keys may have at once."""

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        """Compare with what is stored, and keep what was agreed."""
        refuse("modes and limits")

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        """Give a key a limit or weight of its own."""
        refuse("limits per key")

    async def keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""
        return []
