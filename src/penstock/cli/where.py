"""An SQL condition over jobs, evaluated by SQLite in memory, which may read and do nothing else."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from penstock.cli.output import utc
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

_STEPS: Final = 10_000
_MAX_CALLS: Final = 10_000
"""A condition may take this many times `_STEPS` steps per page: about ten seconds."""
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_FORBIDDEN: Final = frozenset({"load_extension"})


class Where:
    """A condition, checked when it is made."""

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._calls = 0
        self._base = sqlite3.connect(":memory:", isolation_level=None)
        self._base.execute(f"CREATE TABLE jobs ({', '.join(COLUMNS)})")
        self._base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 16 << 20)
        self._base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.matching([], 0)

    def matching(self, jobs: Sequence[Job], now: int) -> list[Job]:
        """The jobs for which the condition is true, in their order."""
        marks = ", ".join("?" * len(COLUMNS))
        self._base.set_authorizer(None)
        self._base.execute("DELETE FROM jobs")
        self._base.executemany(f"INSERT INTO jobs VALUES ({marks})", [_row(job, now) for job in jobs])  # noqa: S608
        self._base.set_authorizer(_authorize)
        self._calls = 0
        self._base.set_progress_handler(self._count, _STEPS)
        try:
            # On a line of its own, so that a comment in it cannot swallow the bracket.
            found = self._base.execute(f"SELECT id FROM jobs WHERE (\n{self._condition}\n)").fetchall()  # noqa: S608
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            wanted = f"an SQL condition over {', '.join(COLUMNS)} ({error})"
            raise OptionError("--where", self._condition, wanted) from None
        finally:
            self._base.set_progress_handler(None, 0)
        ids = {row[0] for row in found}
        return [job for job in jobs if job.id in ids]

    def _count(self) -> int:
        self._calls += 1
        return self._calls > _MAX_CALLS


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
        utc(job.enqueued_at),
        utc(job.ended_at),
        None if job.ended_at is None else (now - job.ended_at) / 1000,
        job.payload.decode("utf-8", "replace"),
    )
