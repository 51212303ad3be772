"""What the executors' tests ask for."""

import pytest

from tests.worker.executors.kit import PROGRAMS, WORK, Crew


@pytest.fixture
def crew() -> Crew:
    """A queue whose handlers run in processes."""
    return Crew(WORK)


@pytest.fixture
def programs() -> Crew:
    """A queue whose jobs are programs."""
    return Crew(PROGRAMS)
