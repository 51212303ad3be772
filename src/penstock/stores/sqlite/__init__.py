"""The embedded default: one SQLite file, safe for many processes."""

from penstock.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
