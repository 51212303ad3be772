"""Strict JSON: what may be an argument or a result, and how it becomes bytes."""

import re
from collections.abc import Collection
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


class Words(str):
    """What an error says it found where the value itself would not tell, or must not be told."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def without_value(error: PayloadError) -> PayloadError:
    """The same error with the type of what was found: payloads are not for logs."""
    found = error.found
    shown = found if isinstance(found, Words) else Words(type(found).__name__)
    return PayloadError(error.field, shown, error.wanted)


def check_json(path: str, value: object, limit: int = PAYLOAD_LIMIT) -> None:
    """PayloadError naming the place, unless the value comes back from JSON exactly as it is.

    Text is looked at when it is encoded.
    """
    walk = _Walk(limit)
    if not walk.is_plain(value, MAX_DEPTH):
        if walk.is_over:
            raise PayloadError(path, Words(type(value).__name__), f"at most {limit} bytes in all")
        _find_fault(path, value, MAX_DEPTH)


def encode_json(path: str, value: object, limit: int = PAYLOAD_LIMIT) -> bytes:
    """A value as JSON; what it is made of was checked before."""
    try:
        encoded = _ENCODER.encode(value)
    except UnicodeEncodeError:
        _find_fault(path, value, MAX_DEPTH + 1)
        raise
    if len(encoded) > limit:
        raise PayloadError(path, Words(f"{len(encoded)} bytes"), f"at most {limit} bytes")
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
    """Looks at every node once; a container that is shared many times over is as large as written out."""

    def __init__(self, limit: int) -> None:
        # Each item takes two bytes or more, its comma included.
        self._left = limit // 2 + MAX_DEPTH

    @property
    def is_over(self) -> bool:
        return self._left < 0

    def is_plain(self, value: Any, depth: int) -> bool:
        kind = type(value)
        if kind in _CHEAP:
            return True
        if kind is int:
            return bool(MIN_INT <= value <= MAX_INT)
        if kind is float:
            return isfinite(value)
        if kind is list:
            return depth > 0 and self._all_plain(value, depth - 1)
        if kind is dict:
            return depth > 0 and set(map(type, value)) <= {str} and self._all_plain(value.values(), depth - 1)
        return False

    def _all_plain(self, values: Collection[Any], depth: int) -> bool:
        self._left -= len(values)
        if self.is_over:
            return False
        # Most long lists hold one kind of thing, and that is checked without a call per item.
        kinds = set(map(type, values))
        if kinds <= _CHEAP:
            return True
        if kinds == {int}:
            return bool(min(values) >= MIN_INT and max(values) <= MAX_INT)
        if kinds == {float}:
            return all(map(isfinite, values))
        return all(self.is_plain(value, depth) for value in values)


def _find_fault(path: str, value: Any, depth: int) -> None:
    """Raise for the first fault, with its path."""
    kind = type(value)
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise PayloadError(path, value, _WANTED_TEXT) from None
    elif kind is int:
        if not MIN_INT <= value <= MAX_INT:
            raise PayloadError(path, value, _WANTED_INT)
    elif kind is float:
        if not isfinite(value):
            raise PayloadError(path, value, "a finite number")
    elif kind is list or kind is dict:
        if depth == 0:
            # The whole path would say the same sixty times over.
            raise PayloadError(re.split(r"[.\[]", path)[0], Words(kind.__name__), _WANTED_DEPTH)
        if kind is list:
            for index, item in enumerate(value):
                _find_fault(f"{path}[{index}]", item, depth - 1)
            return
        for key, item in value.items():
            if type(key) is not str:
                raise PayloadError(path, key, "a key that is text")
            _find_fault(path, key, depth)
            _find_fault(member(path, key), item, depth - 1)
    elif value is not None and kind is not bool:
        raise PayloadError(path, value, f"{WANTED}; other types have to be declared in the signature")
