"""Which expressions, zones and intervals are taken, and what is said about the others."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.cron.instants import last_before, next_after
from penstock.core.cron.spec import ALIASES, Cron, Every, Spec, check_spec
from penstock.core.errors import OptionError

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("expression", "field", "found"),
    [
        ("61 * * * *", "cron minute", "61"),
        ("*/0 * * * *", "cron minute", "*/0"),
        ("* 24 * * *", "cron hour", "24"),
        ("* 5-3 * * *", "cron hour", "5-3"),
        ("* * 0 * *", "cron day of month", "0"),
        ("* * * 13 *", "cron month", "13"),
        ("* * * * MOM", "cron day of week", "MOM"),
        ("* * * * 1#6", "cron day of week", "1#6"),
        ("1,,2 * * * *", "cron minute", "1,,2"),
        ("² * * * *", "cron minute", "²"),
    ],
)
def test_a_field_that_cannot_be_read_is_named(expression: str, field: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        Cron.of(expression)

    assert (caught.value.field, caught.value.found) == (field, found)


@pytest.mark.parametrize("expression", ["", "* * * *", "* * * * * *", "@reboot", "* " * 200])
def test_what_is_not_five_fields_is_refused(expression: str) -> None:
    with pytest.raises(OptionError, match="five fields") as caught:
        Cron.of(expression)

    assert caught.value.field == "cron"


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */31 * 2#5"])
def test_a_date_that_never_comes_is_refused(expression: str) -> None:
    with pytest.raises(OptionError, match="never comes"):
        Cron.of(expression)


def test_a_step_longer_than_its_field_is_refused_as_it_would_not_be_kept() -> None:
    with pytest.raises(OptionError, match="use an interval"):
        Cron.of("*/90 * * * *")


def test_spaces_and_case_do_not_matter() -> None:
    assert Cron.of("  0  9 * *  mon-fri ") == Cron("0 9 * * mon-fri")
    assert next_after(Cron.of("0 9 * jan mon"), 0) == next_after(Cron.of("0 9 * 1 1"), 0)


def test_a_range_of_one_value_stays_one_value_whatever_its_step() -> None:
    assert Cron.of("5-5/2,7-9/2 4-4/1 * * MON-MON/3") == Cron("5,7-9/2 4 * * MON")
    assert Cron.of("5/20 1-11/5 * * *").expression == "5/20 1-11/5 * * *"


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_stand_for_their_expression(alias: str) -> None:
    assert Cron.of(alias.upper(), BERLIN) == Cron.of(ALIASES[alias], BERLIN)


@pytest.mark.parametrize(
    ("zone", "near"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
    ],
)
def test_an_unknown_zone_is_named_with_those_near_it(zone: str, near: str) -> None:
    with pytest.raises(OptionError, match=f"near it: .*{near}") as caught:
        Cron.of("@daily", zone)

    assert (caught.value.field, caught.value.found) == ("zone", zone)


@pytest.mark.parametrize(
    "zone", ["", "America", "../UTC", "/etc/passwd", "U\0TC", "right/UTC", "localtime", "ü" * 999]
)
def test_what_is_no_iana_zone_is_refused(zone: str) -> None:
    with pytest.raises(OptionError, match="an IANA zone"):
        Cron.of("@daily", zone)


@pytest.mark.parametrize("seconds", [0, 0.999, -1, 366 * 86_400 + 1, float("nan"), float("inf"), True])
def test_an_interval_is_a_second_to_a_year(seconds: float) -> None:
    with pytest.raises(OptionError, match=re.escape("seconds from 1 to 31622400")):
        Every.of(seconds)


def test_an_interval_may_be_a_fraction_and_has_an_anchor_since_1970() -> None:
    assert Every.of(1.5, 7) == Every(1_500, 7)
    with pytest.raises(OptionError, match="anchor"):
        Every.of(60, -1)


def test_a_spec_survives_json_and_can_be_checked_again() -> None:
    for spec in (Cron.of("@daily", BERLIN), Every.of(90, 5)):
        copy: Spec = msgspec.json.decode(msgspec.json.encode(spec), type=Cron | Every)

        assert check_spec(copy) == spec
    with pytest.raises(OptionError, match="cron hour"):
        check_spec(Cron("0 25 * * *"))


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.text("0123456789*/,-#LWSUNMOJA", min_size=1, max_size=6), min_size=5, max_size=5),
    st.integers(0, 4_000_000_000_000),
)
def test_any_text_is_refused_or_has_a_next_instant(fields: list[str], now: int) -> None:
    try:
        spec = Cron.of(" ".join(fields), BERLIN)
    except OptionError:
        return
    later = next_after(spec, now)

    assert later is not None
    assert later > now
    assert (last_before(spec, later) or 0) <= now
