"""A webhook: its URL, the endings that it wants messages about, and the secrets that sign them."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Literal, get_args

import msgspec

from penstock.core.errors import OptionError

Type = Literal[
    "job.completed",
    "job.failed",
    "job.dead",
    "job.cancelled",
    "batch.completed",
    "batch.failed",
    "batch.dead",
    "batch.cancelled",
]
TYPES: Final[tuple[Type, ...]] = get_args(Type)
"""What a message can be about: the ending of a job, and that of the job at the end of a batch."""
PING: Final = "webhook.ping"
"""The type of a test message."""
NOTE_CHARS: Final = 500
MOST_QUEUES: Final = 50
_QUEUES: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,127}")


class Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    """What messages are signed with, until a time in Unix milliseconds if it was replaced.

    In the store `text` is sealed where there is a key for that.
    """

    text: str
    until: int | None = None

    def __repr__(self) -> str:
        return f"Secret(…, until={self.until})"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook as it is kept. `secrets` are newest first; `paused` says why nothing is sent."""

    id: str
    url: str
    made_at: int
    secrets: tuple[Secret, ...]
    types: tuple[Type, ...] = TYPES
    queues: tuple[str, ...] = ("*",)
    note: str | None = None
    paused: str | None = None

    def wants(self, kind: str, queue: str) -> bool:
        """True when messages of this type about this queue go here."""
        return kind in self.types and any(fnmatchcase(queue, pattern) for pattern in self.queues)

    def keys(self, now: int) -> list[str]:
        """The secrets that hold at this time as they are stored, newest first."""
        return [each.text for each in self.secrets if each.until is None or now < each.until]


def check_types(types: Iterable[object]) -> tuple[Type, ...]:
    """The types, each once, in the order of TYPES; OptionError names one that is none."""
    given = list(types)
    for each in given:
        if each not in TYPES:
            raise OptionError("types", each, f"some of {', '.join(TYPES)}")
    if not given:
        raise OptionError("types", given, "at least one type")
    return tuple(each for each in TYPES if each in given)


def check_queues(queues: Iterable[object]) -> tuple[str, ...]:
    """The names or patterns, each once; OptionError names one that is none."""
    given = tuple(dict.fromkeys(queues))
    if not 0 < len(given) <= MOST_QUEUES:
        raise OptionError("queues", f"{len(given)} of them", f"1 to {MOST_QUEUES} names or patterns")
    for each in given:
        if not isinstance(each, str) or not _QUEUES.fullmatch(each):
            raise OptionError("queues", each, "names of queues, where * stands for any signs")
    return tuple(str(each) for each in given)


def check_note(field: str, note: object) -> str | None:
    """The text, or None for an empty one."""
    if note is not None and (not isinstance(note, str) or len(note) > NOTE_CHARS):
        raise OptionError(field, note, f"text of up to {NOTE_CHARS} characters")
    return note or None
