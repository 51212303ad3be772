"""Logs with fields, through the logging module: as JSON lines for programs, or as text for people."""

import json as jsonlib
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from penstock.core.job import Claimed, QueueRef
from penstock.telemetry.nonblocking_stderr import STDERR

ROOT: Final = "penstock"
FIELDS: Final = (
    *("tenant", "queue", "job", "task", "attempt", "delivery", "worker", "reason", "error"),
    *("subject", "request", "status"),
    *("store", "queues", "slots", "tasks"),
)
"""The fields of a log record about its job, worker or request, in the order in which they are written."""
PAYLOADS: Final = ("payload", "result")


def about_worker(queue: QueueRef, worker: str) -> dict[str, object]:
    """The `extra` of a log record about a worker."""
    return {"tenant": queue.tenant, "queue": queue.name, "worker": worker}


def about_job(about: dict[str, object], job: Claimed, **more: object) -> dict[str, object]:
    """The `extra` of a log record about a job that a worker executes."""
    return about | {
        "job": job.id,
        "task": job.task,
        "attempt": job.attempts + 1,
        "delivery": job.delivery,
        "payload": job.payload,
        **more,
    }


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, *, show_payloads: bool = False) -> None:
        super().__init__()
        self._fields = _visible_fields(show_payloads)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "at": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_values(record, self._fields))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return jsonlib.dumps(line, ensure_ascii=False, default=_plain)


class HumanFormatter(logging.Formatter):
    """Time, level and message, then the fields that have a value."""

    def __init__(self, *, show_payloads: bool = False) -> None:
        super().__init__()
        self._fields = _visible_fields(show_payloads)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, with a traceback below it if there is one."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        found = _values(record, self._fields)
        if found.get("tenant") == "default":
            del found["tenant"]
        fields = " ".join(f"{name}={_quoted(_plain(value))}" for name, value in found.items())
        line = f"{at} {record.levelname.lower():<8} {record.getMessage()}"
        if fields:
            line = f"{line}  {fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def configure(
    *,
    json: bool = False,
    level: int | str = logging.INFO,
    show_payloads: bool = False,
    stream: TextIO | None = None,
    blocking: bool = True,
) -> logging.Handler:
    """Write Penstock's logs to `stream` (standard error) and return the handler; a repeat replaces it.

    The command line calls it; a program that configures logging itself gets the same records without it.
    Without `blocking`, a separate thread writes to standard error, so that a full pipe blocks nothing.
    """
    logger = logging.getLogger(ROOT)
    for old in [each for each in logger.handlers if isinstance(each, _OwnHandler)]:
        logger.removeHandler(old)
    handler: _OwnHandler = _OwnHandler(stream or sys.stderr)
    if not blocking and stream is None and sys.stderr is sys.__stderr__:
        handler = _NonblockingHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if json else HumanFormatter)(show_payloads=show_payloads))
    logger.addHandler(handler)
    logger.setLevel(level.upper() if isinstance(level, str) else level)
    logger.propagate = False
    return handler


def configured() -> tuple[int | None, bool]:
    """The level that `configure` set, or None if it was not called, and whether it set JSON."""
    logger = logging.getLogger(ROOT)
    for each in logger.handlers:
        if isinstance(each, _OwnHandler):
            return logger.level, isinstance(each.formatter, JsonFormatter)
    return None, False


class _OwnHandler(logging.StreamHandler[TextIO]):
    """A handler that `configure` may replace."""


class _NonblockingHandler(_OwnHandler):
    """Writes to standard error from a separate thread."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record for the writing thread."""
        try:
            STDERR.write((self.format(record) + self.terminator).encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001 (as logging does)
            self.handleError(record)

    def flush(self) -> None:
        """Wait for the writing thread for a moment; logging calls this when it shuts down."""
        STDERR.flush()


def _visible_fields(show_payloads: bool) -> tuple[str, ...]:
    return FIELDS + PAYLOADS if show_payloads else FIELDS


def _values(record: logging.LogRecord, fields: Iterable[str]) -> dict[str, Any]:
    found = record.__dict__
    return {name: found[name] for name in fields if found.get(name) is not None}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str | int | float | bool) else str(value)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & {" ", '"', "="} else jsonlib.dumps(text)
