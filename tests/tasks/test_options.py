"""Options: checked where they are said, and the nearest to the call wins."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from penstock.core.errors import InvalidError, InvalidNameError, OptionError
from penstock.core.job import Options
from penstock.core.retry import Backoff
from penstock.core.unique import UniqueRule
from penstock.tasks.options import JobOptions, Kind


def options(**given: Any) -> JobOptions:
    return JobOptions.of(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"priority": 0}, "priority", 0),
        ({"priority": "critical"}, "priority", 9),
        ({"priority": "low"}, "priority", 2),
        ({"delay": 1.5}, "delay_ms", 1500),
        ({"delay": timedelta(minutes=1)}, "delay_ms", 60_000),
        ({"delay": 3650 * 86400}, "delay_ms", 3650 * 86_400_000),
        ({"run_at": datetime(1970, 1, 1, 0, 1, tzinfo=UTC)}, "run_at", 60_000),
        ({"run_at": datetime(1970, 1, 1, 2, 0, tzinfo=timezone(timedelta(hours=1)))}, "run_at", 3_600_000),
        ({"run_at": datetime(1960, 1, 1, tzinfo=UTC)}, "run_at", 0),
        ({"max_attempts": 1}, "max_attempts", 1),
        ({"max_retries": 0}, "max_attempts", 1),
        ({"max_retries": 3}, "max_attempts", 4),
        ({"backoff": "spool"}, "backoff", Backoff.spool()),
        ({"backoff": [1, 5]}, "backoff", Backoff.listed(1, 5)),
        ({"backoff": Backoff.fixed(2)}, "backoff", Backoff.fixed(2)),
        ({"timeout": 0.5}, "timeout_ms", 500),
        ({"retention": 0}, "retention_ms", 0),
        ({"key_retention": timedelta(days=7)}, "key_retention_ms", 7 * 86_400_000),
        ({"idempotency_key": "any: text {}\n\0"}, "idempotency_key", "any: text {}\n\0"),
        ({"result_retention": 1}, "result_retention_ms", 1_000),
        ({"strict": True}, "strict", True),
        ({"unique": "live"}, "kind", Kind(UniqueRule.LIVE)),
        ({"throttle": 1.5}, "kind", Kind(UniqueRule.THROTTLE, 1_500)),
        ({"debounce": 2}, "kind", Kind(UniqueRule.DEBOUNCE, 2_000)),
        ({"unique_key": "any text"}, "unique_key", "any text"),
        ({"id": "order-7"}, "id", "order-7"),
        ({"delay": None}, "delay_ms", None),
    ],
)
def test_an_option_is_kept_in_the_units_of_the_store(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(options(**given), field) == value


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": "urgent"}, "priority"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": timedelta(days=4000)}, "delay"),
        ({"run_at": datetime(2026, 1, 31)}, "run_at"),  # noqa: DTZ001 (naive is the point)
        ({"run_at": 1_700_000_000}, "run_at"),
        ({"delay": 1, "run_at": datetime.now(UTC)}, "run_at"),
        ({"run_at": datetime.now(UTC), "delay": 1}, "delay"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_attempts": 2, "max_retries": 1}, "max_retries"),
        ({"backoff": "fast"}, "backoff"),
        ({"backoff": 3}, "backoff"),
        ({"backoff": []}, "backoff.delays"),
        ({"timeout": 0}, "timeout"),
        ({"retention": -1}, "retention"),
        ({"strict": "yes"}, "strict"),
        ({"id": "a}b"}, "id"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"key": "x" * 513}, "key"),
        ({"unique": "always"}, "unique"),
        ({"unique": "live", "debounce": 1}, "debounce"),
        ({"debounce": 1, "run_at": datetime.now(UTC)}, "debounce"),
        ({"throttle": 0}, "throttle"),
        ({"unique_key": ""}, "unique_key"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_option_that_cannot_be_is_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        options(**given)

    assert caught.value.field == field
    assert isinstance(caught.value, OptionError | InvalidNameError)


def test_the_nearest_layer_wins() -> None:
    queue = options(priority="high", max_attempts=5, timeout=10)
    task = options(max_retries=1, delay=60).over(queue)
    call = options(run_at=datetime(2030, 1, 1, tzinfo=UTC), priority=1).over(task)

    assert (task.priority, task.max_attempts, task.delay_ms) == (7, 2, 60_000)
    assert (call.priority, call.max_attempts, call.timeout_ms) == (1, 2, 10_000)
    assert (call.delay_ms, call.run_at) == (None, 1_893_456_000_000)


def test_what_travels_with_the_job_has_the_defaults_of_the_core() -> None:
    assert options().policy == Options()
    assert options(timeout=10).policy == Options(timeout_ms=10_000)
    assert options().tier == 5
