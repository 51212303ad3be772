"""The SQLite store: one file, safe for many processes of one machine.

Every call is one transaction under the file's write lock; calls of a process that wait for it share one.
Begin reading in `store.py`, then `moves.py`; each move is four statements in `sql/moves/`: pick, change,
write the events, answer.
"""

from penstock.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
