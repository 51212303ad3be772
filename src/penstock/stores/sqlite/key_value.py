"""The key-value entries in the file: small entries of a tenant that are no jobs."""

import sqlite3
from typing import Final

from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.sqlite.backend import Backend
from penstock.stores.values import KeyValueEntry, check_body, check_entry_name

_VERSION: Final = "SELECT version FROM kept WHERE tenant = ? AND shelf = ? AND name = ?"
_NEXT: Final = "UPDATE meta SET value = value + 1 WHERE name = 'kept_version' RETURNING value"
_PUT: Final = "INSERT OR REPLACE INTO kept (tenant, shelf, name, body, version) VALUES (?, ?, ?, ?, ?)"
_GET: Final = "SELECT name, body, version FROM kept WHERE tenant = ? AND shelf = ? AND name = ?"
_LIST: Final = """
SELECT name, body, version FROM kept WHERE tenant = ? AND shelf = ? AND name > ? ORDER BY name LIMIT ?
"""
_DELETE: Final = "DELETE FROM kept WHERE tenant = ? AND shelf = ? AND name = ?"


class SqliteKeyValue:
    """Entries by tenant, namespace and name."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def put_entry(
        self, tenant: str, namespace: str, name: str, body: bytes, *, expected: int | None = None
    ) -> KeyValueEntry | None:
        """Put an entry; None when it was not as expected."""
        check_entry_name(tenant, namespace, name)
        check_body(body)

        def work(connection: sqlite3.Connection) -> KeyValueEntry | None:
            if not _is_expected(connection, (tenant, namespace, name), expected):
                return None
            (version,) = connection.execute(_NEXT).fetchone()
            connection.execute(_PUT, (tenant, namespace, name, body, version))
            return KeyValueEntry(name, bytes(body), version)

        return await self._backend.write(work)

    async def get_entry(self, tenant: str, namespace: str, name: str) -> KeyValueEntry | None:
        """The entry; None when there is none."""
        check_entry_name(tenant, namespace, name)

        def work(connection: sqlite3.Connection) -> KeyValueEntry | None:
            row = connection.execute(_GET, (tenant, namespace, name)).fetchone()
            return None if row is None else KeyValueEntry(*row)

        return await self._backend.read(work)

    async def list_entries(
        self, tenant: str, namespace: str, *, after: str = "", limit: int = ENTRY_LIMIT
    ) -> list[KeyValueEntry]:
        """Entries by name."""
        check_entry_name(tenant, namespace)

        def work(connection: sqlite3.Connection) -> list[KeyValueEntry]:
            return [
                KeyValueEntry(*row)
                for row in connection.execute(_LIST, (tenant, namespace, after, max(limit, 0)))
            ]

        return await self._backend.read(work)

    async def delete_entry(
        self, tenant: str, namespace: str, name: str, *, expected: int | None = None
    ) -> bool:
        """Take an entry off; False when there was none, or it was not as expected."""
        check_entry_name(tenant, namespace, name)

        def work(connection: sqlite3.Connection) -> bool:
            key = (tenant, namespace, name)
            return _is_expected(connection, key, expected) and connection.execute(_DELETE, key).rowcount > 0

        return await self._backend.write(work)


def _is_expected(connection: sqlite3.Connection, key: tuple[str, str, str], expected: int | None) -> bool:
    if expected is None:
        return True
    row = connection.execute(_VERSION, key).fetchone()
    return expected == (0 if row is None else row[0])
