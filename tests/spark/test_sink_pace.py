"""Not faster than asked for, and not more at once than there is room for."""

import asyncio
import os

import pytest

from penstock.spark.sink.in_flight import InFlight
from penstock.spark.sink.rate_limiter import RateLimiter
from penstock.spark.sink.write_scope import WriteScope, slots_in
from penstock.spark.sink.write_stats import WriteStats

CORES = len(os.sched_getaffinity(0))


async def test_a_pace_lets_through_so_many_per_second() -> None:
    """Time that was not used is lost: there is no burst after a pause."""
    now, waited = [0.0], []

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 3))
        now[0] += seconds

    pace = RateLimiter(10, clock=lambda: now[0], sleep=sleep)
    for count in (1, 5, 1):
        await pace.wait(count)
    now[0] += 100
    for count in (1, 1):
        await pace.wait(count)

    assert waited == [0.1, 0.5, 0.1]
    assert pace.most == 1
    assert RateLimiter(5_000).most == 500
    assert RateLimiter(None).most is None


async def test_a_flight_is_no_larger_than_it_may_be() -> None:
    """Calls wait until one of those under way has ended."""
    under_way = most = 0
    gate = asyncio.Event()

    async def call() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1

    async with InFlight(2) as flight:
        await flight.start(call())
        await flight.start(call())
        gate.set()
        for _ in range(5):
            await flight.start(call())

    assert (most, under_way) == (2, 0)


async def test_the_first_failure_of_a_flight_ends_it() -> None:
    """No call outlives it."""
    ended = []

    async def fail() -> None:
        raise ValueError("no")

    async def last() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def whole() -> None:
        async with InFlight(2) as flight:
            for call in (last(), fail(), last()):
                await flight.start(call)

    with pytest.raises(ValueError, match="no"):
        await whole()

    assert ended == [True]


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({"spark.master": "local[4]"}, 4),
        ({"spark.master": "local[2,4]"}, 2),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[*]"}, CORES),
        ({"spark.master": "local[*,4]"}, CORES),
        ({"spark.master": "local[*, 4]", "spark.task.cpus": str(CORES)}, 1),
        ({"spark.master": "local-cluster[3,2,1024]"}, 6),
        ({"spark.master": "yarn", "spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ({"spark.master": "spark://x", "spark.cores.max": "12", "spark.task.cpus": "2"}, 6),
        ({"spark.master": "yarn", "spark.executor.cores": "4"}, None),
        ({}, None),
    ],
)
def test_the_tasks_that_may_run_at_once_are_known_from_the_settings(
    settings: dict[str, str], slots: int | None
) -> None:
    """None where they do not say."""
    assert slots_in(settings.get) == slots


def test_names_of_files_differ_for_every_write_and_batch() -> None:
    """Also where ids have signs in them that names have not."""
    places = [
        WriteScope("a.b", 1),
        WriteScope("a", 1),
        WriteScope("a%2Eb", 1),
        WriteScope("a", 11),
        WriteScope("a"),
        WriteScope("ä", 1),
    ]
    prefixes = [place.prefix("s") for place in places]

    assert not any(one != other and one.startswith(other) for one in prefixes for other in prefixes)
    assert len(set(prefixes)) == len(places)


def test_names_of_files_are_never_too_long() -> None:
    """Also not while the file is written, under a longer name; and long ids stay apart."""
    names = [WriteScope(text, 2**63).prefix("12345678") for text in ("é" * 200, "é" * 199, "W" * 200)]

    assert all(len(f".{name}99999.parquet.{'0' * 32}".encode()) <= 255 for name in names)
    assert len(set(names)) == 3


def test_a_tally_adds_up() -> None:
    """And says in a line what it counted."""
    stats = WriteStats(3, 1, 1, {"dead": 1}, {})
    stats.add(WriteStats(2, 0, 0, {}, {"_queue": 2}))

    assert str(stats) == "5 rows, 1 applied, 1 already so, 1 refused (dead: 1), 2 bad (_queue: 2)"
