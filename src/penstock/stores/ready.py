"""Whether the tables of a store are of this version: opening it would make or migrate them."""

import asyncio

from penstock.core.errors import StoreFormatError, StoreVersionError
from penstock.stores.registry import StoreKind, kind_of


async def refuse_unready(url: str) -> None:
    """Refuse a store that has no tables, or older ones; nothing is changed by looking.

    StoreFormatError or StoreVersionError. Stores without tables are always ready.
    """
    match kind_of(url):
        case StoreKind.SQLITE:
            from penstock.stores.sqlite.address import path_of

            place, what = path_of(url), "it"
            version, newest = await asyncio.to_thread(_look_at_file, place)
        case StoreKind.POSTGRES:
            from penstock.stores.postgres.owner import SchemaOwner

            owner = SchemaOwner(url)
            schema = await owner.look()
            version, newest = schema.version, schema.newest
            place, what = owner.shown, f"the schema {owner.name}"
        case _:
            return
    if version == 0:
        raise StoreFormatError(f"{place}: {what} has no Penstock tables")
    if version < newest:
        raise StoreVersionError(
            f"{place}: has schema version {version}, and this Penstock reads {newest}: `penstock migrate up`"
        )


def _look_at_file(path: str) -> tuple[int, int]:
    import sqlite3

    from penstock.stores.sqlite.faults import translated
    from penstock.stores.sqlite.migrate import look

    try:
        return look(path)
    except sqlite3.Error as error:
        raise translated(error, path) from None
