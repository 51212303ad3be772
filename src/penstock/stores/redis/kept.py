"""The shelves on the server: entries of a tenant that are no jobs."""

from penstock.stores.bounds import SHELF_LIMIT
from penstock.stores.redis.keys import shelf_keys
from penstock.stores.redis.server import Server
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import Kept, check_body, check_place


class RedisKept:
    """Entries by tenant, shelf and name."""

    _server: Server

    async def keep(
        self, tenant: str, shelf: str, name: str, body: bytes, *, expected: int | None = None
    ) -> Kept | None:
        check_place(tenant, shelf, name)
        check_body(body)
        keys = shelf_keys(tenant, shelf)
        version = await self._server.run("shelves/keep", keys, name, body, _expected(expected))
        return Kept(name, bytes(body), version) if version else None

    async def kept(self, tenant: str, shelf: str, name: str) -> Kept | None:
        check_place(tenant, shelf, name)
        found = await self._server.command("HGET", shelf_keys(tenant, shelf)[0], name)
        return None if found is None else _kept(name, found)

    async def shelf(
        self, tenant: str, shelf: str, *, after: str = "", limit: int = SHELF_LIMIT
    ) -> list[Kept]:
        check_place(tenant, shelf)
        begin = f"({after}" if after else "-"
        found = await self._server.run("shelves/list", shelf_keys(tenant, shelf)[:2], begin, max(limit, 0))
        return [_kept(name.decode(), entry) for name, entry in pairs(found).items()]

    async def drop(self, tenant: str, shelf: str, name: str, *, expected: int | None = None) -> bool:
        check_place(tenant, shelf, name)
        keys = shelf_keys(tenant, shelf)[:2]
        return bool(await self._server.run("shelves/drop", keys, name, _expected(expected)))


def _expected(version: int | None) -> int | str:
    return "" if version is None else version


def _kept(name: str, entry: bytes) -> Kept:
    version, _, body = entry.partition(b" ")
    return Kept(name, body, int(version))
