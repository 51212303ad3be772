"""The shelves in the file: entries of a tenant that are no jobs."""

import sqlite3
from typing import Final

from penstock.stores.bounds import SHELF_LIMIT
from penstock.stores.sqlite.turns import Turns
from penstock.stores.values import Kept, check_body, check_place

_VERSION: Final = "SELECT version FROM kept WHERE tenant = ? AND shelf = ? AND name = ?"
_NEXT: Final = "UPDATE meta SET value = value + 1 WHERE name = 'kept_version' RETURNING value"
_KEEP: Final = "INSERT OR REPLACE INTO kept (tenant, shelf, name, body, version) VALUES (?, ?, ?, ?, ?)"
_KEPT: Final = "SELECT name, body, version FROM kept WHERE tenant = ? AND shelf = ? AND name = ?"
_SHELF: Final = """
SELECT name, body, version FROM kept WHERE tenant = ? AND shelf = ? AND name > ? ORDER BY name LIMIT ?
"""
_DROP: Final = "DELETE FROM kept WHERE tenant = ? AND shelf = ? AND name = ?"


class SqliteKept(Turns):
    """Entries by tenant, shelf and name."""

    async def keep(
        self, tenant: str, shelf: str, name: str, body: bytes, *, expected: int | None = None
    ) -> Kept | None:
        """Put an entry on a shelf; None when it was not as expected."""
        check_place(tenant, shelf, name)
        check_body(body)

        def work(connection: sqlite3.Connection) -> Kept | None:
            if not _is_expected(connection, (tenant, shelf, name), expected):
                return None
            (version,) = connection.execute(_NEXT).fetchone()
            connection.execute(_KEEP, (tenant, shelf, name, body, version))
            return Kept(name, bytes(body), version)

        return await self._call(self._engine.write(work))

    async def kept(self, tenant: str, shelf: str, name: str) -> Kept | None:
        """The entry; None when there is none."""
        check_place(tenant, shelf, name)

        def work(connection: sqlite3.Connection) -> Kept | None:
            row = connection.execute(_KEPT, (tenant, shelf, name)).fetchone()
            return None if row is None else Kept(*row)

        return await self._read(work)

    async def shelf(
        self, tenant: str, shelf: str, *, after: str = "", limit: int = SHELF_LIMIT
    ) -> list[Kept]:
        """Entries by name."""
        check_place(tenant, shelf)

        def work(connection: sqlite3.Connection) -> list[Kept]:
            return [Kept(*row) for row in connection.execute(_SHELF, (tenant, shelf, after, max(limit, 0)))]

        return await self._read(work)

    async def drop(self, tenant: str, shelf: str, name: str, *, expected: int | None = None) -> bool:
        """Take an entry off; False when there was none, or it was not as expected."""
        check_place(tenant, shelf, name)

        def work(connection: sqlite3.Connection) -> bool:
            place = (tenant, shelf, name)
            return _is_expected(connection, place, expected) and connection.execute(_DROP, place).rowcount > 0

        return await self._call(self._engine.write(work))


def _is_expected(connection: sqlite3.Connection, place: tuple[str, str, str], expected: int | None) -> bool:
    if expected is None:
        return True
    row = connection.execute(_VERSION, place).fetchone()
    return expected == (0 if row is None else row[0])
