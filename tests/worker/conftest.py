"""What the worker's tests ask for."""

import pytest

from penstock.core.job import QueueRef
from tests.worker.kit import Desk


@pytest.fixture
def desk(queue: QueueRef) -> Desk:
    """A queue in a memory store."""
    return Desk(queue)
