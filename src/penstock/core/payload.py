"""Strict JSON: what may be an argument or a result, and how it becomes bytes."""

import re
from collections.abc import Collection
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any, Final

import msgspec

from penstock.core.errors import PayloadError

PAYLOAD_LIMIT: Final = 1 << 20
PROGRESS_LIMIT: Final = 1 << 16
MAX_DEPTH: Final = 64
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**64 - 1

WANTED: Final = "JSON: text, a number, true, false, null, a list, or a dict with text keys"
_WANTED_INT: Final = "an integer from -2**63 to 2**64 - 1"
_WANTED_TEXT: Final = "text without lone surrogates"
_WANTED_DEPTH: Final = f"at most {MAX_DEPTH} levels of lists and dicts"
_ENCODER: Final = msgspec.json.Encoder()
_CHEAP: Final = frozenset({str, bool, NoneType})
_TEXT: Final = frozenset({str})
_PLAIN: Final = _CHEAP | {int, float, list, dict}


class Description(str):
    """A text that an error shows as what it found, in place of a value that is secret or too large."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def without_value(error: PayloadError) -> PayloadError:
    """The same error with the type of what was found: payloads are not for logs."""
    found = error.found
    shown = found if isinstance(found, Description) else Description(type(found).__name__)
    return PayloadError(error.field, shown, error.wanted)


def check_json(path: str, value: object, limit: int = PAYLOAD_LIMIT) -> None:
    """PayloadError naming the place, unless the value comes back from JSON exactly as it is.

    Text is looked at when it is encoded.
    """
    walk = _Walk(limit)
    if not walk.is_plain(value, MAX_DEPTH):
        if walk.is_over:
            raise PayloadError(path, Description(type(value).__name__), f"at most {limit} bytes in all")
        _find_fault(path, value, MAX_DEPTH)


def encode_json(path: str, value: object, limit: int = PAYLOAD_LIMIT) -> bytes:
    """A value as JSON; what it is made of was checked before."""
    try:
        encoded = _ENCODER.encode(value)
    except UnicodeEncodeError:
        _find_fault(path, value, MAX_DEPTH + 1)
        raise
    if len(encoded) > limit:
        raise PayloadError(path, Description(f"{len(encoded)} bytes"), f"at most {limit} bytes")
    return encoded


def decode_json(path: str, encoded: bytes) -> Any:
    """The value of some JSON; PayloadError when it is none."""
    try:
        try:
            return msgspec.json.decode(encoded)
        except msgspec.DecodeError:
            # Half of a surrogate pair at the end is called truncated unless there is room for the other half.
            return msgspec.json.decode(encoded + b" " * len("\\udc00"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(path, encoded, f"JSON ({error})") from None


def member(path: str, key: str) -> str:
    """The path of a member: `body.items`, or `body['a b']` where dots would mislead."""
    if not path:
        return key
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"


class _Walk:
    """Looks at every value once; a container that is shared many times over is as large as written out."""

    def __init__(self, limit: int) -> None:
        # Each item takes two bytes or more, its comma included.
        self._left = limit // 2 + MAX_DEPTH

    @property
    def is_over(self) -> bool:
        return self._left < 0

    def is_plain(self, value: Any, depth: int) -> bool:
        """Level by level, because a call for each of many small containers takes several times as long."""
        kind = type(value)
        level: Collection[Any] = (value,)
        if kind is dict or kind is list:
            # Most values are one flat container.
            self._left -= len(value)
            if depth == 0 or self.is_over or (kind is dict and not set(map(type, value)) <= _TEXT):
                return False
            level, depth = value.values() if kind is dict else value, depth - 1
        while True:
            kinds = set(map(type, level))
            if kinds <= _CHEAP:
                return True
            if not kinds <= _PLAIN or not _are_numbers_plain(level, kinds):
                return False
            if list not in kinds and dict not in kinds:
                return True
            lists = _of_kind(list, level, kinds)
            dicts = _of_kind(dict, level, kinds)
            self._left -= sum(map(len, lists)) + sum(map(len, dicts))
            if depth == 0 or self.is_over or not set(map(type, chain.from_iterable(dicts))) <= _TEXT:
                return False
            level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]
            depth -= 1


def _are_numbers_plain(level: Collection[Any], kinds: set[type]) -> bool:
    if int in kinds:
        ints = _of_kind(int, level, kinds)
        if min(ints) < MIN_INT or max(ints) > MAX_INT:
            return False
    return float not in kinds or all(map(isfinite, _of_kind(float, level, kinds)))


def _of_kind(kind: type, level: Collection[Any], kinds: set[type]) -> Collection[Any]:
    """The values of one type. Most levels have all, or none, of their values of it."""
    if kind not in kinds:
        return ()
    return level if len(kinds) == 1 else [each for each in level if type(each) is kind]


class _Fault:
    """The first value that cannot be JSON; `steps` lead to it from the inside outwards."""

    __slots__ = ("found", "steps", "wanted")

    def __init__(self, found: object, wanted: str) -> None:
        self.found = found
        self.wanted = wanted
        self.steps: list[str | int] = []


def _find_fault(path: str, value: Any, depth: int) -> None:
    """Raise for the first fault, with its path."""
    fault = _fault_in(value, depth)
    if fault is None:
        return
    for step in reversed(fault.steps):
        path = f"{path}[{step}]" if isinstance(step, int) else member(path, step)
    if fault.wanted == _WANTED_DEPTH:
        # The whole path would say the same sixty times over.
        path = re.split(r"[.\[]", path)[0]
    raise PayloadError(path, fault.found, fault.wanted)


def _fault_in(value: Any, depth: int) -> _Fault | None:
    """Paths are put together on the way back from a fault: most values have none."""
    kind = type(value)
    if kind is str:
        return None if _is_text(value) else _Fault(value, _WANTED_TEXT)
    if kind is int:
        return None if MIN_INT <= value <= MAX_INT else _Fault(value, _WANTED_INT)
    if kind is float:
        return None if isfinite(value) else _Fault(value, "a finite number")
    if kind is list or kind is dict:
        if depth == 0:
            return _Fault(Description(kind.__name__), _WANTED_DEPTH)
        return _fault_in_list(value, depth - 1) if kind is list else _fault_in_dict(value, depth - 1)
    if value is None or kind is bool:
        return None
    return _Fault(value, f"{WANTED}; other types have to be declared in the signature")


def _fault_in_list(values: list[Any], depth: int) -> _Fault | None:
    for index, item in enumerate(values):
        fault = _fault_in(item, depth)
        if fault is not None:
            fault.steps.append(index)
            return fault
    return None


def _fault_in_dict(values: dict[Any, Any], depth: int) -> _Fault | None:
    for key, item in values.items():
        if type(key) is not str:
            return _Fault(key, "a key that is text")
        if not _is_text(key):
            return _Fault(key, _WANTED_TEXT)
        fault = _fault_in(item, depth)
        if fault is not None:
            fault.steps.append(key)
            return fault
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
