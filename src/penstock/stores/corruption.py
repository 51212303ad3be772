"""What somebody has damaged from outside: events by their number, records by their job."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from penstock.core.errors import DamagedQueueError, StoreFormatError
from penstock.core.job import QueueRef
from penstock.stores.values import DamagedEvent

Row = TypeVar("Row")
Read = TypeVar("Read")
CorruptRow = tuple[str, str]
"""The id of a job whose row is to be set aside, and what was found."""
_LOGGER: Final = logging.getLogger("penstock.store")
_WARNED: Final[OrderedDict[tuple[QueueRef, str], None]] = OrderedDict()
_MOST_WARNED: Final = 10_000

DECODE_ERRORS: Final = (ValueError, TypeError, msgspec.DecodeError)
"""What reading a record raises that no version of Penstock has written."""

ROW_ERRORS: Final = (*DECODE_ERRORS, AttributeError)
"""The same of a row of a file, whose values can be of any type."""


def event_error(queue: QueueRef, seq: object, error: Exception) -> StoreFormatError:
    """What to raise for an event that is no record."""
    return StoreFormatError(f"event {seq} of queue {queue} cannot be read: {error}")


def job_error(queue: QueueRef, job: str, error: Exception) -> StoreFormatError:
    """What to raise for a job whose record cannot be read."""
    return StoreFormatError(
        f"job {job} of queue {queue} cannot be read: {error}; `penstock doctor --repair` sets it aside"
    )


def queue_error(queue: QueueRef, error: Exception, where: str) -> DamagedQueueError:
    """What to raise for a queue whose own entry cannot be read; `where` names that entry."""
    return DamagedQueueError(f"queue {queue} cannot be read: {error}; its own entry, {where}, is damaged")


def unreadable_record(error: Exception) -> str:
    """What the quarantine says of a record that cannot be read."""
    return f"a record that cannot be read: {error}"


def readable_events(queue: QueueRef, rows: Iterable[Row], read: Callable[[Row], Read]) -> Iterator[Read]:
    """The events of rows; those that cannot be read are passed over, with one warning for each."""
    for row in rows:
        try:
            yield read(row)
        except StoreFormatError as error:
            _warn_once(queue, "event passed over", str(error))


def corrupt_events(rows: Iterable[tuple[int, Row]], read: Callable[[Row], Any]) -> Iterator[DamagedEvent]:
    """The rows, each with its number, that are no events."""
    for seq, row in rows:
        try:
            read(row)
        except StoreFormatError as error:
            yield DamagedEvent(seq, str(error))


def warn_set_aside(queue: QueueRef, job: str, what: str) -> None:
    """Log that something damaged went into the quarantine."""
    _LOGGER.warning(
        "damaged entry set aside",
        extra={"tenant": queue.tenant, "queue": queue.name, "job": job, "error": what},
    )


def _warn_once(queue: QueueRef, message: str, error: str) -> None:
    """A reader comes by the same row again and again."""
    if (queue, error) in _WARNED:
        return
    _WARNED[queue, error] = None
    if len(_WARNED) > _MOST_WARNED:
        _WARNED.popitem(last=False)
    _LOGGER.warning(message, extra={"tenant": queue.tenant, "queue": queue.name, "error": error})
