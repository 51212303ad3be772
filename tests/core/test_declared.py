"""Declared types: a value passes if the handler gets it back equal and of the same type."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock.core.declared import Declared, from_json
from penstock.core.errors import ConfigError, PayloadError


class Colour(StrEnum):
    RED = "red"


class Shade(Enum):
    DARK = 1


class Point(NamedTuple):
    x: int
    y: int


class Size(TypedDict, total=False):
    width: int


class Struct(msgspec.Struct):
    tags: list[str]
    inner: "Struct | None" = None


@dataclasses.dataclass
class Order:
    items: list[int]
    at: datetime | None = None
    more: Any = None


@dataclasses.dataclass
class Special(Order):
    pass


class Model(pydantic.BaseModel):
    number: int
    at: datetime
    named: str = pydantic.Field(default="x", alias="theirName")


NOW = datetime(2026, 1, 31, 12, 30, 15, 123456, UTC)

GOOD: list[tuple[Any, Any]] = [
    (str, "text"),
    (int, 3),
    (float, 3.5),
    (float, 3),
    (bool, True),
    (None, None),
    (str | None, None),
    (int | str, "3"),
    (Any, {"a": [1, None]}),
    (object, [1]),
    (list[int], [1, 2]),
    (dict[str, list[float]], {"a": [1.5, 2]}),
    (Sequence[int], [1, 2]),
    (tuple[int, int], (1, 2)),
    (tuple[str, ...], ("a", "b")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict[int, str], {1: "a"}),
    (datetime, NOW),
    (datetime, NOW.replace(tzinfo=None)),
    (date, date(2026, 1, 31)),
    (time, time(12, 30)),
    (timedelta, timedelta(days=3, microseconds=7)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (bytes, b"\x00\xff"),
    (Colour, Colour.RED),
    (Shade | None, Shade.DARK),
    (Literal["a", 3], "a"),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
    (Point, Point(1, 2)),
    (Size, {"width": 3}),
    (Struct, Struct(["a"], Struct([]))),
    (Order, Order([1], NOW, {"a": [1]})),
    (list[Order], [Order([1]), Order([])]),
    (dict[str, Model], {"a": Model(number=1, at=NOW, theirName="b")}),
    (Model | None, None),
]


@pytest.mark.parametrize(("declared", "value"), GOOD)
def test_a_value_of_its_type_comes_back_equal(declared: Any, value: Any) -> None:
    raw = msgspec.json.encode(Declared("body", declared).raw("body", value))
    back = msgspec.json.decode(raw, type=Any if declared is object else declared, dec_hook=from_json)

    assert back == value
    assert type(back) is type(value) or declared is float


BAD: list[tuple[Any, Any, str]] = [
    (int, True, "body"),
    (int, "3", "body"),
    (int, 3.0, "body"),
    (int, 2**64, "body"),
    (int | None, "x", "body"),
    (str, 3, "body"),
    (str, Colour.RED, "body"),
    (str, b"x", "body"),
    (float, "3", "body"),
    (float, math.nan, "body"),
    (float | None, math.inf, "body"),
    (float, 2**53 + 1, "body"),
    (bool, 1, "body"),
    (list[int], (1, 2), "body"),
    (Sequence[int], (1, 2), "body"),
    (list[int], [1, "x"], "body[1]"),
    (list[float], [1.5, math.nan], "body[1]"),
    (tuple[int, int], [1, 2], "body"),
    (tuple[int, int], (1, 2, 3), "body"),
    (set[int], [1], "body"),
    (dict[str, int], {1: 2}, "body"),
    (dict[int, str], {"1": "a"}, "body"),
    (datetime, "2026-01-31T12:00:00Z", "body"),
    (datetime, date(2026, 1, 31), "body"),
    (Any, NOW, "body"),
    (dict[str, Any], {"at": [NOW]}, "body.at[0]"),
    (Colour, "red", "body"),
    (Literal["a"], "b", "body"),
    (Annotated[int, msgspec.Meta(ge=0)], -1, "body"),
    (Point, (1, 2), "body"),
    (Size, {"width": "3"}, "body.width"),
    (Struct, {"tags": []}, "body"),
    (Struct, Struct(("a",)), "body.tags"),  # type: ignore[arg-type]
    (Order, Order([1], None, (1,)), "body.more"),
    (Order, Order([1], None, {"a": [NOW]}), "body.more.a[0]"),
    (Order, Order([1, "x"]), "body.items[1]"),  # type: ignore[list-item]
    (Order, Special([1]), "body"),
    (list[Order], [Order([1]), Order([2**64])], "body[1].items[0]"),
    (Model, {"number": 1, "at": NOW}, "body"),
    (Model, Model.model_construct(number="x", at=NOW), "body"),
]


@pytest.mark.parametrize(("declared", "value", "place"), BAD)
def test_any_other_value_is_refused_with_its_place(declared: Any, value: Any, place: str) -> None:
    with pytest.raises(PayloadError) as caught:
        Declared("body", declared).raw("body", value)

    assert caught.value.field == place


def test_depth_counts_in_declared_types_too() -> None:
    chain = Struct([])
    for _ in range(70):
        chain = Struct([], chain)

    with pytest.raises(PayloadError, match="at most 64 levels"):
        Declared("body", Struct).raw("body", chain)


@pytest.mark.parametrize(
    "declared", [Path, Callable[[], int], list[Path], date | str, type, Order | Struct, dict[Path, int]]
)
def test_a_type_without_a_form_in_json_is_refused_at_once(declared: Any) -> None:
    with pytest.raises(ConfigError, match=r"body: the type .* has no form in JSON"):
        Declared("body", declared)
