"""What tenants used, day by day: counted in memory, and added to the store now and then."""

import asyncio
import logging
from collections import Counter
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from penstock.core.errors import StoreError
from penstock.stores.protocol import Clock, Shelves

SHELF: Final = "usage"
FLUSH_SECONDS: Final = 10.0
"""How often counts are written. What was counted since is lost with the process, and never the jobs."""
KEPT_DAYS: Final = 400
_TRIES: Final = 100
_log: Final = logging.getLogger("penstock.service")


class _Place(Shelves, Clock, Protocol):
    """What is needed of a store."""


class Day(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tenant used on a day, by UTC: jobs that were let in, and what a quota refused.

    A request that is refused before its body is read counts as one.
    """

    day: str
    jobs: int = 0
    refused: int = 0


class Usage:
    """Counts of this process, and those of all in the store."""

    def __init__(self, store: _Place) -> None:
        self._store = store
        self._counted: dict[str, Counter[str]] = {}

    def note(self, tenant: str, *, jobs: int = 0, refused: int = 0) -> None:
        """Count this much more."""
        self._counted.setdefault(tenant, Counter()).update(jobs=jobs, refused=refused)

    async def flush(self) -> None:
        """Add what was counted to what the store has."""
        counted, self._counted = self._counted, {}
        day = _day(await self._store.now()) if counted else ""
        while counted:
            tenant, counts = counted.popitem()
            try:
                await self._add(tenant, day, counts)
            except BaseException:
                for each, more in (*counted.items(), (tenant, counts)):
                    self._counted.setdefault(each, Counter()).update(more)
                raise

    async def of(self, tenant: str, days: int = KEPT_DAYS) -> list[Day]:
        """The days of a tenant, the newest last."""
        since = _day(await self._store.now() - days * 86_400_000)
        found = await self._store.shelf(tenant, SHELF, after=since, limit=days)
        return [msgspec.json.decode(entry.body, type=Day) for entry in found]

    async def run(self) -> None:
        """Flush every FLUSH_SECONDS until cancelled, and then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                await self._try()
        finally:
            await self._try()

    async def _try(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            _log.warning("usage of tenants not written: %s", error)

    async def _add(self, tenant: str, day: str, counts: Counter[str]) -> None:
        for _ in range(_TRIES):
            entry = await self._store.kept(tenant, SHELF, day)
            before = Day(day) if entry is None else msgspec.json.decode(entry.body, type=Day)
            after = Day(day, before.jobs + counts["jobs"], before.refused + counts["refused"])
            version = 0 if entry is None else entry.version
            if await self._store.keep(tenant, SHELF, day, msgspec.json.encode(after), expected=version):
                return await self._forget(tenant, day) if entry is None else None
        raise StoreError(f"the usage of tenant {tenant} changes faster than it can be added to")

    async def _forget(self, tenant: str, today: str) -> None:
        """Forget days that are too long ago; once a day is often enough."""
        first = datetime.fromisoformat(today).timestamp() - KEPT_DAYS * 86_400
        for entry in await self._store.shelf(tenant, SHELF, limit=10):
            if entry.name < _day(round(first * 1000)):
                await self._store.drop(tenant, SHELF, entry.name)


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")
