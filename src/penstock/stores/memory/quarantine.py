"""The quarantine of a store whose records nobody can damage from outside: it stays empty."""

from collections.abc import Sequence

from penstock.core.job import QueueRef
from penstock.stores.bounds import QUARANTINE_LIMIT
from penstock.stores.values import QuarantinedEntry


class MemoryQuarantine:
    """Answers as a store does in which nothing is damaged."""

    async def list_quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        return []

    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        return 0

    async def repair(self, queue: QueueRef) -> int:
        return 0
