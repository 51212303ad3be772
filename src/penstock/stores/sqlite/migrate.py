"""Brings a file to this version's schema, under the write lock, or says why it cannot."""

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.core.errors import StoreFormatError, StoreTimeoutError, StoreVersionError
from penstock.stores.sqlite.faults import is_busy
from penstock.stores.sqlite.sources import load_migrations

APPLICATION_ID: Final = 0x50454E53
"""Says in the file's header that it is ours ("PENS")."""


def begin(connection: sqlite3.Connection, busy_timeout: float, path: str) -> None:
    """Take the write lock, trying again with short jittered pauses while another process has it."""
    give_up = time.monotonic() + busy_timeout
    pause = 0.0005
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if time.monotonic() >= give_up:
                raise StoreTimeoutError(
                    f"{path}: another process kept the database locked for over {busy_timeout:g} s"
                ) from None
        time.sleep(random.uniform(0, pause))
        pause = min(pause * 2, 0.02)


def migrate(connection: sqlite3.Connection, busy_timeout: float, path: str) -> int:
    """Apply the migrations that are missing; the version then reached."""
    migrations = load_migrations()
    begin(connection, busy_timeout, path)
    try:
        version = _checked_version(connection, len(migrations), path)
        for number, text in enumerate(migrations[version:], start=version + 1):
            for statement in text.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return len(migrations)


def look(path: str) -> tuple[int, int]:
    """The schema version of a file, 0 where there is none, and the newest that this Penstock knows."""
    newest = len(load_migrations())
    if not Path(path).exists():
        return 0, newest
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return _checked_version(connection, newest, path), newest


def script(version: int) -> str:
    """What `migrate` would run on a file of this version."""
    migrations = load_migrations()[version:]
    if not migrations:
        return f"-- The file has schema version {version}: there is nothing to run."
    parts = ["BEGIN IMMEDIATE;"]
    for number, text in enumerate(migrations, start=version + 1):
        parts += [text.strip(), f"PRAGMA user_version = {number};"]
    if version == 0:
        parts.append(f"PRAGMA application_id = {APPLICATION_ID};")
    return "\n\n".join([*parts, "COMMIT;"])


def _checked_version(connection: sqlite3.Connection, newest: int, path: str) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreFormatError(f"{path}: a SQLite database, but not one of Penstock's; name another file")
    if version > newest:
        raise StoreVersionError(
            f"{path}: has schema version {version}, and this Penstock knows up to {newest}; upgrade Penstock"
        )
    return int(version)
