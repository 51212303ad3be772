"""Brings a schema to this version, under a lock of its own, or says why it cannot."""

import hashlib

from penstock.core.errors import StoreFormatError, StoreVersionError
from penstock.stores.postgres.engine import Connection, Engine
from penstock.stores.postgres.sources import in_schema, load_migrations


async def version_of(connection: Connection, engine: Engine) -> int:
    """The version of the schema; 0 where there is none, StoreFormatError where it is somebody else's."""
    schema, place = engine.address.schema, engine.address.shown
    row = await (
        await connection.execute(
            "SELECT to_regclass(%(meta)s) IS NOT NULL, "
            "EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = %(schema)s)",
            {"meta": f'"{schema}".meta', "schema": schema},
        )
    ).fetchone()
    has_meta, has_tables = row or (False, False)
    if not has_meta:
        if has_tables:
            raise StoreFormatError(
                f"{place}: the schema {schema} has tables that are not Penstock's; name another: ?schema=…"
            )
        return 0
    found = await connection.execute(
        f"SELECT value FROM \"{schema}\".meta WHERE name = 'schema_version'".encode()  # noqa: S608 (checked)
    )
    version = await found.fetchone()
    if version is None:
        raise StoreFormatError(f"{place}: the schema {schema} is not Penstock's, or a damaged one")
    newest = len(load_migrations())
    if version[0] > newest:
        raise StoreVersionError(
            f"{place}: has schema version {version[0]}, and this Penstock knows up to {newest}; upgrade it"
        )
    return int(version[0])


async def migrate(engine: Engine) -> int:
    """Apply the migrations that are missing; the version then reached."""
    migrations = load_migrations()
    async with engine.connection() as connection:
        if await version_of(connection, engine) == len(migrations):
            return len(migrations)
    schema = engine.address.schema
    async with engine.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock(schema),))
        version = await version_of(connection, engine)
        if version == 0:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
        for number, text in enumerate(migrations[version:], start=version + 1):
            await connection.execute(in_schema(text, schema).encode())
            await connection.execute(
                f"INSERT INTO \"{schema}\".meta (name, value) VALUES ('schema_version', {number}) "  # noqa: S608 (checked)
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value".encode()
            )
    return len(migrations)


def _lock(schema: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"penstock/{schema}".encode(), digest_size=8).digest(), signed=True)
