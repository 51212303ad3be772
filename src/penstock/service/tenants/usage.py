"""Usage of tenants by day: counted in memory, and added to the store now and then."""

import asyncio
import logging
from collections import Counter
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from penstock.core.errors import PenstockError, StoreError
from penstock.core.repeated_failures import RepeatedFailures
from penstock.stores.protocol import HasClock, HasKeyValue
from penstock.stores.values import KeyValueEntry

NAMESPACE: Final = "usage"
FLUSH_SECONDS: Final = 10.0
"""How often counts are written. What was counted since is lost with the process, and never the jobs."""
KEPT_DAYS: Final = 400
_TRIES: Final = 100
_log: Final = logging.getLogger("penstock.service")


class _Backend(HasKeyValue, HasClock, Protocol):
    """The parts of a store that this module uses."""


class UsageDay(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tenant used on a day, by UTC: jobs that were let in, and what a quota refused.

    A request that is refused before its body is read counts as one.
    """

    day: str
    jobs: int = 0
    refused: int = 0


class Usage:
    """Counts the usage of this process, and adds it to that of all processes in the store."""

    def __init__(self, store: _Backend) -> None:
        self._store = store
        self._counted: dict[str, Counter[str]] = {}
        self._reasons = RepeatedFailures()

    def note(self, tenant: str, *, jobs: int = 0, refused: int = 0) -> None:
        """Count this much more."""
        self._counted.setdefault(tenant, Counter()).update(jobs=jobs, refused=refused)

    async def flush(self) -> None:
        """Add what was counted to what the store has; what cannot be added now is added by the next flush.

        One tenant's keeps no other waiting: what failed first is raised after all were tried.
        """
        if not self._counted:
            return
        day = _day(await self._store.clock.now())
        counted, self._counted = self._counted, {}
        failure: Exception | None = None
        try:
            for tenant in list(counted):
                try:
                    await self._add(tenant, day, counted[tenant])
                    del counted[tenant]
                except Exception as error:  # noqa: BLE001 (raised below)
                    failure = failure or error
        finally:
            for tenant, counts in counted.items():
                self._counted.setdefault(tenant, Counter()).update(counts)
        if failure is not None:
            raise failure

    async def of(self, tenant: str, days: int = KEPT_DAYS) -> list[UsageDay]:
        """The days of a tenant, the newest last."""
        since = _day(await self._store.clock.now() - days * 86_400_000)
        found = await self._store.key_value.list_entries(tenant, NAMESPACE, after=since, limit=days)
        return [day for entry in found if (day := _read(entry)) is not None]

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
        except PenstockError as error:
            if self._reasons.is_new(error):
                _log.warning("usage of tenants not written: %s", error)
        except Exception:  # noqa: BLE001 (logged)
            _log.exception("usage of tenants not written")
        else:
            self._reasons.over()

    async def _add(self, tenant: str, day: str, counts: Counter[str]) -> None:
        for _ in range(_TRIES):
            entry = await self._store.key_value.get_entry(tenant, NAMESPACE, day)
            before = (None if entry is None else _read(entry)) or UsageDay(day)
            after = UsageDay(day, before.jobs + counts["jobs"], before.refused + counts["refused"])
            version = 0 if entry is None else entry.version
            if await self._store.key_value.put_entry(
                tenant, NAMESPACE, day, msgspec.json.encode(after), expected=version
            ):
                return await self._forget(tenant, day) if entry is None else None
        raise StoreError(f"the usage of tenant {tenant} changes faster than it can be added to")

    async def _forget(self, tenant: str, today: str) -> None:
        """Forget days that are too long ago; once a day is often enough."""
        first = datetime.fromisoformat(today).timestamp() - KEPT_DAYS * 86_400
        for entry in await self._store.key_value.list_entries(tenant, NAMESPACE, limit=10):
            if entry.name < _day(round(first * 1000)):
                await self._store.key_value.delete_entry(tenant, NAMESPACE, entry.name)


def _read(entry: KeyValueEntry) -> UsageDay | None:
    """The day; None for an entry of foreign content."""
    try:
        return msgspec.json.decode(entry.body, type=UsageDay)
    except msgspec.DecodeError:
        return None


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")
