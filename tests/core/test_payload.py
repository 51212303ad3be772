"""Strict JSON: what passes comes back as it was, and everything else is refused with its place."""

import math
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PayloadError
from penstock.core.payload import check_json, decode_json, encode_json


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(plain)
def test_what_passes_comes_back_equal(value: Any) -> None:
    check_json("body", value)

    assert decode_json("body", encode_json("body", value)) == value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "body"),
        ([1.0, math.inf], "body[1]"),
        ((1, 2), "body"),
        ({1, 2}, "body"),
        (b"bytes", "body"),
        (bytearray(b"bytes"), "body"),
        (datetime.now(UTC), "body"),
        (date(2026, 1, 31), "body"),
        (Decimal("1.5"), "body"),
        (1 + 2j, "body"),
        (object(), "body"),
        (Colour.RED, "body"),
        (Level.ONE, "body"),
        (Name("x"), "body"),
        (OrderedDict(a=1), "body"),
        (defaultdict(int, a=1), "body"),
        ({1: "a"}, "body"),
        ({Name("x"): "a"}, "body"),
        ({None: "a"}, "body"),
        (2**64, "body"),
        (-(2**63) - 1, "body"),
        ([1, 2**64], "body[1]"),
        ({"items": [0, 1, 2, (3,)]}, "body.items[3]"),
        ({"items": {"a b": [math.nan]}}, "body.items['a b'][0]"),
        ([[1], ["x"], [Colour.RED]], "body[2][0]"),
    ],
)
def test_what_json_would_change_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(PayloadError) as caught:
        check_json("body", value)

    assert caught.value.field == place


def test_sixty_four_levels_pass_and_one_more_does_not() -> None:
    check_json("body", nested(64))

    with pytest.raises(PayloadError, match="at most 64 levels"):
        check_json("body", nested(65))
    with pytest.raises(PayloadError, match="at most 64 levels"):
        check_json("body", {"a": nested(64)})


def test_a_list_in_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    doubled: list[Any] = []
    doubled.extend([doubled, doubled])

    with pytest.raises(PayloadError, match="at most 64 levels"):
        check_json("body", endless)
    with pytest.raises(PayloadError, match="at most 1048576 bytes"):
        check_json("body", doubled)


def test_a_small_value_that_would_be_huge_in_json_is_refused_quickly() -> None:
    bomb: Any = [1]
    for _ in range(60):
        bomb = [bomb, bomb]

    with pytest.raises(PayloadError, match="at most 1048576 bytes"):
        check_json("body", bomb)


@pytest.mark.parametrize(
    ("value", "place"), [("\ud800", "body"), (["a", "\udfff"], "body[1]"), ({"\ud800": 1}, "body")]
)
def test_lone_surrogates_are_refused(value: Any, place: str) -> None:
    with pytest.raises(PayloadError, match="without lone surrogates") as caught:
        encode_json("body", value)

    assert caught.value.field == place


def test_more_bytes_than_the_limit_are_refused() -> None:
    assert len(encode_json("body", "x" * 98, 100)) == 100

    with pytest.raises(PayloadError, match="body: found 101 bytes, wanted at most 100 bytes"):
        encode_json("body", "x" * 99, 100)


@pytest.mark.parametrize("found", [b"", b"{", b"nope", b"\xff", b"NaN", b"[" * 5000])
def test_what_is_not_json_is_refused(found: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_json("payload", found)


@pytest.mark.parametrize("found", [rb'{"a":"\ud800"}', rb'"\ud800"', rb'["\udc00", 1]'])
def test_half_of_a_surrogate_pair_is_called_that(found: bytes) -> None:
    with pytest.raises(PayloadError, match="surrogate pair"):
        decode_json("payload", found)
