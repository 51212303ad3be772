"""The key-value entries of the memory store: small entries of a tenant that are no jobs."""

from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.memory.backend import Backend
from penstock.stores.values import KeyValueEntry, check_body, check_entry_name


class MemoryKeyValue:
    """Entries by tenant, namespace and name."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._entries: dict[tuple[str, str], dict[str, KeyValueEntry]] = {}
        self._version = 0

    async def put_entry(
        self, tenant: str, namespace: str, name: str, body: bytes, *, expected: int | None = None
    ) -> KeyValueEntry | None:
        check_entry_name(tenant, namespace, name)
        check_body(body)
        with self._backend.lock:
            entries = self._entries.setdefault((tenant, namespace), {})
            if expected is not None and expected != _version(entries.get(name)):
                return None
            self._version += 1
            entries[name] = KeyValueEntry(name, bytes(body), self._version)
            return entries[name]

    async def get_entry(self, tenant: str, namespace: str, name: str) -> KeyValueEntry | None:
        check_entry_name(tenant, namespace, name)
        with self._backend.lock:
            return self._entries.get((tenant, namespace), {}).get(name)

    async def list_entries(
        self, tenant: str, namespace: str, *, after: str = "", limit: int = ENTRY_LIMIT
    ) -> list[KeyValueEntry]:
        check_entry_name(tenant, namespace)
        with self._backend.lock:
            entries = self._entries.get((tenant, namespace), {})
            return [
                entries[name] for name in sorted(name for name in entries if name > after)[: max(limit, 0)]
            ]

    async def delete_entry(
        self, tenant: str, namespace: str, name: str, *, expected: int | None = None
    ) -> bool:
        check_entry_name(tenant, namespace, name)
        with self._backend.lock:
            entries = self._entries.get((tenant, namespace), {})
            if expected is not None and expected != _version(entries.get(name)):
                return False
            return entries.pop(name, None) is not None


def _version(entry: KeyValueEntry | None) -> int:
    return 0 if entry is None else entry.version
