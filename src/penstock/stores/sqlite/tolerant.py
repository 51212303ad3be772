"""Reading rows that may hold anything: files allow values of other types, and text that is no text."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def fetch(connection: sqlite3.Connection, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
    """The rows of a query. Text that is not UTF-8 comes as bytes, so that it spoils no other row."""
    try:
        return connection.execute(sql, params).fetchall()
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    with as_found(connection):
        return connection.execute(sql, params).fetchall()


@contextmanager
def as_found(connection: sqlite3.Connection) -> Iterator[None]:
    """Within this, text that is not UTF-8 is read as bytes."""
    before = connection.text_factory
    connection.text_factory = _text_or_bytes
    try:
        yield
    finally:
        connection.text_factory = before


def _text_or_bytes(found: bytes) -> str | bytes:
    try:
        return found.decode()
    except UnicodeDecodeError:
        return bytes(found)
