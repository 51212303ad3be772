"""The file's fsck: what a queue's records, keys and events should agree on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.corruption import ROW_ERRORS, CorruptRow, unreadable_record
from penstock.stores.rows import JOB_COLUMNS
from penstock.stores.sqlite.codec import job_of
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import Finding

_RULES: Final = {
    "an active job without a lease": "state = 'active' AND (token IS NULL OR deadline IS NULL)",
    "a lease on a job that is not active": (
        "state <> 'active' AND (token IS NOT NULL OR deadline IS NOT NULL)"
    ),
    "a delayed job without a time": "state = 'delayed' AND visible_at IS NULL",
    "a time to become visible on a job that is not delayed": "state <> 'delayed' AND visible_at IS NOT NULL",
    "an ended job without the time of its ending": (
        "state IN ('completed', 'failed', 'dead', 'cancelled') AND ended_at IS NULL"
    ),
    "a live job with a time of ending": (
        "state IN ('blocked', 'pending', 'delayed', 'active') AND ended_at IS NOT NULL"
    ),
    "an unknown state": (
        "state NOT IN ('blocked', 'pending', 'delayed', 'active', 'completed', 'failed', 'dead', "
        "'cancelled', 'quarantined')"
    ),
    "a job whose idempotency key belongs to nobody": (
        "idempotency_key IS NOT NULL AND NOT EXISTS ("
        "SELECT 1 FROM idempotency WHERE idempotency.queue = job.queue "
        "AND idempotency.key = job.idempotency_key AND idempotency.job = job.id)"
    ),
}
_LIMIT: Final = 100
# Grouped by state, all jobs would be sorted in memory first.
_EACH: Final = ", ".join(f"count(CASE WHEN state = '{state}' THEN 1 END)" for state in State)
_COUNTED: Final = f"SELECT {_EACH} FROM job WHERE queue = ?"  # noqa: S608 (constants)
_CHUNK: Final = 1_000
_CACHE_KIB: Final = 16_384
"""Memory for pages, and as much again for what is being sorted."""
_FIRST: Final = f"""
SELECT n, {JOB_COLUMNS} FROM job WHERE queue = ?1 AND state <> 'quarantined' ORDER BY id LIMIT ?2
"""  # noqa: S608 (constants)
# An id may be no text, and is then not read as what it is: the row it stands in is named instead.
_NEXT: Final = _FIRST.replace("ORDER BY", "AND id > (SELECT id FROM job WHERE n = ?3) ORDER BY")


def findings(connection: sqlite3.Connection, queue: QueueRef) -> list[Finding]:
    """Everything that is not as it should be, up to a hundred jobs per rule."""
    row = connection.execute(
        "SELECT n, seq, trimmed FROM queue WHERE tenant = ? AND name = ?", (queue.tenant, queue.name)
    ).fetchone()
    if row is None:
        return []
    number, seq, trimmed = row
    with _little_memory(connection):
        return _findings(connection, queue, number, seq, trimmed)


@contextmanager
def _little_memory(connection: sqlite3.Connection) -> Iterator[None]:
    """Within this, what a query has to sort goes to a temporary file: that may be the whole log."""
    [(temp_store,)] = connection.execute("PRAGMA temp_store").fetchall()
    [(cache_size,)] = connection.execute("PRAGMA cache_size").fetchall()
    connection.execute("PRAGMA temp_store = FILE")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA temp_store = {temp_store}")
        connection.execute(f"PRAGMA cache_size = {cache_size}")


def _findings(
    connection: sqlite3.Connection, queue: QueueRef, number: int, seq: int, trimmed: int
) -> list[Finding]:
    found = [
        Finding(what, job)
        for what, rule in _RULES.items()
        for (job,) in connection.execute(
            f"SELECT id FROM job WHERE queue = ? AND {rule} LIMIT ?",  # noqa: S608 (constants)
            (number, _LIMIT),
        )
    ]
    found += [Finding(what, job) for job, what in damaged_rows(connection, queue, number)[:_LIMIT]]
    return (
        found
        + _events(connection, number, seq, trimmed)
        + _versions(connection, number)
        + [Finding(what) for what in wrong_counts(connection, number)]
        + _damage(connection)
    )


def _events(connection: sqlite3.Connection, number: int, seq: int, trimmed: int) -> list[Finding]:
    count, first, last = connection.execute(
        "SELECT count(*), min(seq), max(seq) FROM event WHERE queue = ?", (number,)
    ).fetchone()
    if count != seq - trimmed or (count and (first != trimmed + 1 or last != seq)):
        return [Finding(f"the event log should hold {trimmed + 1} to {seq}, and holds {count} events")]
    return []


def _versions(connection: sqlite3.Connection, number: int) -> list[Finding]:
    """The newest event of a job carries the record's version and state."""
    rows = connection.execute(
        "SELECT job.id FROM job JOIN ("
        "SELECT job, max(seq) AS seq FROM event WHERE queue = ?1 AND job IS NOT NULL GROUP BY job) AS newest "
        "ON newest.job = job.id JOIN event ON event.queue = ?1 AND event.seq = newest.seq "
        "WHERE job.queue = ?1 AND job.state <> 'quarantined' "
        "AND (event.version <> job.version OR event.target <> job.state) LIMIT ?2",
        (number, _LIMIT),
    )
    return [Finding("the record and its newest event disagree", job) for (job,) in rows]


def wrong_counts(connection: sqlite3.Connection, number: int) -> list[str]:
    """What the counts of a queue say otherwise than its jobs."""
    counted = dict(connection.execute("SELECT state, many FROM job_count WHERE queue = ?", (number,)))
    found = connection.execute(_COUNTED, (number,)).fetchone()
    return [
        f"the counts say {counted.get(state, 0)} {state} jobs, and there are {many}"
        for state, many in zip(State, found, strict=True)
        if counted.get(state, 0) != many
    ]


def recount(connection: sqlite3.Connection, number: int) -> None:
    """Count the jobs of a queue anew."""
    found = connection.execute(_COUNTED, (number,)).fetchone()
    connection.execute("DELETE FROM job_count WHERE queue = ?", (number,))
    connection.executemany(
        "INSERT INTO job_count (queue, state, many) VALUES (?, ?, ?)",
        [(number, state, many) for state, many in zip(State, found, strict=True)],
    )


def _damage(connection: sqlite3.Connection) -> list[Finding]:
    """What SQLite itself finds wrong between tables and indexes."""
    rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
    return [Finding(f"SQLite: {text}") for (text,) in rows if text != "ok"]


def damaged_rows(connection: sqlite3.Connection, queue: QueueRef, number: int) -> list[CorruptRow]:
    """The jobs of a queue that cannot be read."""
    found: list[CorruptRow] = []
    rows = fetch(connection, _FIRST, (number, _CHUNK))
    while rows:
        for _, *row in rows:
            try:
                job_of(queue, tuple(row))
            except ROW_ERRORS as error:
                found.append((str(row[0]), unreadable_record(error)))
        rows = fetch(connection, _NEXT, (number, _CHUNK, rows[-1][0]))
    return found
