"""The version of the store's layout, and the refusal of a store that a later version has written."""

from typing import Final

from penstock.core.errors import StoreVersionError
from penstock.stores.redis import keys
from penstock.stores.redis.server import Server

SCHEMA_VERSION: Final = 1


async def check_schema(server: Server) -> None:
    """Write the version where none stands; StoreVersionError where a later one does."""
    written = await server.command("HGET", keys.STORE, "schema")
    if written is None:
        await server.command("HSETNX", keys.STORE, "schema", SCHEMA_VERSION)
        written = await server.command("HGET", keys.STORE, "schema")
    if (schema := int(written)) > SCHEMA_VERSION:
        raise StoreVersionError(
            f"the store at {server.url} has schema {schema}; this Penstock knows {SCHEMA_VERSION}: upgrade"
        )
