"""Logs with fields: through stdlib logging, as JSON lines or for eyes."""

import json as jsonlib
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from penstock.core.job import Claimed, QueueRef
from penstock.telemetry.aside import STDERR

ROOT: Final = "penstock"
FIELDS: Final = (
    *("tenant", "queue", "job", "task", "attempt", "delivery", "worker", "reason", "error"),
    *("subject", "request", "status"),
    *("store", "queues", "slots", "tasks"),
)
"""What a record can say about the job or the request it is about, in the order it is written."""
PAYLOADS: Final = ("payload", "result")


def about_worker(queue: QueueRef, worker: str) -> dict[str, object]:
    """The `extra` of a record about a worker."""
    return {"tenant": queue.tenant, "queue": queue.name, "worker": worker}


def about_job(about: dict[str, object], job: Claimed, **more: object) -> dict[str, object]:
    """The `extra` of a record about one job of a worker."""
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
        self._fields = _shown(show_payloads)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "at": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_found(record, self._fields))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return jsonlib.dumps(line, ensure_ascii=False, default=_plain)


class HumanFormatter(logging.Formatter):
    """Time, level, message, then the fields that are there."""

    def __init__(self, *, show_payloads: bool = False) -> None:
        super().__init__()
        self._fields = _shown(show_payloads)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, with a traceback below it if there is one."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        found = _found(record, self._fields)
        if found.get("tenant") == "default":
            del found["tenant"]
        said = " ".join(f"{name}={_quoted(_plain(value))}" for name, value in found.items())
        line = f"{at} {record.levelname.lower():<8} {record.getMessage()}"
        if said:
            line = f"{line}  {said}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def configure(
    *,
    json: bool = False,
    level: int | str = logging.INFO,
    show_payloads: bool = False,
    stream: TextIO | None = None,
    waits: bool = True,
) -> logging.Handler:
    """Write Penstock's logs to `stream` (standard error) and return the handler; a repeat replaces it.

    For the command line; a program that configures logging itself gets the same records without this.
    Where it `waits` for nobody who reads standard error, a thread writes there.
    """
    logger = logging.getLogger(ROOT)
    for old in [each for each in logger.handlers if isinstance(each, _OwnHandler)]:
        logger.removeHandler(old)
    handler: _OwnHandler = _OwnHandler(stream or sys.stderr)
    if not waits and stream is None and sys.stderr is sys.__stderr__:
        handler = _AsideHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if json else HumanFormatter)(show_payloads=show_payloads))
    logger.addHandler(handler)
    logger.setLevel(level.upper() if isinstance(level, str) else level)
    logger.propagate = False
    return handler


def configured() -> tuple[int | None, bool]:
    """The level that `configure` set and whether as JSON; None where it was not called."""
    logger = logging.getLogger(ROOT)
    for each in logger.handlers:
        if isinstance(each, _OwnHandler):
            return logger.level, isinstance(each.formatter, JsonFormatter)
    return None, False


class _OwnHandler(logging.StreamHandler[TextIO]):
    """Marks the handler that `configure` may replace."""


class _AsideHandler(_OwnHandler):
    """Leaves the writing to a thread."""

    def emit(self, record: logging.LogRecord) -> None:
        """Have the record written."""
        try:
            STDERR.write((self.format(record) + self.terminator).encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001 (as logging does)
            self.handleError(record)

    def flush(self) -> None:
        """Wait a moment for the thread; called when logging ends."""
        STDERR.flush()


def _shown(show_payloads: bool) -> tuple[str, ...]:
    return FIELDS + PAYLOADS if show_payloads else FIELDS


def _found(record: logging.LogRecord, fields: Iterable[str]) -> dict[str, Any]:
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
