"""The shelves of the memory store: entries of a tenant that are no jobs."""

from penstock.stores.bounds import SHELF_LIMIT
from penstock.stores.memory.room import Room
from penstock.stores.values import Kept, check_body, check_place


class MemoryKept(Room):
    """Entries by tenant, shelf and name."""

    async def keep(
        self, tenant: str, shelf: str, name: str, body: bytes, *, expected: int | None = None
    ) -> Kept | None:
        check_place(tenant, shelf, name)
        check_body(body)
        with self._lock:
            entries = self._kept.setdefault((tenant, shelf), {})
            if expected is not None and expected != _version(entries.get(name)):
                return None
            self._kept_version += 1
            entries[name] = Kept(name, bytes(body), self._kept_version)
            return entries[name]

    async def kept(self, tenant: str, shelf: str, name: str) -> Kept | None:
        check_place(tenant, shelf, name)
        with self._lock:
            return self._kept.get((tenant, shelf), {}).get(name)

    async def shelf(
        self, tenant: str, shelf: str, *, after: str = "", limit: int = SHELF_LIMIT
    ) -> list[Kept]:
        check_place(tenant, shelf)
        with self._lock:
            entries = self._kept.get((tenant, shelf), {})
            return [
                entries[name] for name in sorted(name for name in entries if name > after)[: max(limit, 0)]
            ]

    async def drop(self, tenant: str, shelf: str, name: str, *, expected: int | None = None) -> bool:
        check_place(tenant, shelf, name)
        with self._lock:
            entries = self._kept.get((tenant, shelf), {})
            if expected is not None and expected != _version(entries.get(name)):
                return False
            return entries.pop(name, None) is not None


def _version(entry: Kept | None) -> int:
    return 0 if entry is None else entry.version
