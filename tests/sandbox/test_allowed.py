"""What permissions name works as if there were no sandbox."""

import json
from functools import cache
from typing import Any

import pytest

from tests.sandbox.allowed import FINE, WORKS
from tests.sandbox.conftest import Start
from tests.sandbox.crew import crews


@pytest.fixture(scope="module")
def done(start: Start) -> Any:
    """What came of each work, by crew."""
    doing = {crew: start(crew, "tests.sandbox.allowed") for crew in crews()}
    return cache(lambda crew: json.loads(doing[crew].result()))


@pytest.mark.parametrize("crew", crews())
@pytest.mark.parametrize("name", WORKS)
def test_what_is_allowed_works(done: Any, crew: str, name: str) -> None:
    """For whoever runs the worker."""
    assert done(crew)[name] == FINE
