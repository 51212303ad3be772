"""What fires after nobody looked for a while, and schedules as stores keep them."""

import time

import msgspec
import pytest

from penstock.core.cron.catch_up import GRACE_MS, MAX_LIMIT, CatchUp, Due, due
from penstock.core.cron.schedule import Schedule, check_schedule, decode_schedule, encode_schedule
from penstock.core.cron.spec import Cron, Every
from penstock.core.errors import InvalidError, InvalidNameError, OptionError
from penstock.core.job import Options

HOUR = 3_600_000
HOURLY = Cron.of("@hourly")
NIGHTLY = Schedule(name="nightly", spec=HOURLY, task="report", payload=b"{}")


def made(**fields: object) -> Schedule:
    return msgspec.structs.replace(NIGHTLY, **fields)


@pytest.mark.parametrize("policy", CatchUp)
def test_an_instant_that_has_just_come_fires_under_every_policy(policy: CatchUp) -> None:
    assert due(HOURLY, policy, last_ms=9 * HOUR, now_ms=10 * HOUR + 400) == Due((10 * HOUR,), 11 * HOUR)


@pytest.mark.parametrize("policy", CatchUp)
def test_nothing_fires_twice_nor_before_its_time(policy: CatchUp) -> None:
    assert due(HOURLY, policy, last_ms=10 * HOUR, now_ms=10 * HOUR + 400) == Due((), 11 * HOUR)
    assert due(HOURLY, policy, last_ms=10 * HOUR, now_ms=11 * HOUR - 1) == Due((), 11 * HOUR)


@pytest.mark.parametrize("policy", CatchUp)
def test_a_clock_that_went_back_finds_nothing_to_do(policy: CatchUp) -> None:
    assert due(HOURLY, policy, last_ms=10 * HOUR, now_ms=7 * HOUR) == Due((), 11 * HOUR)


def test_none_skips_what_was_missed() -> None:
    assert due(HOURLY, CatchUp.NONE, 3 * HOUR, 10 * HOUR + GRACE_MS) == Due((10 * HOUR,), 11 * HOUR)
    assert due(HOURLY, CatchUp.NONE, 3 * HOUR, 10 * HOUR + GRACE_MS + 1) == Due((), 11 * HOUR)


def test_last_fires_the_newest_that_was_missed() -> None:
    assert due(HOURLY, CatchUp.LAST, 3 * HOUR, 10 * HOUR + HOUR // 2) == Due((10 * HOUR,), 11 * HOUR)


def test_all_fires_the_newest_up_to_the_limit_the_oldest_first() -> None:
    everything = due(HOURLY, CatchUp.ALL, 3 * HOUR, 6 * HOUR + 1)
    limited = due(HOURLY, CatchUp.ALL, 3 * HOUR, 90 * HOUR + 1, limit=2)

    assert everything == Due((4 * HOUR, 5 * HOUR, 6 * HOUR), 7 * HOUR)
    assert limited == Due((89 * HOUR, 90 * HOUR), 91 * HOUR)


def test_a_gap_of_decades_costs_no_more_than_the_limit() -> None:
    began = time.process_time()
    found = due(Every.of(1), CatchUp.ALL, 0, 10**12, limit=10**9)

    assert len(found.now) == MAX_LIMIT
    assert len(due(Cron.of("* * * * *"), CatchUp.ALL, 0, 10**12, limit=10**9).now) == MAX_LIMIT
    assert time.process_time() - began < 10


def test_looks_in_turn_fire_every_instant_once() -> None:
    last = 0
    fired: list[int] = []
    for now in range(0, 24 * HOUR, 17 * 60_000):
        fired += due(HOURLY, CatchUp.ALL, last, now).now
        last = now

    assert fired == [each * HOUR for each in range(1, 24)]


def test_a_schedule_fires_from_its_start_to_its_end_both_included() -> None:
    schedule = made(catch_up=CatchUp.ALL, starts_at=5 * HOUR, ends_at=7 * HOUR)

    assert schedule.due(0, 4 * HOUR) == Due((), 5 * HOUR)
    assert schedule.due(0, 6 * HOUR) == Due((5 * HOUR, 6 * HOUR), 7 * HOUR)
    assert schedule.due(6 * HOUR, 9 * HOUR) == Due((7 * HOUR,), None)
    assert schedule.due(7 * HOUR, 9 * HOUR) == Due((), None)


def test_what_was_missed_does_not_become_fresh_by_the_end_of_the_schedule() -> None:
    schedule = made(catch_up=CatchUp.NONE, ends_at=7 * HOUR)

    assert schedule.due(0, 7 * HOUR + GRACE_MS) == Due((7 * HOUR,), None)
    assert schedule.due(0, 9 * HOUR) == Due((), None)


def test_a_paused_schedule_has_nothing_due() -> None:
    assert made(paused=True).due(0, 9 * HOUR) == Due((), None)


def test_a_schedule_survives_json_with_its_payload_as_text() -> None:
    schedule = made(
        spec=Every.of(90),
        payload='{"name":"Grüße"}'.encode(),
        options=Options(max_attempts=2),
        key="k",
        starts_at=5,
    )
    record = encode_schedule(schedule)

    assert decode_schedule(record) == schedule
    assert msgspec.json.decode(record)["payload"] == '{"name":"Grüße"}'


@pytest.mark.parametrize(
    ("fields", "field", "error"),
    [
        ({"name": "a b"}, "schedule", InvalidNameError),
        ({"task": ""}, "task", InvalidNameError),
        ({"key": ""}, "key", InvalidNameError),
        ({"catch_up_limit": 0}, "catch_up_limit", OptionError),
        ({"catch_up_limit": MAX_LIMIT + 1}, "catch_up_limit", OptionError),
        ({"starts_at": -1}, "starts_at", OptionError),
        ({"starts_at": 9, "ends_at": 8}, "ends_at", OptionError),
        ({"spec": Cron("0 25 * * *")}, "cron hour", OptionError),
        ({"spec": Every(10)}, "every", OptionError),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_by_field(
    fields: dict[str, object], field: str, error: type[InvalidError]
) -> None:
    with pytest.raises(error) as caught:
        check_schedule(made(**fields))

    assert caught.value.field == field


def test_a_schedule_that_can_be_is_itself() -> None:
    assert check_schedule(made()) == made()
