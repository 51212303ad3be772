"""The rules of daylight saving in words, intervals, and the ends of time."""

import time
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.cron.instants import (
    LAST_MS,
    instants,
    last_before,
    newest_instants,
    next_after,
    next_runs,
)
from penstock.core.cron.spec import Cron, Every, Spec

BERLIN = "Europe/Berlin"
HOUR = 3_600_000


def at(text: str, zone: str = BERLIN) -> int:
    """Unix milliseconds of a local time; of one that comes twice, the first."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def runs(expression: str, day: str, days: int = 1, zone: str = BERLIN) -> list[str]:
    """The local times with their offsets at which it runs on a day."""
    start = at(day, zone)
    found = instants(Cron.of(expression, zone), start - 1, start + days * 24 * HOUR - 1, 2000)
    return [f"{datetime.fromtimestamp(each / 1000, ZoneInfo(zone)):%d %H:%M %z}" for each in found]


def test_a_fixed_time_that_is_skipped_runs_once_right_after_the_jump() -> None:
    assert runs("30 2 * * *", "2024-03-30", 3) == ["30 02:30 +0100", "31 03:00 +0200", "01 02:30 +0200"]


def test_several_fixed_times_that_are_skipped_run_once_together() -> None:
    assert runs("0,20,40 2,3 31 3 *", "2024-03-31") == ["31 03:00 +0200", "31 03:20 +0200", "31 03:40 +0200"]


def test_a_fixed_time_that_comes_twice_runs_the_first_time_only() -> None:
    assert runs("30 2 * * *", "2024-10-26", 3) == ["26 02:30 +0200", "27 02:30 +0200", "28 02:30 +0100"]


def test_a_wildcard_follows_real_time_through_both_changes() -> None:
    spring, autumn = runs("*/30 * * * *", "2024-03-31"), runs("*/30 * * * *", "2024-10-27", 2)

    assert spring[2:6] == ["31 01:00 +0100", "31 01:30 +0100", "31 03:00 +0200", "31 03:30 +0200"]
    assert autumn[4:8] == ["27 02:00 +0200", "27 02:30 +0200", "27 02:00 +0100", "27 02:30 +0100"]


def test_a_wildcard_within_the_skipped_hour_does_not_run_and_within_the_repeated_runs_twice() -> None:
    assert runs("*/30 2 * * *", "2024-03-31") == []
    assert runs("*/30 2 * * *", "2024-10-27") == [
        "27 02:00 +0200",
        "27 02:30 +0200",
        "27 02:00 +0100",
        "27 02:30 +0100",
    ]


def test_the_second_time_an_hour_comes_a_fixed_time_in_it_is_over() -> None:
    spec = Cron.of("30 2 * * *", BERLIN)
    second_2_10 = at("2024-10-27 02:10") + HOUR

    assert next_after(spec, second_2_10) == at("2024-10-28 02:30")
    assert last_before(spec, second_2_10) == at("2024-10-27 02:30")


def test_a_day_that_a_zone_leaves_out_is_left_out() -> None:
    """Samoa went from the 29th to the 31st: no daylight saving, so nothing is made up for."""
    apia = runs("0 3 * * *", "2011-12-29", 3, "Pacific/Apia")

    assert apia == ["29 03:00 -1000", "31 03:00 +1400", "01 03:00 +1400"]


def test_midnight_may_be_skipped() -> None:
    sao_paulo = runs("0 0 * * *", "2018-11-03", 2, "America/Sao_Paulo")

    assert sao_paulo == ["03 00:00 -0300", "04 01:00 -0200", "05 00:00 -0200"]


def test_with_a_day_of_month_and_a_day_of_week_either_is_enough() -> None:
    assert len(instants(Cron.of("0 0 13 * 5"), at("2024-09-01"), at("2024-10-01"), 99)) == 4
    assert runs("0 0 */13 9 5", "2024-09-01", 30) == ["27 00:00 +0200"]


def test_instants_are_after_the_first_bound_and_up_to_the_second() -> None:
    for spec in (Cron.of("* * * * *"), Every.of(60)):
        assert instants(spec, 60_000, 180_000, 9) == [120_000, 180_000]
        assert newest_instants(spec, 60_000, 180_000, 9) == [120_000, 180_000]
        assert instants(spec, 60_000, 999_000, 2) == [120_000, 180_000]
        assert newest_instants(spec, 60_000, 240_000, 2) == [180_000, 240_000]
        assert next_after(spec, 60_000) == next_after(spec, 119_999) == 120_000
        assert last_before(spec, 60_001) == last_before(spec, 120_000) == 60_000
        assert instants(spec, 0, 999_000, 0) == newest_instants(spec, 0, 999_000, -1) == []


def test_an_interval_counts_from_its_anchor_and_is_nothing_before_it() -> None:
    spec = Every.of(90, anchor_ms=1_000_000)

    assert next_after(spec, 5) == 1_000_000
    assert next_after(spec, 1_000_000) == 1_090_000
    assert next_after(spec, 1_135_000) == 1_180_000
    assert last_before(spec, 1_135_000) == 1_090_000
    assert last_before(spec, 1_000_000) is None


def test_an_interval_does_not_care_for_clocks_on_the_wall() -> None:
    found = instants(Every.of(6 * 3600), at("2024-03-30"), at("2024-04-02"), 99)

    assert {later - earlier for earlier, later in pairwise(found)} == {6 * HOUR}


@pytest.mark.parametrize("spec", [Cron.of("@daily", BERLIN), Every.of(86_400)])
def test_time_begins_in_1970_and_ends_in_9900(spec: Spec) -> None:
    first, last = next_after(spec, -(10**18)), last_before(spec, 10**18)

    assert first is not None
    assert 0 <= first <= 24 * HOUR
    assert last_before(spec, first) is None
    assert last is not None
    assert LAST_MS - 24 * HOUR <= last <= LAST_MS
    assert next_after(spec, last - 1) == last
    assert next_after(spec, last) is None
    assert next_after(spec, 10**18) is None


def test_a_rare_date_is_found_and_one_that_never_comes_ends_the_search() -> None:
    began = time.process_time()

    assert runs("0 0 29 2 *", "2097-01-01", 2700) == ["29 00:00 +0100"]
    assert next_after(Cron("0 0 */31 * 2#5"), at("2024-01-01")) is None
    assert last_before(Cron("0 0 */31 * 2#5"), at("2024-01-01")) is None
    assert time.process_time() - began < 10


def test_the_next_runs_are_told_in_the_zone_of_the_spec() -> None:
    berlin = next_runs(Cron.of("30 2 * * *", BERLIN), at("2024-03-30 12:00"), 2)

    assert [each.isoformat() for each in berlin] == ["2024-03-31T03:00:00+02:00", "2024-04-01T02:30:00+02:00"]
    assert [each.isoformat() for each in next_runs(Every.of(60), 0, 1)] == ["1970-01-01T00:01:00+00:00"]
    assert next_runs(Every.of(60), LAST_MS, 3) == []


SPECS = st.one_of(
    st.builds(
        Cron,
        st.sampled_from(
            ["* * * * *", "*/7 1-3 * * *", "30 2 * * 0", "0,30 2 * * *", "5 */3 1,L * *", "0 0 29 2 *"]
        ),
        st.sampled_from(
            [BERLIN, "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Asia/Kathmandu"]
        ),
    ),
    st.builds(Every.of, st.integers(1, 10**6), st.integers(0, 10**12)),
)


@settings(deadline=None)  # a busy machine is no failure
@given(SPECS, st.integers(-5, 5_000_000_000_000))
def test_instants_increase_and_agree_with_the_next_and_the_last(spec: Spec, now: int) -> None:
    found = instants(spec, now, LAST_MS, 20)

    assert len(found) == 20
    assert found[0] > now
    assert all(earlier < later for earlier, later in pairwise(found))
    assert [next_after(spec, each) for each in found[:-1]] == found[1:]
    assert [last_before(spec, each) for each in found[1:]] == found[:-1]
    assert newest_instants(spec, now, found[-1], 20) == found
