"""Deleting a queue: its row goes at once, what it leaves behind in batches after that."""

import sqlite3
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.bounds import SWEEP_LIMIT
from penstock.stores.values import QueueContents

_FIND: Final = "SELECT n, number, at_us FROM queue WHERE tenant = ? AND name = ?"
_JOBS: Final = "SELECT state, count(*) FROM job WHERE queue = ? AND state <> 'quarantined' GROUP BY state"
_OTHERS: Final = """
SELECT (SELECT count(*) FROM schedule WHERE queue = ?1), (SELECT count(*) FROM relay WHERE queue = ?1)
"""
_KEEP_NUMBER: Final = """
INSERT INTO numbering (tenant, last) VALUES (?, ?)
ON CONFLICT (tenant) DO UPDATE SET last = max(last, excluded.last)
"""
_KEEP_TIME: Final = "UPDATE meta SET value = max(value, ?) WHERE name = 'deleted_at_us'"

# Its tables whose rows may be many, by their keys; nobody finds the rows once the queue's own row is gone.
_LEFT_BEHIND: Final = {
    "event": "seq",
    "idempotency": "key",
    "kind": "key",
    "child": "parent",
    "key_rule": "key",
    "key_rate": "key",
    "lane": "key",
    "reader": "name",
}


def delete(connection: sqlite3.Connection, queue: QueueRef) -> QueueContents | None:
    """Delete a queue without jobs, schedules and relay entries; what keeps it, None where there is none."""
    row = connection.execute(_FIND, (queue.tenant, queue.name)).fetchone()
    if row is None:
        return None
    n, number, at_us = row
    jobs = {State(state): count for state, count in connection.execute(_JOBS, (n,))}
    contents = QueueContents(jobs, *connection.execute(_OTHERS, (n,)).fetchone())
    if contents.is_empty:
        connection.execute(_KEEP_NUMBER, (queue.tenant, number))
        connection.execute(_KEEP_TIME, (at_us,))
        connection.execute("INSERT INTO deleted_queue (n) VALUES (?)", (n,))
        connection.execute("DELETE FROM job WHERE queue = ?", (n,))
        connection.execute("DELETE FROM queue WHERE n = ?", (n,))
    return contents


def sweep(connection: sqlite3.Connection) -> bool:
    """Remove one batch of what deleted queues left behind; False when nothing is left."""
    row = connection.execute("SELECT n FROM deleted_queue LIMIT 1").fetchone()
    if row is None:
        return False
    left = SWEEP_LIMIT
    for table, column in _LEFT_BEHIND.items():
        left -= connection.execute(
            f"DELETE FROM {table} WHERE queue = ?1 AND {column} IN "  # noqa: S608 (constants)
            f"(SELECT {column} FROM {table} WHERE queue = ?1 ORDER BY {column} LIMIT ?2)",
            (row[0], left),
        ).rowcount
        if left <= 0:
            return True
    connection.execute("DELETE FROM deleted_queue WHERE n = ?", row)
    return True
