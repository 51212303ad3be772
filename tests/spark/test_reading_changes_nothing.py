"""Whatever only looks at a store neither makes nor migrates it: an older or an empty one is refused."""

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from penstock.core.errors import ConfigError, StoreFormatError, StoreVersionError
from tests.spark.conftest import SparkPlace
from tests.spark.events_kit import batch, fill, only_postgres, only_sqlite, stream
from tests.spark.sink_kit import Sink, rows
from tests.spark.test_jobs_reader import reader_of


def _first_offset(place: SparkPlace) -> None:
    reader = stream(place)
    try:
        reader.initialOffset()
    finally:
        reader.stop()


WAYS: dict[str, Callable[[SparkPlace], object]] = {
    "jobs": lambda place: reader_of(place).partitions(),
    "events": lambda place: batch(place).partitions(),
    "stream": _first_offset,
    "dry run": lambda place: Sink(place, dryRun="true").write(rows(n=[1])),
    "dry run of moves": lambda place: Sink(
        place, dryRun="true", operation="delete", task=None, keyColumns=None
    ).write(rows(job=["a"])),
}
each_way = pytest.mark.parametrize("look", WAYS.values(), ids=WAYS)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@each_way
@only_sqlite
def test_an_older_file_stays_as_it_is(place: SparkPlace, look: Callable[[SparkPlace], object]) -> None:
    fill(place, "a")
    path = Path(place.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = _digest(path)

    with pytest.raises(StoreVersionError, match="has schema version 3, and this Penstock reads"):
        look(place)
    assert _digest(path) == before


@each_way
def test_an_empty_file_stays_empty(tmp_path: Path, look: Callable[[SparkPlace], object]) -> None:
    path = tmp_path / "empty.db"
    path.touch()

    with pytest.raises(StoreFormatError, match="it has no Penstock tables"):
        look(SparkPlace("sqlite", f"sqlite:///{path}"))
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    "options",
    [{"dryRun": "true"}, {"operation": "redrive", "task": None, "keyColumns": None}],
    ids=["dry run", "redrive"],
)
def test_a_file_that_is_not_there_is_made_only_for_jobs(
    tmp_path: Path, options: dict[str, str | None]
) -> None:
    """Also where queues may be declared: neither a look nor a move of jobs has any use for a new one."""
    sink = Sink(SparkPlace("sqlite", f"sqlite:///{tmp_path / 'jobs.db'}"), **options)

    with pytest.raises(ConfigError, match="no such file"):
        sink.write(rows(**{"job" if options.get("operation") else "n": ["a"]}))
    assert list(tmp_path.iterdir()) == []


@each_way
@only_postgres
def test_a_schema_is_neither_made_nor_migrated(
    place: SparkPlace, look: Callable[[SparkPlace], object]
) -> None:
    fill(place, "a")
    with psycopg.connect(place.url, autocommit=True) as connection:
        [newest] = connection.execute(
            "SELECT value FROM penstock.meta WHERE name = 'schema_version'"
        ).fetchone() or [0]
        set_version = "UPDATE penstock.meta SET value = %s WHERE name = 'schema_version'"
        connection.execute(set_version, [newest - 1])
        try:
            with pytest.raises(StoreVersionError, match=f"has schema version {newest - 1}, and"):
                look(place)
        finally:
            connection.execute(set_version, [newest])
        with pytest.raises(StoreFormatError, match="the schema nothing has no Penstock tables"):
            look(SparkPlace(place.kind, f"{place.url}?schema=nothing"))
        [made] = connection.execute("SELECT to_regnamespace('nothing') IS NOT NULL").fetchone() or [True]
    assert not made
