"""Seeds and scale of the torture: printed, and taken from the environment to run one again."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reliability.grounds import GROUNDS, Ground


@pytest.fixture
def chance() -> random.Random:
    """The run's own randomness; TORTURE_SEED repeats a plan."""
    seed = int(os.environ.get("TORTURE_SEED") or random.SystemRandom().randrange(2**32))
    print(f"\nTORTURE_SEED={seed}", flush=True)
    return random.Random(seed)


@pytest.fixture
def scale() -> float:
    """How many times the usual length; TORTURE_SCALE makes runs longer."""
    return float(os.environ.get("TORTURE_SCALE") or 1)


@pytest.fixture(params=GROUNDS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    """Each store that is tortured, empty."""
    with GROUNDS[request.param](tmp_path) as found:
        yield found
