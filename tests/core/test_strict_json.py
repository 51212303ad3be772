"""Strict JSON: what may be an argument or a result, and what is refused."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.core.errors import PayloadError
from penstock.core.payload import MAX_DEPTH, PAYLOAD_LIMIT, check_json, decode_json, encode_json


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**64 - 1,
        0.1,
        -0.0,
        1e300,
        "",
        "żółw 🐢\0\n",
        [],
        {},
        [1, [2.5, {"a": [None, "b"]}]],
        {"": 1, "a.b": {"c": []}},
    ],
    ids=repr,
)
def test_what_comes_back_from_json_as_it_is_passes(value: Any) -> None:
    check_json("x", value)
    back = decode_json("x", encode_json("x", value))

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "x"),
        ([1.0, math.inf], "x[1]"),
        ((1, 2), "x"),
        ({1, 2}, "x"),
        (b"bytes", "x"),
        (datetime(2026, 1, 1, tzinfo=UTC), "x"),
        ({1: "a"}, "x"),
        ({"a": {"b c": [0, object]}}, "x.a['b c'][1]"),
        (2**64, "x"),
        (-(2**63) - 1, "x"),
        ([{"n": 2**70}], "x[0].n"),
        (True + 1j, "x"),
    ],
    ids=["nan", "inf", "tuple", "set", "bytes", "date", "key", "nested", "large", "small", "deep", "complex"],
)
def test_what_json_would_change_is_refused_and_its_place_named(value: Any, place: str) -> None:
    with pytest.raises(PayloadError) as caught:
        check_json("x", value)

    assert caught.value.field == place


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], {"\ud800": 1}], ids=["text", "member", "key"])
def test_lone_surrogates_are_refused(value: Any) -> None:
    with pytest.raises(PayloadError):
        encode_json("x", value)


def test_64_levels_pass_and_65_do_not() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    check_json("x", deep)

    with pytest.raises(PayloadError, match="64 levels"):
        check_json("x", [deep])


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(PayloadError):
        check_json("x", endless)


def test_a_mebibyte_passes_and_a_byte_more_does_not() -> None:
    fits = "x" * (PAYLOAD_LIMIT - 2)

    assert len(encode_json("x", fits)) == PAYLOAD_LIMIT
    with pytest.raises(PayloadError, match=f"at most {PAYLOAD_LIMIT} bytes"):
        encode_json("x", fits + "x")


def test_a_list_shared_many_times_over_counts_as_large_as_it_is_written_out() -> None:
    value: Any = list(range(10))
    for _ in range(40):
        value = [value, value]

    with pytest.raises(PayloadError):
        check_json("x", value)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"'a'", b"[1,]", b"\xff", b"1 2"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_json("x", text)
