"""The key-value entries in the database: small entries of a tenant that are no jobs."""

from typing import Any, Final

from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.postgres.backend import Backend
from penstock.stores.values import KeyValueEntry, check_body, check_entry_name

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
_GET: Final = """
SELECT name, body, version FROM penstock.kept WHERE tenant = $1 AND shelf = $2 AND name = $3
"""
_LIST: Final = """
SELECT name, body, version FROM penstock.kept
WHERE tenant = $1 AND shelf = $2 AND name > $3
ORDER BY name
LIMIT $4::bigint
"""
_DELETE: Final = """
DELETE FROM penstock.kept
WHERE tenant = $1 AND shelf = $2 AND name = $3 AND ($4::bigint IS NULL OR version = $4::bigint)
RETURNING 1
"""


class PostgresKeyValue:
    """The part `KeyValue`: entries by tenant, namespace and name."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def put_entry(
        self, tenant: str, namespace: str, name: str, body: bytes, *, expected: int | None = None
    ) -> KeyValueEntry | None:
        """Put an entry; None when it was not as expected."""
        check_entry_name(tenant, namespace, name)
        check_body(body)
        params = (tenant, namespace, name, body.hex())
        if expected:
            rows = await self._backend.query(_CHANGE, *params, expected)
        else:
            rows = await self._backend.query(_PUT if expected is None else _MAKE, *params)
        return KeyValueEntry(name, bytes(body), rows[0][0]) if rows else None

    async def get_entry(self, tenant: str, namespace: str, name: str) -> KeyValueEntry | None:
        """The entry of this name; None when there is none."""
        check_entry_name(tenant, namespace, name)
        rows = await self._backend.query(_GET, tenant, namespace, name)
        return _entry(rows[0]) if rows else None

    async def list_entries(
        self, tenant: str, namespace: str, *, after: str = "", limit: int = ENTRY_LIMIT
    ) -> list[KeyValueEntry]:
        """Entries by name."""
        check_entry_name(tenant, namespace)
        return [
            _entry(row) for row in await self._backend.query(_LIST, tenant, namespace, after, max(limit, 0))
        ]

    async def delete_entry(
        self, tenant: str, namespace: str, name: str, *, expected: int | None = None
    ) -> bool:
        """Delete an entry; False when there was none, or it was not as expected."""
        check_entry_name(tenant, namespace, name)
        return bool(await self._backend.query(_DELETE, tenant, namespace, name, expected))


def _entry(row: tuple[Any, ...]) -> KeyValueEntry:
    name, body, version = row
    return KeyValueEntry(name, bytes(body), version)
