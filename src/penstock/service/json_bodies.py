"""What JSON may hold before it is decoded: so many values, and each name of an object once."""

import json
from collections.abc import Generator
from typing import Any, Final

from penstock.service.errors import MalformedError, TooLargeError

PIECE_BYTES: Final = 256 << 10
"""How much is looked at in one step."""
SLOW_WEIGHT: Final = 20
"""Values that a number such as 1e-320 or 1e300 counts as, beside itself: decoding takes 600 times as long."""
_SIGNS: Final = (b"[", b"{", b",")
_SHAPES: Final = bytes.maketrans(b"123456789E", b"000000000e")
"""Brings numbers into one shape: every digit is 0, without signs and points."""
_SLOW: Final = (b"e000", b"0" * 128)
"""What such a number has: an exponent of three digits or more, or so many digits that it has a large one."""


def check_values(what: str, body: bytes, most: int) -> Generator[None]:
    """TooLargeError when there are more values than this, counted without decoding them.

    Each list, each object and each comma outside of text counts as one value, and a number that is slow to
    decode as SLOW_WEIGHT more.
    """
    # Most bodies have so few of the signs that it need not be known which of them stand in text.
    if (yield from _count_signs(body, most)) <= most:
        return
    if (yield from count_values(body, most)) > most:
        raise TooLargeError(f"{what}: found more than {most} JSON values, wanted at most {most}")


def _count_signs(body: bytes, most: int) -> Generator[None, None, int]:
    """At least as many as there are values; counting ends soon after `most`."""
    signs = 0
    for start in range(0, len(body), PIECE_BYTES):
        piece = body[start : start + PIECE_BYTES]
        signs += _weight(piece)
        if signs > most:
            break
        yield
    return signs


def count_values(body: bytes, most: int) -> Generator[None, None, int]:
    """How many values there are; counting ends soon after `most`, where that is not 0."""
    values, is_text, skip = 0, False, 0
    for start in range(0, len(body), PIECE_BYTES):
        piece = body[start + skip : start + PIECE_BYTES]
        # A backslash at the end of a piece, unless another one escapes it, escapes the byte that follows.
        skip = (len(piece) - len(piece.rstrip(b"\\"))) % 2
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_text::2])
        is_text ^= len(parts) % 2 == 0
        # The few numbers that lie on the border of two pieces are not worth a longer look.
        values += _weight(outside)
        if most and values > most:
            break
        yield
    return values


def _weight(piece: bytes) -> int:
    """How many values these bytes count as, none of them in text."""
    shapes = piece.translate(_SHAPES, b"+-.")
    return sum(map(piece.count, _SIGNS)) + SLOW_WEIGHT * sum(map(shapes.count, _SLOW))


def check_unique_names(body: bytes, what: str = "the body") -> None:
    """MalformedError when an object has a name twice: one reader takes the first value, another the last."""
    try:
        _NAMES.decode(body.decode())
    except _RepeatedNameError as error:
        raise MalformedError(
            f"{what}: found the name {error.name[:100]!r} twice in one object, wanted each name once"
        ) from None
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"{what} is not JSON: {error}") from None


class _RepeatedNameError(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise _RepeatedNameError(name)
            names.add(name)


_NAMES: Final = json.JSONDecoder(
    object_pairs_hook=_check_pairs,
    # Values are not looked at, and a number of many digits is expensive: its length is as good.
    parse_int=len,
    parse_float=len,
    parse_constant=len,
)
"""Reads JSON in C, and sees every object's names as they were written."""
