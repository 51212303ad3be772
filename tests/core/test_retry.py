"""When a job is tried again: shapes, caps, jitter and presets."""

import random
from collections.abc import Callable

import pytest

from penstock.core.errors import OptionError
from penstock.core.retry import PRESETS, Backoff, Jitter, Shape


def highest(low: float, high: float) -> float:
    return high


def lowest(low: float, high: float) -> float:
    return low


def waits(backoff: Backoff, attempts: int) -> list[int]:
    return [backoff.delay_ms(each, highest) for each in range(1, attempts + 1)]


def test_the_default_doubles_from_half_a_second_to_thirty_with_full_jitter() -> None:
    assert waits(Backoff(), 8) == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert Backoff().delay_ms(8, lowest) == 0
    assert Backoff() == Backoff.exponential() == PRESETS["default"]


def test_spool_waits_one_second_then_doubles_to_five_minutes_without_jitter() -> None:
    assert [each // 1000 for each in waits(Backoff.spool(), 10)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert Backoff.spool().delay_ms(3, lowest) == 4_000
    assert Backoff.spool() == PRESETS["spool"]


def test_linear_grows_by_its_base_up_to_its_cap() -> None:
    assert waits(Backoff.linear(base=2, cap=7), 5) == [2_000, 4_000, 6_000, 7_000, 7_000]


def test_fixed_is_the_same_each_time() -> None:
    assert waits(Backoff.fixed(3), 3) == [3_000] * 3


def test_a_list_is_gone_through_and_its_last_delay_repeated() -> None:
    assert waits(Backoff.listed(1, 60, 5), 5) == [1_000, 60_000, 5_000, 5_000, 5_000]


def test_a_record_with_an_empty_list_waits_for_its_base() -> None:
    assert waits(Backoff(shape=Shape.LISTED, base_ms=2_000, jitter=Jitter.NONE), 2) == [2_000, 2_000]


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [("none", 4_000, 4_000), ("full", 0, 4_000), ("equal", 2_000, 4_000)],
)
def test_jitter_draws_below_the_delay_of_the_shape(jitter: str, low: int, high: int) -> None:
    backoff = Backoff.exponential(base=1, cap=300, jitter=jitter)

    assert (backoff.delay_ms(3, lowest), backoff.delay_ms(3, highest)) == (low, high)


def test_decorrelated_jitter_draws_up_to_three_times_the_wait_before() -> None:
    backoff = Backoff.exponential(base=1, cap=20, jitter=Jitter.DECORRELATED)

    assert backoff.delay_ms(1, highest) == 3_000
    assert backoff.delay_ms(2, highest, 3_000) == 9_000
    assert backoff.delay_ms(3, highest, 9_000) == 20_000
    assert backoff.delay_ms(3, lowest, 9_000) == 1_000


def test_no_number_of_attempts_breaks_the_cap() -> None:
    chance = random.Random(1)
    for backoff in (Backoff(), Backoff.linear(), Backoff.exponential(base=0.001, cap=604_800)):
        for attempts in (1, 41, 1_000_000):
            assert 0 <= backoff.delay_ms(attempts, chance.uniform) <= backoff.cap_ms


@pytest.mark.parametrize(
    ("field", "make"),
    [
        pytest.param("backoff.base", lambda: Backoff.exponential(base=-1), id="negative"),
        pytest.param("backoff.cap", lambda: Backoff.exponential(base=10, cap=1), id="cap under base"),
        pytest.param("backoff.cap", lambda: Backoff.exponential(cap=604_801), id="over seven days"),
        pytest.param("backoff.base", lambda: Backoff.fixed(float("nan")), id="not a number"),
        pytest.param("backoff.delays", lambda: Backoff.listed(), id="empty list"),
        pytest.param("backoff.delays", lambda: Backoff.listed(1, -1), id="negative in a list"),
        pytest.param("backoff.jitter", lambda: Backoff.linear(jitter="some"), id="unknown jitter"),
    ],
)
def test_a_backoff_that_cannot_be_names_its_field(field: str, make: Callable[[], Backoff]) -> None:
    with pytest.raises(OptionError) as caught:
        make()

    assert caught.value.field == field
