"""Every text and number in a message of the store's protocol, by the name of the field that it stands in."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.core.errors import InvalidError, InvalidNameError
from penstock.core.job import Options
from penstock.core.limits import MOST_PER_CALL, KeyRule
from penstock.core.names import NAME_FORM, NAME_WANTED, WORKER_FORM, WORKER_WANTED
from penstock.core.payload import Description
from penstock.stores.bounds import MAX_LEASE_MS
from penstock.stores.values import Pause, WorkerEntry
from penstock.stores.wire import MOST_ITEMS

MOST_ENTRIES: Final = 1_000
"""Entries of one mapping: the queues of a worker."""
MOST_TEXT: Final = 10_000
MOST_INT: Final = 2**53
"""What every store and every language can count to."""


class _Form(msgspec.Struct, frozen=True):
    pattern: re.Pattern[str]
    wanted: str


def _form(pattern: str, wanted: str) -> _Form:
    return _Form(re.compile(pattern), wanted)


_NAME: Final = _form(NAME_FORM, NAME_WANTED)
_VISIBLE: Final = _form(r"[ -~]{1,128}", "1 to 128 visible characters of ASCII")
_TEXTS: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(
        (
            *("busy", "id", "ids", "job", "name", "namespace"),
            *("parent", "queue", "queues", "schedule", "task", "tasks"),
        ),
        _NAME,
    ),
    **dict.fromkeys(("app_version", "host", "instance", "version"), _VISIBLE),
    **dict.fromkeys(("fingerprint", "nonce", "reason"), _VISIBLE),
    # What stands in an index that somebody has damaged.
    "entries": _form(r"[ -~]{1,1000}", "1 to 1000 visible characters of ASCII"),
    # One that is empty is nobody's.
    "token": _form(r"[ -~]{0,128}", "up to 128 visible characters of ASCII"),
    "by": _form(r"[^\x00-\x1f\x7f-\x9f]{1,255}", "1 to 255 characters, no control characters"),
    # All queues of a tenant are listed together, each with why it was paused.
    "people's words": _form(r"[^\x00]{0,500}", "up to 500 characters, none of them NUL"),
    "worker": _form(WORKER_FORM, WORKER_WANTED),
    # A schedule's queue is one of the tenant that the token is for, whatever the record says.
    "tenant": _form(rf"{NAME_FORM}|\*", NAME_WANTED),
}
"""Texts that have a form; all others are free, within MOST_TEXT and, but for keys, without NUL."""
_FREE: Final = ("key", "keys")
"""How the names of texts end that may have NUL in them."""
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "lease_ms": (1, MAX_LEASE_MS),
    **dict.fromkeys(("claim_scan", "promote_limit", "recover_limit"), (1, MOST_PER_CALL)),
    # Cursors are looked at as such.
    **dict.fromkeys(("after", "cursor"), (-MOST_INT, MOST_INT)),
    **dict.fromkeys(
        ("at", "by_ms", "instant", "last_at", "next_at", "run_at", "until"), (-MOST_INT, MOST_INT)
    ),
}
_ANY_NUMBER: Final = (0, MOST_INT)
_OTHER: Final[Mapping[type, Mapping[str, str]]] = {
    Pause: {"reason": "people's words"},
    KeyRule: {"limit": "limit of a key"},
    WorkerEntry: {"name": "worker"},
}
"""Fields whose name means something else in these records."""
_DEFAULT: Final = Options()
_PLAIN: Final = frozenset({bytes, bool})


def is_within(name: str, value: Any) -> bool:
    """Whether `check_scalars` has nothing to say: it looks the same way, without a path for each value."""
    kind = type(value)
    if kind is str:
        form = _TEXTS.get(name)
        if form is not None:
            return form.pattern.fullmatch(value) is not None
        return bool(len(value) <= MOST_TEXT and ("\0" not in value or name.endswith(_FREE)))
    if kind is int:
        least, most = _NUMBERS.get(name, _ANY_NUMBER)
        return bool(least <= value <= most)
    if kind is dict:
        return len(value) <= MOST_ENTRIES and all(
            is_within(name, key) and is_within("", each) for key, each in value.items()
        )
    if kind is list or kind is tuple:
        return len(value) <= MOST_ITEMS and all(is_within(name, each) for each in value)
    if isinstance(value, msgspec.Struct) and value != _DEFAULT:
        other = _OTHER.get(kind)
        for field in value.__struct_fields__:
            each = getattr(value, field)
            if each is None or type(each) in _PLAIN:
                continue
            if not is_within(field if other is None else other.get(field, field), each):
                return False
    return True


def check_scalars(path: str, name: str, value: Any) -> None:
    """InvalidError, with the path of the value, where a text, number or list cannot be."""
    kind = type(value)
    if kind is str:
        form = _TEXTS.get(name)
        if form is not None and not form.pattern.fullmatch(value):
            raise InvalidNameError(path, value[:100], form.wanted)
        if form is None and (len(value) > MOST_TEXT or ("\0" in value and not name.endswith(_FREE))):
            raise InvalidError(
                path, Description(f"{len(value)} characters"), f"text without NUL, up to {MOST_TEXT}"
            )
    elif kind is int:
        least, most = _NUMBERS.get(name, _ANY_NUMBER)
        if not least <= value <= most:
            raise InvalidError(path, value, f"a whole number from {least} to {most}")
    elif kind in (list, tuple):
        if len(value) > MOST_ITEMS:
            raise InvalidError(path, Description(f"{len(value)} entries"), f"up to {MOST_ITEMS}")
        for place, each in enumerate(value):
            check_scalars(f"{path}[{place}]", name, each)
    elif kind is dict:
        if len(value) > MOST_ENTRIES:
            raise InvalidError(path, Description(f"{len(value)} entries"), f"up to {MOST_ENTRIES}")
        for key, each in value.items():
            check_scalars(path, name, key)
            check_scalars(f"{path}.{key}", "", each)
    elif isinstance(value, msgspec.Struct):
        other = _OTHER.get(kind, {})
        for field in value.__struct_fields__:
            each = getattr(value, field)
            if each is not None and type(each) not in _PLAIN:
                check_scalars(f"{path}.{field}", other.get(field, field), each)
