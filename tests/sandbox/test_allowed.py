"""What permissions name works as if there were no sandbox."""

import json
from functools import cache
from typing import Any

import pytest

from tests.sandbox.allowed import FINE, WORKS
from tests.sandbox.conftest import Run
from tests.sandbox.crew import crews


@pytest.fixture(scope="module")
def done(run: Run) -> Any:
    """What came of each work, by crew."""
    return cache(lambda crew: json.loads(run(crew, "tests.sandbox.allowed")))


@pytest.mark.parametrize("crew", crews())
@pytest.mark.parametrize("name", WORKS)
def test_what_is_allowed_works(done: Any, crew: str, name: str) -> None:
    """For whoever runs the worker."""
    assert done(crew)[name] == FINE
