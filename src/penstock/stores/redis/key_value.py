"""Key-value entries: what a tenant has that is no job."""

from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.keys import key_value_keys
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import KeyValueEntry, check_body, check_entry_name


class RedisKeyValue:
    """Entries by tenant, namespace and name."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server

    async def put_entry(
        self, tenant: str, namespace: str, name: str, body: bytes, *, expected: int | None = None
    ) -> KeyValueEntry | None:
        check_entry_name(tenant, namespace, name)
        check_body(body)
        keys = key_value_keys(tenant, namespace)
        version = await self._server.run("key_value/put", keys, name, body, _expected(expected))
        return KeyValueEntry(name, bytes(body), version) if version else None

    async def get_entry(self, tenant: str, namespace: str, name: str) -> KeyValueEntry | None:
        check_entry_name(tenant, namespace, name)
        found = await self._server.command("HGET", key_value_keys(tenant, namespace)[0], name)
        return None if found is None else _entry(name, found)

    async def list_entries(
        self, tenant: str, namespace: str, *, after: str = "", limit: int = ENTRY_LIMIT
    ) -> list[KeyValueEntry]:
        check_entry_name(tenant, namespace)
        begin = f"({after}" if after else "-"
        found = await self._server.run(
            "key_value/list", key_value_keys(tenant, namespace)[:2], begin, max(limit, 0)
        )
        return [_entry(name.decode(), entry) for name, entry in pairs(found).items() if entry is not None]

    async def delete_entry(
        self, tenant: str, namespace: str, name: str, *, expected: int | None = None
    ) -> bool:
        check_entry_name(tenant, namespace, name)
        keys = key_value_keys(tenant, namespace)[:2]
        return bool(await self._server.run("key_value/delete", keys, name, _expected(expected)))


def _expected(version: int | None) -> int | str:
    return "" if version is None else version


def _entry(name: str, entry: bytes) -> KeyValueEntry:
    version, _, body = entry.partition(b" ")
    # Without a version somebody else has written it: whose entry it is cannot read the body either.
    return KeyValueEntry(name, body, int(version)) if version.isdigit() else KeyValueEntry(name, entry, 0)
