"""Brings a schema to the newest version, under a lock of its own, or says why it cannot."""

import asyncio
import hashlib
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec
import psycopg

from penstock.core.errors import ConfigError, PenstockError, StoreFormatError, StoreVersionError
from penstock.stores.postgres.engine import Connection, Engine
from penstock.stores.postgres.pool import SEARCH_PATH
from penstock.stores.postgres.sources import in_schema, load_migrations

# A job's stamp is that of an event, which is there or was trimmed.
_AHEAD: Final = """
SELECT EXISTS (
    SELECT 1
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS next) AS here
    CROSS JOIN penstock.queue
    WHERE queue.trimmed_stamp >= here.next
        OR EXISTS (SELECT 1 FROM penstock.event WHERE event.queue = queue.n AND event.stamp >= here.next)
)
"""
# By number alone the log keeps the order of each job; positions of readers are no places in it any more.
_START_AGAIN: Final = """
LOCK TABLE penstock.queue, penstock.job, penstock.ended, penstock.event, penstock.reader, penstock.queue_count
    IN ACCESS EXCLUSIVE MODE;
UPDATE penstock.queue SET trimmed_stamp = '0', trimmed = least(trimmed, coalesce(
    (SELECT min(event.seq) - 1 FROM penstock.event WHERE event.queue = queue.n), trimmed));
UPDATE penstock.job SET stamp = '0';
UPDATE penstock.ended SET stamp = '0';
UPDATE penstock.event SET stamp = '0';
UPDATE penstock.queue_count SET stamp = '0', seq = 0, is_stale = true;
DELETE FROM penstock.reader
"""

# For sessions whose settings are not the store's: behind a pooler, and where the printed script is run.
OWN_NAMES: Final = f"SET LOCAL search_path = {SEARCH_PATH}"

T = TypeVar("T")
_TRIES: Final = 9
_BUSY: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
# While a migration waits for a table, all other calls wait behind it. The migration gives up in half of the
# time after which PostgreSQL looks for deadlocks, so that the server ends no transaction of a worker instead.
_SOON: Final = """
SELECT set_config('lock_timeout', greatest(1, setting::int / 2)::text, true)
FROM pg_settings WHERE name = 'deadlock_timeout'
"""


class Schema(msgspec.Struct, frozen=True):
    """A schema as it is. `store` is its own number; `is_foreign` says that it was restored from another
    server whose transaction numbers were higher: it has to start again before it can be used.
    """

    version: int
    newest: int
    store: int | None = None
    is_foreign: bool = False
    is_settled: bool = False


async def look(connection: Connection, engine: Engine) -> Schema:
    """The schema now; StoreFormatError where it is not ours, StoreVersionError where it is newer."""
    version = await version_of(connection, engine)
    newest = len(load_migrations())
    if version == 0:
        return Schema(0, newest)
    schema = engine.address.schema
    rows = await (
        await connection.execute(in_schema("SELECT name, value FROM penstock.meta", schema).encode())
    ).fetchall()
    meta: dict[str, int] = dict(rows)
    cluster = await _cluster(connection)
    is_moved = cluster is not None and meta.get("cluster", cluster) != cluster
    is_foreign = False
    if is_moved and version == newest:
        row = await (await connection.execute(in_schema(_AHEAD, schema).encode())).fetchone()
        is_foreign = bool(row and row[0])
    is_settled = version == newest and "store" in meta and not is_moved
    return Schema(version, newest, meta.get("store"), is_foreign, is_settled)


async def version_of(connection: Connection, engine: Engine) -> int:
    """The version of the schema; 0 where there is none, StoreFormatError where it is not Penstock's."""
    schema, shown = engine.address.schema, engine.address.shown
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
                f"{shown}: the schema {schema} has tables that are not Penstock's; name another: ?schema=…"
            )
        return 0
    found = await connection.execute(
        f"SELECT value FROM \"{schema}\".meta WHERE name = 'schema_version'".encode()  # noqa: S608 (checked)
    )
    version = await found.fetchone()
    if version is None:
        raise StoreFormatError(f"{shown}: the schema {schema} is not Penstock's, or a damaged one")
    newest = len(load_migrations())
    if version[0] > newest:
        raise StoreVersionError(
            f"{shown}: has schema version {version[0]}, and this Penstock knows up to {newest}; upgrade it"
        )
    return int(version[0])


async def migrate(engine: Engine) -> Schema:
    """Apply the migrations that are missing; the schema then. What open() does."""
    async with engine.transaction() as connection:
        before = await look(connection, engine)
    if before.is_settled:
        return before

    async def once() -> Schema:
        async with engine.transaction() as connection:
            after, _ = await bring_up(connection, engine, may_start_again=False)
            return after

    try:
        return await retrying(once)
    except ConfigError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise ConfigError(
                f"{engine.address.shown}: the schema {engine.address.schema} has to be made or migrated, and "
                f"this user may not: `penstock migrate up` as its owner ({error.__cause__})"
            ) from error
        raise


async def retrying(migration: Callable[[], Awaitable[T]]) -> T:
    """A migration's answer; it is tried again where calls kept a table locked."""
    for _ in range(_TRIES):
        try:
            return await migration()
        except PenstockError as error:
            if not isinstance(error.__cause__, _BUSY):
                raise
            await asyncio.sleep(random.uniform(0.2, 1.0))
    return await migration()


async def bring_up(connection: Connection, engine: Engine, *, may_start_again: bool) -> tuple[Schema, bool]:
    """Migrate on a connection that has a transaction; where it may, also start a restored schema again.

    The schema then, and whether it had to start again.
    """
    schema = engine.address.schema
    await connection.execute(OWN_NAMES)
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_of(schema),))
    version = await version_of(connection, engine)
    missing = pending(schema, version)
    if missing:
        await connection.execute(_SOON)
    for statement in missing:
        await connection.execute(statement.encode())
    found = await look(connection, engine)
    if found.is_settled:
        return found, False
    if found.is_foreign:
        if not may_start_again:
            raise StoreFormatError(
                f"{engine.address.shown}: the schema {schema} was restored from another server, whose "
                "transactions had higher numbers: `penstock migrate up` before it is used"
            )
        await connection.execute(in_schema(_START_AGAIN, schema).encode())
    values = {"cluster": await _cluster(connection)}
    if found.store is None or found.is_foreign:
        values["store"] = secrets.randbits(62)
    for name, value in values.items():
        if value is not None:
            await connection.execute(in_schema(_PUT, schema).encode(), (name, value))
    return await look(connection, engine), found.is_foreign


_PUT: Final = (
    "INSERT INTO penstock.meta (name, value) VALUES (%s, %s) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


def pending(schema: str, version: int) -> list[str]:
    """The statements that bring a schema of this version to the newest, those that note it included."""
    out = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"'] if version == 0 else []
    for number, text in enumerate(load_migrations()[version:], start=version + 1):
        noted = (
            f"INSERT INTO penstock.meta (name, value) VALUES ('schema_version', {number})\n"  # noqa: S608 (a number)
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        out += [in_schema(text.rstrip().rstrip(";"), schema), in_schema(noted, schema)]
    return out


def script(schema: str, version: int, roles: Sequence[str] = (), *, starts_again: bool = False) -> str:
    """The statements that bring the schema up, as one transaction for a user who may run it."""
    statements = pending(schema, version)
    if starts_again:
        statements += in_schema(_START_AGAIN, schema).strip().split(";\n")
    for role in roles:
        statements += grants(schema, role)
    if not statements:
        return f"-- The schema {schema} has version {version}: there is nothing to run."
    lock = f"SELECT pg_advisory_xact_lock({lock_of(schema)})"
    return "\n\n".join(f"{each};" for each in ["BEGIN", OWN_NAMES, lock, *statements, "COMMIT"])


def grants(schema: str, role: str) -> list[str]:
    """What a role needs to enqueue, claim and settle; for the schema's owner to run, who makes queues."""
    to = f'"{role.replace(chr(34), chr(34) * 2)}"'
    tables, sequences = "SELECT, INSERT, UPDATE, DELETE", "USAGE, SELECT"
    return [
        f'GRANT USAGE ON SCHEMA "{schema}" TO {to}',
        f'GRANT {tables} ON ALL TABLES IN SCHEMA "{schema}" TO {to}',
        f'GRANT {sequences} ON ALL SEQUENCES IN SCHEMA "{schema}" TO {to}',
        f'ALTER DEFAULT PRIVILEGES IN SCHEMA "{schema}" GRANT {tables} ON TABLES TO {to}',
        f'ALTER DEFAULT PRIVILEGES IN SCHEMA "{schema}" GRANT {sequences} ON SEQUENCES TO {to}',
    ]


async def _cluster(connection: Connection) -> int | None:
    """The server's own number, which a dump does not have; None where this user may not read it."""
    may_read = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
    row = await (await connection.execute(may_read)).fetchone()
    if row is None or not row[0]:
        return None
    row = await (await connection.execute("SELECT system_identifier FROM pg_control_system()")).fetchone()
    return None if row is None else int(row[0])


def lock_of(schema: str) -> int:
    """The number of the advisory lock of a schema, or of some part of it."""
    return int.from_bytes(hashlib.blake2b(f"penstock/{schema}".encode(), digest_size=8).digest(), signed=True)
