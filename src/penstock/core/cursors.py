"""Cursors: where the next read of an event log begins, and whether it is still the log they came from.

A store where many write at once orders its log by stamps before numbers, and has them in its cursors. Callers
take every cursor as it is.
"""

import re
from typing import Final

import msgspec

from penstock.core.errors import CursorLostError, OptionError
from penstock.core.events import Event
from penstock.core.job import QueueRef

MAX_SEQ: Final = 10**15
_TEXT: Final = re.compile(r"(?:([0-9]{1,18})-(?=[0-9]+-))?([0-9]{1,16})(?:-([0-9a-f]{8}))?")
_WANTED: Final = "the cursor of an event, such as 42-9f3c01ab, or its number"


class Cursor(msgspec.Struct, frozen=True):
    """The number of an event and, if they were at hand, its mark, and its stamp where events have one."""

    seq: int
    mark: str | None = None
    stamp: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among cursors of its log; a number alone comes before all that have a stamp."""
        return self.stamp or 0, self.seq

    def __str__(self) -> str:
        return "-".join(str(part) for part in (self.stamp, self.seq, self.mark) if part is not None)


def read_cursor(field: str, given: str | int) -> Cursor:
    """The cursor that was given as text or as a number; OptionError if it is none."""
    found = _TEXT.fullmatch(str(given))
    if found is None or int(found[2]) > MAX_SEQ:
        raise OptionError(field, given, _WANTED)
    return Cursor(int(found[2]), found[3], None if found[1] is None else int(found[1]))


def placed(event: Event) -> Event:
    """The event as it is read: with its cursor."""
    return msgspec.structs.replace(event, cursor=str(Cursor(event.seq, event.mark)))


def check_cursor(
    queue: QueueRef, cursor: Cursor, first: int, last: int, there: Event | Cursor | None
) -> None:
    """CursorLostError unless the log has all that follows the cursor, and is the one it came from.

    The log's numbers go from `first` to `last`; `there` is the event with the cursor's number, or its
    cursor, if it is kept.
    """
    if cursor.seq + 1 < first:
        raise trimmed_error(queue, cursor.seq + 1, first - 1)
    if cursor.mark is None:
        return
    if cursor.seq > last:
        raise CursorLostError(
            f"cursor {cursor} is beyond event {last}, the newest of queue {queue}: "
            "the store has lost events, as after a failover or when a copy is restored"
        )
    if there is not None and there.mark != cursor.mark:
        raise CursorLostError(
            f"cursor {cursor} is not of this log: event {cursor.seq} of queue {queue} is another one, "
            "as after a failover or when a copy is restored"
        )


def trimmed_error(queue: QueueRef, first: int, last: int) -> CursorLostError:
    """What to raise for events that were trimmed, from a number to another."""
    return CursorLostError(f"events {first} to {last} of queue {queue} were trimmed", (first, last))
