"""Scratch tables for data that is too large for memory: a temporary, private SQLite database."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from penstock.core.errors import ConfigError

_CACHE_KIB: Final = 8_192
"""KiB of pages that SQLite keeps in memory; other pages go to an unlinked temporary file."""


class ScratchDatabase:
    """A database of scratch tables that is deleted when it is closed."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._tables = 0
        # All work is one transaction, never committed or recovered: so it needs no journal.
        for order in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "BEGIN",
        ):
            self._connection.execute(order)

    def new_table(self) -> "ScratchTable":
        """Make an empty table."""
        self._tables += 1
        return ScratchTable(self._connection, f"t{self._tables}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


class ScratchTable:
    """A table of bytes by key."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        with _disk_errors():
            connection.execute(f"CREATE TABLE {name} (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
        # The name comes from `new_table`, never from a user.
        self._get = f"SELECT value FROM {name} WHERE key = ?"  # noqa: S608
        self._put = f"INSERT OR REPLACE INTO {name} VALUES (?, ?)"  # noqa: S608
        self._remove = f"DELETE FROM {name} WHERE key = ?"  # noqa: S608
        self._ordered = f"SELECT key, value FROM {name} ORDER BY key"  # noqa: S608

    def get(self, key: str) -> bytes | None:
        """The value of the key, or None."""
        with _disk_errors():
            row = self._connection.execute(self._get, (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Write entries, replacing entries with the same key."""
        with _disk_errors():
            self._connection.executemany(self._put, entries)

    def remove(self, keys: Iterable[str]) -> None:
        """Delete entries; unknown keys are ignored."""
        with _disk_errors():
            self._connection.executemany(self._remove, ((key,) for key in keys))

    def ordered(self) -> Iterator[tuple[str, bytes]]:
        """All entries in the order of their keys' code points."""
        with _disk_errors():
            yield from self._connection.execute(self._ordered)


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ConfigError(
            f"a temporary file cannot be written: {error}; "
            "set SQLITE_TMPDIR to a directory that is writable and has room"
        ) from None
