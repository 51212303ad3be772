"""The rotating filter against a model of what it may forget, and its memory against the computed one."""

import math
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bloom.filters import Filters
from penstock.bloom.rotating import CLEANUP, GHOST, IDEMPOTENCY, BloomCounts, BloomSize, RotatingBloom
from penstock.core.errors import OptionError
from penstock.settings import BloomSettings


class Clock:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def bits(size: BloomSize) -> float:
    """The size of an optimal filter."""
    return -size.capacity * math.log(size.rate) / math.log(2) ** 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 40), st.sampled_from([3.0, 10.0, 25.0])), max_size=120))
def test_what_was_added_is_found_until_two_rotations_are_over(steps: list[int | float]) -> None:
    clock = Clock()
    bloom = RotatingBloom(BloomSize(8, 1e-12, 10.0), clock=clock)
    added: dict[str, int] = {}
    for step in steps:
        if isinstance(step, float):
            clock.now += step
        else:
            bloom.add([f"item {step}"])
            added[f"item {step}"] = bloom.counts.rotations
        bloom.maybe(["nothing"])  # a look rotates too
        now = bloom.counts.rotations
        fresh = [item for item, since in added.items() if now - since < 2]
        assert all(bloom.maybe(fresh))


@pytest.mark.parametrize("size", [BloomSize(20_000, 0.01, 60.0), BloomSize(20_000, 1e-6, 60.0)])
def test_at_capacity_false_positives_stay_within_the_rate(size: BloomSize) -> None:
    bloom = RotatingBloom(size, clock=Clock())
    bloom.add(f"added {n}" for n in range(size.capacity))
    assert bloom.counts.rotations == 0
    wrong = sum(bloom.maybe([f"never added {n}" for n in range(200_000)]))
    assert wrong <= 200_000 * size.rate * 1.25 + 5


def test_a_full_buffer_rotates_and_the_one_before_is_still_asked() -> None:
    bloom = RotatingBloom(BloomSize(100, 1e-12, 60.0), clock=Clock())
    bloom.add(f"first {n}" for n in range(100))
    bloom.add(["one more"])
    assert bloom.counts.rotations == 1
    assert all(bloom.maybe([f"first {n}" for n in range(100)]))
    bloom.add(f"second {n}" for n in range(100))
    assert bloom.counts.rotations == 2
    assert sum(bloom.maybe([f"first {n}" for n in range(100)])) < 10


def test_an_item_that_is_added_again_takes_no_room() -> None:
    bloom = RotatingBloom(BloomSize(10, 1e-12, 60.0), clock=Clock())
    for _ in range(50):
        bloom.add(["the same"])
    assert bloom.counts.rotations == 0


def test_after_two_rotations_without_use_nothing_is_remembered() -> None:
    clock = Clock()
    bloom = RotatingBloom(BloomSize(10, 1e-12, 60.0), clock=clock)
    bloom.add(["old"])
    clock.now = 119.0
    assert bloom.maybe(["old"]) == [True]
    clock.now = 300.0
    assert bloom.maybe(["old"]) == [False]


def test_the_counters_tell_hits_misses_and_what_was_refuted() -> None:
    bloom = RotatingBloom(BloomSize(10, 1e-12, 60.0), clock=Clock())
    bloom.add(["a"])
    bloom.maybe(["a", "b", "c"])
    bloom.refuted()
    assert bloom.counts == BloomCounts(hits=1, misses=2, false_positives=1, rotations=0)


def test_threads_share_a_filter_that_rotates() -> None:
    bloom = RotatingBloom(BloomSize(10_000, 1e-12, 3600.0))
    errors: list[BaseException] = []

    def watched(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
            raise

    def writer(name: int) -> None:
        for n in range(3_000):
            bloom.add([f"{name}/{n}"])
            # The three others add 9,000 items at most meanwhile: not enough for two rotations.
            assert bloom.maybe([f"{name}/{n}"]) == [True]

    def reader() -> None:
        for n in range(3_000):
            bloom.maybe([f"{random.randrange(4)}/{n}"])

    threads = [threading.Thread(target=watched, args=(lambda n=n: writer(n),)) for n in range(4)]
    threads += [threading.Thread(target=watched, args=(reader,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert bloom.counts.rotations == 1
    assert bloom.counts.hits + bloom.counts.misses == 18_000


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["in time", "due to rotate"])
def test_a_look_waits_for_no_change(seconds: float) -> None:
    """Not even for one that takes long: here it looks itself, in the middle of it."""
    clock = Clock()
    bloom = RotatingBloom(BloomSize(10, 1e-12, 60.0), clock=clock)
    bloom.add(["a"])
    found: list[list[bool]] = []

    def items() -> Iterator[str]:
        clock.now = seconds
        looking = threading.Thread(target=lambda: found.append(bloom.maybe(["a", "b"])), daemon=True)
        looking.start()
        looking.join(10)
        yield "b"

    bloom.add(items())
    assert found == [[True, False]]
    assert bloom.counts.hits == 1


@pytest.mark.parametrize(
    ("size", "megabytes"),
    [(IDEMPOTENCY, 2.4), (GHOST, 28.8), (CLEANUP, 4.8)],
    ids=["keys", "ghosts", "cleanup"],
)
def test_memory_is_as_computed(size: BloomSize, megabytes: float) -> None:
    bloom = RotatingBloom(size)
    assert bloom.memory_bytes == pytest.approx(2 * bits(size) / 8, rel=0.01)
    assert bloom.memory_bytes / 1e6 == pytest.approx(megabytes, abs=0.06)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((0, 0.01, 1.0), "capacity"),
        (("many", 0.01, 1.0), "capacity"),
        ((2.5, 0.01, 1.0), "capacity"),
        ((10**10, 0.01, 1.0), "capacity: found 10000000000, wanted .* up to 1024 MiB"),
        ((1 << 70, 0.01, 1.0), "capacity"),
        ((1, "low", 1.0), "rate"),
        ((1, float("nan"), 1.0), "rate"),
        ((1, 0.5, None), "rotation"),
        ((1, 0.5, float("nan")), "rotation"),
        ((1, 0.0, 1.0), "rate"),
        ((1, 1.0, 1.0), "rate"),
        ((1, 0.5, 0.0), "rotation"),
    ],
)
def test_a_size_that_cannot_be_is_refused(given: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(OptionError, match=field):
        BloomSize(*given)


def test_the_settings_turn_filters_on() -> None:
    """With the sizes that are their defaults."""
    filters = Filters.of(BloomSettings(idempotency=True, ghost=True, cleanup=True))
    found = [filters.idempotency, filters.ghost, filters.cleanup]
    assert [None if each is None else each.size for each in found] == [IDEMPOTENCY, GHOST, CLEANUP]
    assert Filters.of(BloomSettings()).idempotency is None
