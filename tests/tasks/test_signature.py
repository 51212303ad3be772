"""Calls as payloads: bound by the function's signature and checked on both sides."""

import functools
import json
import traceback
from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Any

import pydantic
import pytest

from penstock.core.errors import ConfigError, PayloadError
from penstock.tasks.context import JobContext
from penstock.tasks.task import Task
from penstock.testing import job_context
from tests.tasks import later

CTX = job_context()


def task_of(function: Callable[..., Any], **options: Any) -> Task[..., ..., Any]:
    return Task(function, name="t", queue="q", sender=None, **options)  # type: ignore[arg-type]


def send(to: str, body: str = "hello", *, copies: int = 1) -> str:
    return f"{to} {body} {copies}"


def test_only_what_was_passed_is_in_the_payload() -> None:
    assert task_of(send).encode_call("ada") == b'{"to":"ada"}'


def test_equal_calls_give_equal_bytes() -> None:
    task = task_of(lambda a, b=0, **more: None)

    assert task.encode_call(1, b=2, z=3, y=4) == task.encode_call(y=4, b=2, a=1, z=3)
    assert task_of(lambda a, b: None).encode_call(b=2, a=1) == b'{"a":1,"b":2}'


def test_defaults_are_those_of_the_handler() -> None:
    args, kwargs = task_of(send).bind(b'{"to":"ada"}', CTX)

    assert (args, kwargs) == (("ada", "hello"), {"copies": 1})


def test_a_mutable_default_is_the_functions_own() -> None:
    shared: list[int] = [1]

    def collect(seen: list[int] = shared) -> None: ...

    args, _ = task_of(collect).bind(b"{}", CTX)

    assert args[0] is shared


def every_kind(a: int, /, b: int, *c: int, d: date, e: int = 5, **f: str) -> None: ...


def test_every_kind_of_parameter_travels() -> None:
    task = task_of(every_kind)
    payload = task.encode_call(1, 2, 3, 4, d=date(2026, 1, 31), z="last", g="first")

    assert payload == b'{"a":1,"b":2,"c":[3,4],"d":"2026-01-31","g":"first","z":"last"}'
    assert task.bind(payload, CTX) == (
        (1, 2, 3, 4),
        {"d": date(2026, 1, 31), "e": 5, "g": "first", "z": "last"},
    )


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_keyword_that_would_hide_a_parameter_is_refused(name: str) -> None:
    with pytest.raises(PayloadError) as caught:
        task_of(every_kind).encode_call(1, 2, d=date.min, **{name: "x"})

    assert caught.value.field == name


@pytest.mark.parametrize(
    ("args", "kwargs", "place"),
    [
        ((), {}, "to"),
        ((), {"body": "x"}, "to"),
        (("ada",), {"to": "eve"}, "to"),
        (("ada",), {"colour": "red"}, "colour"),
        (("ada", "x", 3), {}, "arguments"),
        ((3,), {}, "to"),
        (("ada",), {"copies": True}, "copies"),
        (("ada",), {"copies": "3"}, "copies"),
        ((b"ada",), {}, "to"),
        (("a\ud800",), {}, "to"),
        (("ada", "x" * (1 << 20)), {}, "payload"),
    ],
)
def test_wrong_arguments_name_the_argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: str) -> None:
    with pytest.raises(PayloadError) as caught:
        task_of(send).encode_call(*args, **kwargs)

    assert caught.value.field == place


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (b'{"to":3}', "to"),
        (b'{"to":"ada","copies":"3"}', "copies"),
        (b"{}", "to"),
        (b'{"to":"ada","colour":"red"}', "colour"),
        (b"[]", "payload"),
        (b"nope", "payload"),
        (b"\xff", "payload"),
        (b"", "payload"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_before_the_handler(payload: bytes, place: str) -> None:
    with pytest.raises(PayloadError) as caught:
        task_of(send).bind(payload, CTX)

    assert caught.value.field == place


class Colour(Enum):
    RED = "red"


class Card(pydantic.BaseModel):
    number: int
    owner: str


def pay(card: Card, colour: Colour = Colour.RED, on: date = date.min) -> Card:
    return card


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"cart":4111}', "cart: found int, wanted nothing of that name"),
        (b'{"colour":"red"}', "card: found nothing, wanted a value"),
        (b'{"card":[4111]}', "card: found list, wanted"),
        (b'{"card":{"number":"4111x"}}', "card: found dict, wanted another value (number: "),
        (
            b'{"card":{"number":1,"owner":""},"colour":"4111"}',
            "colour: found str, wanted one of the declared",
        ),
        (
            b'{"card":{"number":1,"owner":""},"on":"4111"}',
            "on: found str, wanted a valid RFC3339",
        ),
        (b'["4111"]', "payload: found list, wanted object"),
        (b'{"card":"4111"', "payload: found bytes, wanted JSON ("),
    ],
)
def test_an_error_that_a_worker_keeps_has_no_value_of_the_payload(payload: bytes, said: str) -> None:
    with pytest.raises(PayloadError) as caught:
        task_of(pay).bind(payload, CTX)

    assert str(caught.value).startswith(said)
    assert "4111" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "value", [{"number": "4111x"}, "4111", {4111}, Card.model_construct(number="4111", owner="ada")]
)
def test_an_error_about_a_result_has_no_value_of_it(value: Any) -> None:
    for function in (pay, lambda: None):
        with pytest.raises(PayloadError) as caught:
            task_of(function).encode_result([value] if function is pay else {"card": (value,)})
        assert "4111" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "to: found nothing, wanted a value: the arguments are (to: str, "),
        ((), {"colour": "red"}, "colour: found 'red', wanted no argument of that name: they are (to: str, "),
        (("ada",), {"to": "eve"}, "to: found 'eve', wanted it once: the arguments are (to: str, "),
        (("ada", "x" * (1 << 20)), {}, "payload: found 1048598 bytes, wanted at most 1048576 bytes"),
    ],
)
def test_errors_in_calls_read_well(args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(PayloadError) as caught:
        task_of(send).encode_call(*args, **kwargs)

    assert str(caught.value).startswith(said)


def by_number(a: dict[int, Any]) -> None: ...


@pytest.mark.parametrize("function", [lambda a: None, by_number])
def test_an_argument_that_is_too_deep_is_named_without_its_levels(function: Callable[..., Any]) -> None:
    value: Any = []
    for _ in range(70):
        value = [value]

    with pytest.raises(PayloadError, match=r"^a: found list, wanted .*at most 64 levels"):
        task_of(function).encode_call({1: value} if function is by_number else value)


def test_extra_arguments_may_be_named_self() -> None:
    def note(**more: int) -> int:
        return more["self"]

    task = task_of(note)

    assert task(self=1) == 1
    assert task.encode_call(self=1) == task.call(self=1).payload == b'{"self":1}'
    assert task.options(delay=1).call(self=1).payload == b'{"self":1}'


def test_extra_members_are_checked_too() -> None:
    task = task_of(every_kind)

    for payload, place in ((b'{"g":3}', "g"), (b'{"c":[1,"x"]}', "c[1]")):
        whole = b'{"a":1,"b":2,"d":"2026-01-31",' + payload[1:]
        with pytest.raises(PayloadError) as caught:
            task.bind(whole, CTX)
        assert caught.value.field == place


def first(ctx: JobContext, a: int) -> None: ...


def middle(a: int, ctx: "JobContext", b: int = 2) -> None: ...


def keyword(a: int, *, ctx: JobContext | None = None) -> None: ...


@pytest.mark.parametrize(
    ("function", "bound"),
    [(first, ((CTX, 1), {})), (middle, ((1, CTX, 2), {})), (keyword, ((1,), {"ctx": CTX}))],
)
def test_the_context_is_injected_wherever_it_stands(function: Callable[..., Any], bound: Any) -> None:
    task = task_of(function)

    assert task.encode_call(1) == b'{"a":1}'
    assert task.bind(b'{"a":1}', CTX) == bound


@pytest.mark.parametrize("function", [first, keyword])
def test_the_context_cannot_be_passed(function: Callable[..., Any]) -> None:
    with pytest.raises(PayloadError, match="ctx"):
        task_of(function).encode_call(1, ctx=2)


def test_annotations_as_texts_are_resolved_also_when_their_type_comes_later() -> None:
    task = task_of(later.book)

    assert task.bind(task.encode_call(later.Order(3)), CTX) == ((later.Order(3), CTX), {})


def test_an_annotation_that_names_nothing_is_an_error_at_the_first_use() -> None:
    task = task_of(later.broken)

    with pytest.raises(ConfigError, match="Nowhere"):
        task.encode_call(3)
    with pytest.raises(ConfigError, match="Nowhere"):
        task.check()


def test_partial_functions_and_callables_can_be_tasks() -> None:
    class Sender:
        async def __call__(self, to: str) -> str:
            return to

    fixed = task_of(functools.partial(send, copies=2))

    assert task_of(Sender()).is_async
    assert not fixed.is_async
    assert fixed.bind(fixed.encode_call("ada"), CTX) == (("ada", "hello"), {"copies": 2})


def test_generators_cannot_be_tasks() -> None:
    def lines() -> Any:
        yield 1

    with pytest.raises(ConfigError, match="generator"):
        task_of(lines)


def returns_date() -> date:
    return date.min


def test_a_result_comes_back_as_the_function_declares_it() -> None:
    task = task_of(returns_date)

    assert task.encode_result(date(2026, 1, 31)) == b'"2026-01-31"'
    assert task.decode_result(b'"2026-01-31"') == date(2026, 1, 31)
    assert task.decode_result(None) is None


def test_no_result_passes_where_the_function_may_return_none() -> None:
    def nothing() -> None: ...

    def perhaps() -> date | None: ...

    def anything():  # type: ignore[no-untyped-def]
        ...

    assert [task_of(each).encode_result(None) for each in (nothing, perhaps, anything)] == [None] * 3


@pytest.mark.parametrize("value", ["2026-01-31", 3, {"a": {1}}, None])
def test_a_result_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(PayloadError) as caught:
        task_of(returns_date).encode_result(value)

    assert caught.value.field == "result"


def test_a_result_without_a_declared_type_is_strict_json() -> None:
    task = task_of(lambda: None)

    assert json.loads(task.encode_result({"a": [1]}) or b"") == {"a": [1]}
    with pytest.raises(PayloadError, match=r"result\.a"):
        task.encode_result({"a": (1,)})


def test_the_task_stays_a_function() -> None:
    task = task_of(send)

    assert task("ada", copies=3) == "ada hello 3"
    assert task.__name__ == "send"  # type: ignore[attr-defined]
