"""The version of the store's layout, and the refusal of a store that a later version has written.

1: an entry of the log is an event. 2: it is a run of events; entries of before are read as ever, and are
written by processes of before that run on. So nothing is rewritten: the version is raised, and processes that
start later and know only the layout before refuse the store.
"""

from typing import Final

from penstock.core.errors import ConfigError, StoreFormatError, StoreVersionError
from penstock.stores.redis import keys
from penstock.stores.redis.server import Server

SCHEMA_VERSION: Final = 2


async def check_schema(server: Server) -> None:
    """Write this version where none or an earlier one stands; StoreVersionError where a later one does."""
    found = await server.command("HGET", keys.STORE, "schema") or b"0"
    if not found.isdigit():
        raise StoreFormatError(
            f"the store at {server.url} cannot be read: the schema in the hash {keys.STORE} is {found!r}"
        )
    written = int(found)
    if written < SCHEMA_VERSION:
        try:
            written = await server.run("store/schema", [keys.STORE], SCHEMA_VERSION)
        except ConfigError:
            if not written:
                raise
            # This user may only read: the first process that writes raises it.
            return
    if written > SCHEMA_VERSION:
        raise StoreVersionError(
            f"the store at {server.url} has schema {written}; this Penstock knows {SCHEMA_VERSION}: upgrade"
        )
