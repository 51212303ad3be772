"""An SQL condition over jobs, evaluated by SQLite in memory, which may read and do nothing else."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import Final

from penstock.client.where_functions import add_text_functions
from penstock.core.errors import OptionError
from penstock.core.job import Job

COLUMNS: Final = (
    "id",
    "queue",
    "task",
    "state",
    "reason",
    "error",
    "fingerprint",
    "attempts",
    "max_attempts",
    "delivery",
    "drive",
    "priority",
    "key",
    "idempotency_key",
    "worker",
    "enqueued_at",
    "ended_at",
    "age",
    "payload",
)
"""Times are text such as 2026-01-31T12:00:00.000Z, `age` is seconds since the end, `payload` JSON text."""

MAX_SECONDS: Final = 10.0
"""Time of the processor that a condition may take per page."""
MAX_LENGTH: Final = 10_000
"""Characters of a condition."""
MAX_VALUE_BYTES: Final = 4 << 20
"""The largest value that a condition may make: more than the largest payload."""
MAX_PATTERN_BYTES: Final = 200
"""The longest pattern of LIKE and GLOB: the time of one comparison grows with both lengths."""
_STEPS: Final = 10
"""Steps of SQLite's machine after which the time is looked at. A single one may work on the largest value."""
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_FORBIDDEN: Final = frozenset({"load_extension"})


class Where:
    """A condition, checked when it is made. Errors call it `field`; `max_seconds` is its bound per page."""

    def __init__(self, condition: str, *, field: str = "where", max_seconds: float = MAX_SECONDS) -> None:
        self._field, self._condition = field, condition
        self._max_seconds, self._until = max_seconds, 0.0
        self.turn: AbstractAsyncContextManager[object] = nullcontext()
        """Held while the condition is evaluated: those who share one are evaluated one after the other."""
        if len(condition) > MAX_LENGTH:
            raise OptionError(field, f"{len(condition)} characters", f"at most {MAX_LENGTH} characters")
        # Used by one thread at a time, which need not be the one that made it.
        self._base = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._base.execute(f"CREATE TABLE jobs ({', '.join(COLUMNS)})")
        self._base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        self._base.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_BYTES)
        self._base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        add_text_functions(self._base, MAX_VALUE_BYTES)
        self._base.set_authorizer(_authorize)
        # Only compiled: what it does with constants can take long, and whoever makes it may not wait.
        self._run("EXPLAIN SELECT")

    def matching(self, jobs: Sequence[Job], now: int) -> list[Job]:
        """The jobs for which the condition is true, in their order."""
        marks = ", ".join("?" * len(COLUMNS))
        self._base.set_authorizer(None)
        self._base.execute("DELETE FROM jobs")
        self._base.executemany(f"INSERT INTO jobs VALUES ({marks})", [_row(job, now) for job in jobs])  # noqa: S608
        self._base.set_authorizer(_authorize)
        self._until = time.thread_time() + self._max_seconds
        self._base.set_progress_handler(self._is_over, _STEPS)
        try:
            found = self._run("SELECT")
        finally:
            self._base.set_progress_handler(None, 0)
        ids = {row[0] for row in found}
        return [job for job in jobs if job.id in ids]

    def _run(self, verb: str) -> list[tuple[object, ...]]:
        try:
            # On a line of its own, so that a comment in it cannot swallow the bracket.
            return self._base.execute(f"{verb} id FROM jobs WHERE (\n{self._condition}\n)").fetchall()
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            wanted = f"an SQL condition over {', '.join(COLUMNS)} ({error})"
            raise OptionError(self._field, self._condition, wanted) from None

    def _is_over(self) -> bool:
        return time.thread_time() > self._until

    def __del__(self) -> None:
        if base := getattr(self, "_base", None):
            base.close()


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_READ and first != "jobs":
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _row(job: Job, now: int) -> tuple[object, ...]:
    return (
        job.id,
        job.queue,
        job.task,
        job.state,
        job.reason,
        job.error,
        job.fingerprint,
        job.attempts,
        job.options.max_attempts,
        job.delivery,
        job.drive,
        job.priority,
        job.key,
        job.idempotency_key,
        job.worker,
        _utc(job.enqueued_at),
        _utc(job.ended_at),
        None if job.ended_at is None else (now - job.ended_at) / 1000,
        job.payload.decode("utf-8", "replace"),
    )


def _utc(at: int | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
