"""The rules of options, registration and arguments, as users meet them."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from penstock.core.errors import ConfigError, OptionError, PayloadError, UnknownTaskError
from penstock.core.retry import Backoff
from penstock.tasks.context import JobContext
from penstock.tasks.options import CallOptions, JobOptions
from penstock.tasks.registry import Registry
from penstock.tasks.signature import Signature
from penstock.tasks.task import Task


def task(function: Any, name: str = "send") -> Task[..., ..., Any]:
    return Task(function, name=name, queue="mail", sender=None)  # type: ignore[arg-type]


def test_max_retries_is_max_attempts_less_one_and_not_both() -> None:
    assert JobOptions.of({"max_retries": 3}).policy.max_attempts == 4
    assert JobOptions.of({"max_retries": 0}).policy.max_attempts == 1
    assert JobOptions.of({}).policy.max_attempts == 4

    with pytest.raises(OptionError, match="not both"):
        JobOptions.of({"max_retries": 3, "max_attempts": 4})


def test_a_priority_is_a_tier_or_one_of_four_words() -> None:
    words = [JobOptions.of({"priority": word}).tier for word in ("critical", "high", "normal", "low")]

    assert words == [9, 7, 5, 2]
    assert [JobOptions.of({"priority": tier}).tier for tier in range(10)] == list(range(10))
    assert JobOptions().tier == 5
    for tier in (-1, 10, "urgent", 1.5, True):
        wrong: Any = {"priority": tier}
        with pytest.raises(OptionError):
            JobOptions.of(wrong)


def test_a_delay_and_a_time_exclude_each_other() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)

    with pytest.raises(OptionError, match="not both"):
        JobOptions.of({"delay": 1, "run_at": at})
    with pytest.raises(OptionError, match="time zone"):
        JobOptions.of({"run_at": at.replace(tzinfo=None)})


def test_a_call_wins_over_its_task_and_the_task_over_its_queue() -> None:
    queue = JobOptions.of({"priority": "high", "timeout": 5, "delay": 60})
    own = JobOptions.of({"timeout": timedelta(seconds=7)}).over(queue)
    call = JobOptions.of({"run_at": datetime(1970, 1, 2, tzinfo=UTC)}).over(own)

    assert (own.tier, own.policy.timeout_ms, own.delay_ms) == (7, 7_000, 60_000)
    assert (call.delay_ms, call.run_at) == (None, 86_400_000)


def test_a_backoff_may_be_a_name_a_list_or_itself() -> None:
    given: list[CallOptions] = [{"backoff": "spool"}, {"backoff": [1, 60]}, {"backoff": Backoff.fixed(2)}]

    assert [JobOptions.of(each).backoff for each in given] == [
        Backoff.spool(),
        Backoff.listed(1, 60),
        Backoff.fixed(2),
    ]


def test_two_tasks_of_one_name_are_refused() -> None:
    registry = Registry()
    registry.add(task(lambda: None))

    with pytest.raises(ConfigError, match="two tasks are named 'send'"):
        registry.add(task(lambda: None))


def test_a_worker_that_started_takes_no_more_tasks() -> None:
    registry = Registry()
    registry.add(task(lambda: None))
    registry.freeze()

    with pytest.raises(ConfigError, match="too late"):
        registry.add(task(lambda: None, "late"))


def test_an_unknown_task_names_those_that_come_near() -> None:
    registry = Registry()
    registry.add(task(lambda: None, "send-mail"))

    with pytest.raises(UnknownTaskError, match="send-mail"):
        registry.require("sendmail")


def test_only_what_was_passed_is_in_the_payload() -> None:
    def send(to: str, body: str = "hello", *, tries: int = 1, ctx: JobContext) -> None: ...

    signature = Signature(send)
    payload = signature.encode(("ada",), {"tries": 2})

    assert payload == b'{"to":"ada","tries":2}'
    assert signature.bind(b'{"to":"ada"}', None)[1]["tries"] == 1


def test_equal_calls_give_equal_bytes() -> None:
    def send(to: str, body: str, tries: int = 1) -> None: ...

    signature = Signature(send)

    assert signature.encode((), {"body": "b", "to": "a"}) == signature.encode(("a", "b"), {})


def test_a_call_is_checked_when_it_is_made() -> None:
    def send(to: str, at: date, tries: int = 1) -> None: ...

    signature = Signature(send)
    payload = signature.encode(("ada", date(2026, 1, 31)), {})

    assert payload == b'{"to":"ada","at":"2026-01-31"}'
    assert signature.bind(payload, None)[0][1] == date(2026, 1, 31)
    calls: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        (("ada",), {}, "at"),
        ((3, date(2026, 1, 31)), {}, "to"),
        (("ada", date(2026, 1, 31)), {"tries": "2"}, "tries"),
        (("ada", date(2026, 1, 31)), {"color": 1}, "color"),
    ]
    for args, kwargs, field in calls:
        with pytest.raises(PayloadError) as caught:
            signature.encode(args, kwargs)
        assert caught.value.field == field


def test_a_payload_is_checked_again_before_the_handler() -> None:
    def send(to: str) -> None: ...

    signature = Signature(send)

    for wrong in (b'{"to":3}', b"{}", b'{"to":"ada","color":1}', b"[]", b"not JSON"):
        with pytest.raises(PayloadError):
            signature.bind(wrong, None)
