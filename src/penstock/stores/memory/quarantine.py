"""The quarantine of a store whose records nobody can damage from outside: it stays empty."""

from collections.abc import Sequence

from penstock.core.job import QueueRef
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT, QUARANTINE_LIMIT
from penstock.stores.values import DamagedEvent, QuarantinedEntry


class MemoryQuarantine:
    """Answers as a store does in which nothing is damaged."""

    async def quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        return []

    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        return 0

    async def repair(self, queue: QueueRef) -> int:
        return 0

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        return []
