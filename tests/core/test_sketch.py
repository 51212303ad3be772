"""Percentiles of a sketch are within its stated error of those of the values."""

import math
import random

import pytest

from penstock.core import sketch


def test_every_value_is_near_the_middle_of_its_bucket() -> None:
    for value in [*range(5_000), *(random.Random(1).randrange(1 << 45) for _ in range(5_000))]:
        middle = sketch.middle_of(sketch.bucket_of(value))

        assert abs(middle - value) <= sketch.RELATIVE_ERROR * value, value


def test_buckets_are_in_the_order_of_their_values() -> None:
    buckets = [sketch.bucket_of(value) for value in range(100_000)]

    assert buckets == sorted(buckets)


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_within_the_stated_error(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted(round(chance.lognormvariate(5, 3)) for _ in range(2_000))
    halves: tuple[sketch.Sketch, sketch.Sketch] = ({}, {})
    for value in values:
        sketch.add(chance.choice(halves), value)
    whole: sketch.Sketch = {}
    for half in halves:
        sketch.merge(whole, half)
    for part in (0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 1.0):
        wanted = values[max(1, math.ceil(part * len(values))) - 1]
        found = sketch.quantile(whole, part)

        assert found is not None
        assert abs(found - wanted) <= sketch.RELATIVE_ERROR * wanted, part


def test_no_values_have_no_percentile_and_a_time_below_zero_counts_as_zero() -> None:
    below: sketch.Sketch = {}
    sketch.add(below, -5)

    assert sketch.quantile({}, 0.5) is None
    assert below == {0: 1}
