"""Offsets: how far each queue is read, in JSON that a checkpoint keeps.

An entry has the cursor of the last event, where the batch that ends there began, and what tells the queue's
log from another one of the same name. So an offset alone says what its batch is, also when that is planned
again after a crash and would begin elsewhere by then.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.core.cursors import Cursor, read_cursor
from penstock.core.errors import InvalidError, OptionError
from penstock.core.job import QueueRef
from penstock.core.names import check_name

VERSION: Final = 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_WANTED: Final = (
    '{"v": 1, "queues": {"tenant/queue": {"cursor": "42-9f3c01ab"}}} as in a checkpoint, '
    'or cursors by queue, such as {"mail": "42-9f3c01ab"}'
)


class QueuePosition(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename={"start": "from"}
):
    """How far a queue is read. `start` is where the batch that ends here began; `made` is the queue's."""

    cursor: str
    start: str = ""
    made: str = ""

    @property
    def at(self) -> Cursor:
        """The cursor taken apart."""
        return read_cursor("cursor", self.cursor)


class Offset(msgspec.Struct, frozen=True):
    """How far all queues are read; those that are not named, not at all. `reader` has registered as that."""

    queues: Mapping[QueueRef, QueuePosition] = msgspec.field(default_factory=dict)
    reader: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint; equal offsets give equal text."""
        places = {full_name(queue): msgspec.to_builtins(place) for queue, place in self.queues.items()}
        found = {"v": VERSION, "queues": dict(sorted(places.items()))}
        return found if self.reader is None else {**found, "reader": self.reader}


def full_name(queue: QueueRef) -> str:
    """The name of a queue with that of its tenant, whichever that is."""
    return f"{queue.tenant}/{queue.name}"


def read_offset(field: str, given: Mapping[str, Any]) -> Offset:
    """An offset back from a checkpoint; OptionError if it is none."""
    if given.get("v") != VERSION:
        raise OptionError(field, given, f"an offset of version {VERSION}: {_WANTED}")
    queues, reader = given.get("queues"), given.get("reader")
    if not isinstance(queues, dict) or not (reader is None or isinstance(reader, str)):
        raise OptionError(field, given, _WANTED)
    places = {_queue(field, name, None): _place(field, name, place) for name, place in queues.items()}
    return Offset(places, reader)


def read_places(field: str, text: str, tenants: tuple[str, ...]) -> dict[QueueRef, str]:
    """What an option says of queues: cursors, or `earliest` or `latest`; OptionError if it says neither."""
    try:
        given = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise OptionError(field, text, f"{EARLIEST}, {LATEST} or JSON: {_WANTED}") from None
    if not isinstance(given, dict):
        raise OptionError(field, text, f"{EARLIEST}, {LATEST} or JSON: {_WANTED}")
    if "v" in given and isinstance(given.get("queues"), dict):
        return {queue: place.cursor for queue, place in read_offset(field, given).queues.items()}
    tenant = tenants[0] if len(tenants) == 1 else None
    return {_queue(field, name, tenant): _cursor(f"{field} of {name}", at) for name, at in given.items()}


def _queue(field: str, name: str, tenant: str | None) -> QueueRef:
    before, slash, after = name.rpartition("/")
    if not slash and tenant is None:
        raise OptionError(field, name, "tenant/queue")
    try:
        return QueueRef(check_name(field, before if slash else tenant), check_name(field, after))
    except InvalidError:
        raise OptionError(field, name, "tenant/queue, or the name of a queue of the one tenant") from None


def _place(field: str, name: str, given: object) -> QueuePosition:
    try:
        place = msgspec.convert(given, QueuePosition)
    except msgspec.ValidationError as error:
        raise OptionError(f"{field} of {name}", given, f"{_WANTED} ({error})") from None
    for cursor in (place.cursor, place.start):
        if cursor:
            read_cursor(f"{field} of {name}", cursor)
    return place


def _cursor(field: str, given: object) -> str:
    if given in (EARLIEST, LATEST):
        return str(given)
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise OptionError(field, given, f"{EARLIEST}, {LATEST}, or the cursor or number of an event")
    return str(read_cursor(field, given))
