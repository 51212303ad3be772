"""Declarations compared, and the arithmetic of rates and turns."""

import random
from bisect import bisect_right

import pytest

from penstock.core.errors import DeclarationError, OptionError
from penstock.core.limits import (
    MAX_COUNT,
    STRIDE,
    Declaration,
    KeyRule,
    Mode,
    Rate,
    agreed,
    check_declaration,
    check_key_rule,
)

KEYED = Declaration(mode=Mode.KEYED, key_limit=3)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, Rate(1_000, 1_000_000)),
        (0.5, Rate(1, 2_000)),
        (2.5, Rate(2_500, 1_000_000)),
        (0.001, Rate(1, 1_000_000)),
    ],
)
def test_a_rate_per_second_may_be_a_fraction(count: float, expected: Rate) -> None:
    assert Rate.per_second(count) == expected


@pytest.mark.parametrize("count", [0, -1])
def test_a_rate_of_nothing_is_refused(count: float) -> None:
    with pytest.raises(OptionError, match=r"rate\.count"):
        Rate.per_second(count)


@pytest.mark.parametrize(
    "rate", [Rate(3), Rate(7, 2_000, 4), Rate(700), Rate(600_000), Rate(3, 1), Rate(1, 86_400_000)], ids=str
)
def test_one_job_never_takes_less_than_its_part_of_the_rate(rate: Rate) -> None:
    """Rounded down, the rate would be exceeded a little with every job."""
    assert rate.interval_us * rate.count >= rate.per_ms * 1000
    assert (rate.interval_us - 1) * rate.count < rate.per_ms * 1000


@pytest.mark.parametrize(
    "rate", [Rate(1, 1_000), Rate(3, 1_000, 2), Rate(7, 2_000, 10), Rate(900_000, 1_000, 3)], ids=str
)
def test_every_window_is_bounded_by_the_rate_and_the_burst(rate: Rate) -> None:
    """However claims come: steadily, in bursts, or after long pauses."""
    chance = random.Random(rate.count)
    now = arrival = 5_000_000
    started: list[int] = []
    for _ in range(300):
        taken = min(rate.tokens(arrival, now), chance.randint(0, 4))
        arrival = rate.after(arrival, now, taken)
        started += [now] * taken
        now += chance.choice([0, 1, rate.interval_us // 2, rate.interval_us, 5 * rate.interval_us])

    assert len(started) > 100
    for first, begin in enumerate(started):
        for last in started[first:]:
            count = bisect_right(started, last) - first
            # In whole numbers, so that nothing is lost to rounding.
            assert (count - rate.burst) * rate.per_ms * 1000 <= rate.count * (last - begin)


@pytest.mark.parametrize("burst", [1, 2, 5])
def test_the_next_may_go_exactly_when_it_opens(burst: int) -> None:
    rate = Rate(1, 1_000, burst)
    arrival = rate.after(0, 10_000_000, burst)
    opens = rate.opens_us(arrival)

    assert rate.tokens(0, 10_000_000) == burst
    assert rate.tokens(arrival, 10_000_000) == 0
    assert rate.tokens(arrival, opens - 1) == 0
    assert rate.tokens(arrival, opens) == 1
    assert rate.tokens(arrival, opens + rate.interval_us * 100) == burst


def test_a_key_of_more_weight_has_shorter_strides() -> None:
    assert KeyRule().stride == STRIDE
    assert KeyRule(weight=4).stride * 4 == STRIDE


@pytest.mark.parametrize(
    ("stored", "wanted", "is_live", "expected"),
    [
        (None, KEYED, False, KEYED),
        (None, Declaration(max_active=1), True, Declaration(max_active=1)),
        (KEYED, KEYED, True, KEYED),
        (
            KEYED,
            Declaration(version=2, mode=Mode.KEYED),
            True,
            Declaration(version=2, mode=Mode.KEYED),
        ),
        (Declaration(version=2, mode=Mode.KEYED), KEYED, True, Declaration(version=2, mode=Mode.KEYED)),
        (KEYED, Declaration(version=2), False, Declaration(version=2)),
    ],
    ids=["absent", "absent but used", "equal", "higher", "lower", "another mode while empty"],
)
def test_declarations_agree(
    stored: Declaration | None, wanted: Declaration, is_live: bool, expected: Declaration
) -> None:
    assert agreed(stored, wanted, is_live=is_live) == expected


@pytest.mark.parametrize(
    ("stored", "wanted", "is_live", "said"),
    [
        (None, KEYED, True, "is global and .*has live jobs; it can become keyed"),
        (KEYED, Declaration(version=2), True, "is keyed and .*has live jobs"),
        (KEYED, Declaration(mode=Mode.KEYED), False, "other content: key_limit: stored 3, found 1. Raise"),
        (KEYED, Declaration(mode=Mode.DYNAMIC, key_limit=3), False, "Raise the version"),
        (Declaration(version=2), KEYED, False, "global by version 2"),
    ],
    ids=["used before", "live", "other limits", "other mode", "older of another mode"],
)
def test_declarations_that_do_not_agree_are_refused(
    stored: Declaration | None, wanted: Declaration, is_live: bool, said: str
) -> None:
    with pytest.raises(DeclarationError, match=said):
        agreed(stored, wanted, is_live=is_live)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (Declaration(version=0), "version"),
        (Declaration(mode=Mode.KEYED, key_limit=0), "key_limit"),
        (Declaration(max_active=0), "max_active"),
        (Declaration(max_length=MAX_COUNT + 1), "max_length"),
        (Declaration(key_limit=2), "mode"),
        (Declaration(key_rate=Rate(1)), "mode"),
        (Declaration(rate=Rate(0)), "rate.count"),
        (Declaration(rate=Rate(1, 0)), "rate.per_ms"),
        (Declaration(mode=Mode.KEYED, key_rate=Rate(1, burst=0)), "key_rate.burst"),
        (Declaration(max_active=True), "max_active"),
    ],
    ids=str,
)
def test_a_declaration_that_cannot_be_names_its_fault(wanted: Declaration, field: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_declaration(wanted)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("mode", "rule", "field"),
    [
        (Mode.KEYED, KeyRule(limit=2), "limit"),
        (Mode.DYNAMIC, KeyRule(limit=0), "limit"),
        (Mode.DYNAMIC, KeyRule(weight=0), "weight"),
        (Mode.KEYED, KeyRule(weight=1_001), "weight"),
    ],
)
def test_a_rule_that_cannot_be_names_its_fault(mode: Mode, rule: KeyRule, field: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_key_rule(mode, rule)

    assert caught.value.field == field


def test_rules_that_can_be_are_returned() -> None:
    assert check_key_rule(Mode.KEYED, KeyRule(weight=1_000)) == KeyRule(weight=1_000)
    assert check_key_rule(Mode.DYNAMIC, KeyRule(limit=7)) == KeyRule(limit=7)
    assert check_declaration(KEYED) == KEYED
