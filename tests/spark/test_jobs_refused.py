"""Stores that cannot be read: away, locked, walled, older, somebody else's; told of without their secrets."""

import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.core.errors import (
    ConfigError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
    StoreVersionError,
)
from penstock.spark.jobs import postgres, sqlite
from penstock.spark.jobs.requests import request_of
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.shielding import shielded
from penstock.stores.redis.keys import keys_of
from tests.conformance.having import on
from tests.conformance.stores import STORES
from tests.kit import pgbouncer, valkey
from tests.kit import postgres as servers
from tests.spark.conftest import SparkPlace
from tests.spark.jobs import FOREIGN, QUEUE, fill
from tests.spark.test_jobs_reader import ids, reader_of, rows_of

CANARY: Final = "hunter2-canary"
on_sqlite: Final = on([kind for kind in STORES if kind.name == "sqlite"])
on_valkey: Final = on([kind for kind in STORES if kind.name == "valkey"])
on_postgres: Final = on([kind for kind in STORES if kind.name == "postgres"])


def whole(error: BaseException) -> str:
    """All that Spark would show of an error."""
    return "".join(traceback.format_exception(error))


def refused(url: str, kind: type[PenstockError]) -> str:
    """What is said of a store that cannot be read."""
    with pytest.raises(kind) as caught:
        reader_of(SparkPlace("any", url)).partitions()
    assert CANARY not in whole(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [f"redis://me:{CANARY}@127.0.0.1:1/0", f"postgresql://me:{CANARY}@127.0.0.1:1/jobs?connect_timeout=1"],
)
def test_a_store_that_cannot_be_reached_is_unavailable(url: str) -> None:
    assert "127.0.0.1:1" in refused(url, StoreUnavailableError)


def test_a_service_is_no_store_to_read_jobs_from() -> None:
    assert "wanted the url of its store" in refused(f"https://{CANARY}@host", ConfigError)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{CANARY}%zz@127.0.0.1:1/jobs",
        f"postgresql://me@127.0.0.1:1/jobs?password={CANARY}%zz",
    ],
)
def test_a_password_that_is_written_wrong_is_not_shown(url: str) -> None:
    refused(url, PenstockError)


def test_a_wrong_password_of_a_redis_is_a_matter_of_configuration(tmp_path: Path) -> None:
    binary = valkey.valkey_binary()
    assert binary is not None
    with valkey.running(binary, tmp_path, settings=["--user", "me", "on", ">right", "~*", "+@all"]) as server:
        url = server.url.replace("redis://", f"redis://me:{CANARY}@")

        assert "user name" in refused(url, ConfigError)


def test_a_wrong_password_of_a_postgresql_is_a_matter_of_configuration() -> None:
    """Told so by the connection that plans and by the one that reads."""
    binaries = servers.wheel_binaries()
    assert binaries is not None
    with servers.data_folder(binaries) as folder:
        rules = folder / "data" / "pg_hba.conf"
        rules.write_text("host all me 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        process, port = servers.start(binaries, folder)
        try:
            with psycopg.connect(servers.url_at(port), autocommit=True) as connection:
                connection.execute("CREATE ROLE me LOGIN PASSWORD 'right'")
            url = f"postgresql://me:{CANARY}@127.0.0.1:{port}/postgres"
            options = read_options({"url": url})

            said = refused(url, ConfigError)
            with pytest.raises(ConfigError, match="password authentication failed") as caught:
                list(postgres.read(options, request_of(options, "jobs"), postgres.PostgresPiece({}, (), 0)))
        finally:
            servers.stop(process)

    assert "refused the user name or the password" in said
    assert CANARY not in whole(caught.value)


@pytest.fixture
def walled(place: SparkPlace) -> Iterator[SparkPlace]:
    """A store in a schema of its own, with a wall around the tenant acme."""
    inside = SparkPlace(place.kind, f"{place.url}?schema=walled")
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE acme_app LOGIN PASSWORD '{CANARY}'")
        inside.run(fill)
        connection.execute("SELECT walled.admit('acme_app', 'acme')")
        yield inside
        connection.execute("DROP SCHEMA walled CASCADE")
        connection.execute("DROP ROLE acme_app")


@on_postgres
def test_behind_a_wall_a_role_reads_its_own_tenant_and_no_other(walled: SparkPlace) -> None:
    """As the user of the url, and in a role that the url names."""
    for url in (walled.url.replace("postgres@", "acme_app@", 1), f"{walled.url}&role=acme_app"):
        theirs = SparkPlace(walled.kind, url)

        assert ids(rows_of(reader_of(theirs, tenants="*"))) == {"completed"}
        assert {row["tenant"] for row in rows_of(reader_of(theirs, tenants="*"))} == {FOREIGN.tenant}
        assert rows_of(reader_of(theirs)) == []
        assert len(rows_of(reader_of(theirs, tenants="*", minPartitions="3"))) == 1


@on_postgres
@pytest.mark.skipif(pgbouncer.binary() is None, reason="PgBouncer is not installed")
def test_behind_a_pooler_of_transactions_it_reads_as_well(walled: SparkPlace) -> None:
    program, port = pgbouncer.binary(), urlsplit(walled.url).port
    assert program is not None
    assert port is not None
    with pgbouncer.running(program, port) as url:
        pooled = SparkPlace(walled.kind, f"{url}?schema=walled&pooler=transaction")
        narrow = SparkPlace(walled.kind, f"{pooled.url}&role=acme_app")

        assert len(rows_of(reader_of(pooled, tenants="*"))) == 10
        assert len(rows_of(reader_of(narrow, tenants="*"))) == 1


_VERSION = "SELECT value FROM penstock.meta WHERE name = 'schema_version'"
_SET_VERSION = "UPDATE penstock.meta SET value = %s WHERE name = 'schema_version'"


@on_postgres
def test_an_older_schema_of_a_server_is_not_migrated_by_reading(place: SparkPlace) -> None:
    place.run(fill)
    with psycopg.connect(place.url, autocommit=True) as connection:
        [newest] = connection.execute(_VERSION).fetchone() or [0]
        connection.execute(_SET_VERSION, [1])
        try:
            said = refused(place.url, StoreVersionError)
        finally:
            connection.execute(_SET_VERSION, [newest])

    assert f"has schema version 1, and this Penstock reads {newest}: `penstock migrate up`" in said
    assert "has no Penstock tables" in refused(f"{place.url}?schema=empty", StoreFormatError)


@on_postgres
def test_an_error_of_the_arrow_driver_says_what_and_holds_no_secret(place: SparkPlace) -> None:
    place.run(fill)
    options = read_options({"url": place.url})
    wanted = request_of(options, "jobs")
    (piece,) = postgres.plan(options, wanted)
    away = read_options({"url": f"postgresql://me:{CANARY}@127.0.0.1:1/jobs"})

    with pytest.raises(StoreUnavailableError) as caught:
        list(postgres.read(away, wanted, piece))
    assert CANARY not in whole(caught.value)


@on_sqlite
def test_an_older_schema_of_a_file_is_not_migrated_by_reading(place: SparkPlace) -> None:
    place.run(fill)
    path = place.url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        (newest,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    assert f"has schema version 1, and this Penstock reads {newest}" in refused(place.url, StoreVersionError)


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()

    assert "not one of Penstock's" in refused(f"sqlite:///{path}", StoreFormatError)
    path.write_bytes(b"no database at all" * 100)
    assert str(path) in refused(f"sqlite:///{path}", StoreError)


@on_sqlite
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("priority = 'abc'", "priority: found 'abc', wanted a whole number of 32 bits"),
        ("version = 1.5", "version: found 1.5, wanted a whole number of 32 bits"),
        ("attempts = 1 << 40", "attempts: found 1099511627776, wanted a whole number of 32 bits"),
        ("fence = x'00'", r"fence: found b'\\x00', wanted a whole number of 64 bits"),
        ("payload = x'fffe'", r"payload: found b'\\xff\\xfe', wanted text"),
        ("more = '{'", "more: Input data was truncated"),
    ],
)
@pytest.mark.parametrize("columns", [None, "task,priority,version,attempts,fence,payload,parents"])
def test_a_damaged_job_of_a_file_is_named_with_its_column(
    place: SparkPlace, change: str, said: str, columns: str | None
) -> None:
    """Also where its id was not asked for."""
    place.run(fill)
    path = place.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"UPDATE job SET {change} WHERE id = 'pending'")
    reader = reader_of(place, **({} if columns is None else {"columns": columns}))

    with pytest.raises(StoreFormatError, match=f"{path}: job pending: column {said}"):
        rows_of(reader)


@on_postgres
def test_a_damaged_job_of_a_server_is_named_with_its_column(place: SparkPlace) -> None:
    place.run(fill)
    with psycopg.connect(place.url) as connection:
        connection.execute("UPDATE penstock.job SET more = '{' WHERE id = 'pending'")

    with pytest.raises(StoreFormatError, match=r"the server at .*: job pending: column more: "):
        rows_of(reader_of(place, columns="task,parents"))


@on_valkey
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("records", b"\xc1", "its record cannot be read: "),
        ("payloads", b"\xff", "column payload: 'utf-8' codec"),
    ],
)
def test_a_damaged_job_of_a_redis_is_named(place: SparkPlace, key: str, value: bytes, said: str) -> None:
    place.run(fill)

    async def spoil(store: Any) -> None:
        await store.backend.server.command("HSET", getattr(keys_of(QUEUE), key), "pending", value)

    place.run(spoil)

    with pytest.raises(StoreFormatError, match=f"redis://.*: job pending of queue mail: {said}"):
        rows_of(reader_of(place))


@on_sqlite
def test_a_file_that_goes_away_before_it_is_read_is_named(place: SparkPlace) -> None:
    place.run(fill)
    options = read_options({"url": place.url})
    wanted = request_of(options, "jobs")
    (piece,) = sqlite.plan(options, wanted)
    Path(place.url.removeprefix("sqlite:///")).unlink()

    with pytest.raises(ConfigError, match="no such file"):
        list(sqlite.read(options, wanted, piece))


def test_what_drivers_say_does_not_get_out() -> None:
    url = f"redis://me:{CANARY}@host/0"

    with pytest.raises(StoreError) as caught, shielded(url):
        raise ValueError(f"cannot parse {CANARY}")
    assert whole(caught.value).count(CANARY) == 0
    assert "ValueError: cannot parse …" in str(caught.value)

    with pytest.raises(ConfigError) as told, shielded(url):
        raise ConfigError("in our words") from ValueError(CANARY)
    assert CANARY not in whole(told.value)

    with pytest.raises(KeyError), shielded(url):
        raise KeyError("something else")


def test_options_of_a_reader_are_shown_without_the_url() -> None:
    reader = reader_of(SparkPlace("any", f"redis://me:{CANARY}@host/0"))

    assert CANARY not in repr(vars(reader))
    assert isinstance(read_options({"url": "redis://host"}), SourceOptions)
