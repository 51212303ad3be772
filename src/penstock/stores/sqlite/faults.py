"""What SQLite's errors mean to a caller."""

import sqlite3

from penstock.core.errors import (
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)


def is_busy(error: sqlite3.Error) -> bool:
    """True when another process holds the lock: the call may be tried again."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translated(error: sqlite3.Error, path: str) -> StoreError:
    """The same failure in Penstock's words."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreTimeoutError(f"{path}: another process kept the database locked for too long")
        case sqlite3.SQLITE_FULL:
            return StoreFullError(
                f"{path}: the disk is full; nothing was written. Free some room and try again"
            )
        case sqlite3.SQLITE_READONLY:
            return StoreReadOnlyError(
                f"{path}: cannot be written. Check the rights on the file and its folder"
            )
        case sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailableError(
                f"{path}: cannot be opened. Its folder must exist and be writable, for the files beside it"
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreFormatError(f"{path}: not a Penstock database, or a damaged one ({error})")
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailableError(f"{path}: reading or writing failed ({error})")
        case _:
            return StoreError(f"{path}: {error}")
