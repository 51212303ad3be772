"""When each version of the code of workers was first seen: the marks of deploys."""

import hashlib
from typing import Final

import msgspec

from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.protocol import Clock, KeyValue
from penstock.stores.values import KeyValueEntry, SeenVersion, WorkerEntry

NAMESPACE: Final = "worker_versions"
KEPT_MS: Final = 30 * 24 * 3_600_000
"""How long a version is kept after a worker of it was seen last."""
RENEWED_MS: Final = 24 * 3_600_000
"""How old the last sight of a version may be that workers still run."""
MOST_VERSIONS: Final = 100
"""Versions of a tenant; of more, those that were seen first are forgotten."""
MOST_NOTED: Final = 10_000
"""Versions that one store remembers to have noted."""
_Key = tuple[str, str | None, str]
_Entries = list[tuple[KeyValueEntry, SeenVersion]]


class WorkerVersions:
    """The versions of one store, kept as key-value entries of their tenants."""

    def __init__(self, key_value: KeyValue, clock: Clock) -> None:
        self._key_value = key_value
        self._clock = clock
        self._noted: dict[_Key, int] = {}

    async def note(self, tenant: str, worker: WorkerEntry, now: int) -> None:
        """Keep the first sight of the worker's version, and renew its last sight once a day."""
        key = (tenant, worker.app_version, worker.version)
        if 0 <= now - self._noted.get(key, now - RENEWED_MS - 1) <= RENEWED_MS:
            return
        name = _name_of(worker)
        stored = await self._key_value.get_entry(tenant, NAMESPACE, name)
        seen = None if stored is None else _seen_of(stored)
        first = now if seen is None else min(now, seen.first_seen)
        body = msgspec.json.encode(SeenVersion(worker.app_version, worker.version, first, now))
        # Another worker of the version may do the same just now: then its sight is as good.
        expected = 0 if stored is None else stored.version
        await self._key_value.put_entry(tenant, NAMESPACE, name, body, expected=expected)
        if stored is None:
            await self._forget(tenant, now)
        if len(self._noted) >= MOST_NOTED:
            self._noted.clear()
        self._noted[key] = now

    async def list(self, tenant: str) -> list[SeenVersion]:
        """The versions that were seen in the last 30 days, the newest first."""
        now = await self._clock.now()
        found = [seen for _, seen in await self._all(tenant) if seen.last_seen > now - KEPT_MS]
        return sorted(found, key=lambda seen: seen.first_seen, reverse=True)

    async def _forget(self, tenant: str, now: int) -> None:
        newest = sorted(await self._all(tenant), key=lambda each: each[1].first_seen, reverse=True)
        for place, (entry, seen) in enumerate(newest):
            if place >= MOST_VERSIONS or seen.last_seen <= now - KEPT_MS:
                await self._key_value.delete_entry(tenant, NAMESPACE, entry.name, expected=entry.version)

    async def _all(self, tenant: str) -> _Entries:
        found: _Entries = []
        after = ""
        while True:
            page = await self._key_value.list_entries(tenant, NAMESPACE, after=after, limit=ENTRY_LIMIT)
            found += [(entry, seen) for entry in page if (seen := _seen_of(entry)) is not None]
            if len(page) < ENTRY_LIMIT:
                return found
            after = page[-1].name


_DECODER: Final = msgspec.json.Decoder(SeenVersion)


def _seen_of(entry: KeyValueEntry) -> SeenVersion | None:
    try:
        return _DECODER.decode(entry.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Of a version of Penstock that this one does not understand.
        return None


def _name_of(worker: WorkerEntry) -> str:
    words = f"{worker.version}\0{worker.app_version or ''}"
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
