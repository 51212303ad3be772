"""The shelves in the database: entries of a tenant that are no jobs."""

from typing import Any, Final

from penstock.stores.bounds import SHELF_LIMIT
from penstock.stores.postgres.room import Room
from penstock.stores.values import Kept, check_body, check_place

_PUT: Final = """
INSERT INTO penstock.kept (tenant, shelf, name, body) VALUES ($1, $2, $3, decode($4, 'hex'))
ON CONFLICT (tenant, shelf, name) DO UPDATE SET body = excluded.body, version = DEFAULT
RETURNING version
"""
_MAKE: Final = """
INSERT INTO penstock.kept (tenant, shelf, name, body) VALUES ($1, $2, $3, decode($4, 'hex'))
ON CONFLICT (tenant, shelf, name) DO NOTHING
RETURNING version
"""
_CHANGE: Final = """
UPDATE penstock.kept SET body = decode($4, 'hex'), version = DEFAULT
WHERE tenant = $1 AND shelf = $2 AND name = $3 AND version = $5::bigint
RETURNING version
"""
_KEPT: Final = """
SELECT name, body, version FROM penstock.kept WHERE tenant = $1 AND shelf = $2 AND name = $3
"""
_SHELF: Final = """
SELECT name, body, version FROM penstock.kept
WHERE tenant = $1 AND shelf = $2 AND name > $3
ORDER BY name
LIMIT $4::bigint
"""
_DROP: Final = """
DELETE FROM penstock.kept
WHERE tenant = $1 AND shelf = $2 AND name = $3 AND ($4::bigint IS NULL OR version = $4::bigint)
RETURNING 1
"""


class PostgresKept(Room):
    """Entries by tenant, shelf and name."""

    async def keep(
        self, tenant: str, shelf: str, name: str, body: bytes, *, expected: int | None = None
    ) -> Kept | None:
        """Put an entry on a shelf; None when it was not as expected."""
        check_place(tenant, shelf, name)
        check_body(body)
        given = (tenant, shelf, name, body.hex())
        if expected:
            rows = await self._ask(_CHANGE, *given, expected)
        else:
            rows = await self._ask(_PUT if expected is None else _MAKE, *given)
        return Kept(name, bytes(body), rows[0][0]) if rows else None

    async def kept(self, tenant: str, shelf: str, name: str) -> Kept | None:
        """The entry; None when there is none."""
        check_place(tenant, shelf, name)
        rows = await self._ask(_KEPT, tenant, shelf, name)
        return _kept(rows[0]) if rows else None

    async def shelf(
        self, tenant: str, shelf: str, *, after: str = "", limit: int = SHELF_LIMIT
    ) -> list[Kept]:
        """Entries by name."""
        check_place(tenant, shelf)
        return [_kept(row) for row in await self._ask(_SHELF, tenant, shelf, after, max(limit, 0))]

    async def drop(self, tenant: str, shelf: str, name: str, *, expected: int | None = None) -> bool:
        """Take an entry off; False when there was none, or it was not as expected."""
        check_place(tenant, shelf, name)
        return bool(await self._ask(_DROP, tenant, shelf, name, expected))


def _kept(row: tuple[Any, ...]) -> Kept:
    name, body, version = row
    return Kept(name, bytes(body), version)
