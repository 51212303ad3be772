"""The pytest plugin. Loaded in every run, so it imports nothing of Penstock before a test asks for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.app.app import Penstock
    from penstock.testing.kit import Kit


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the conformance suite."""
    group = parser.getgroup("penstock")
    group.addoption(
        "--penstock-store",
        metavar="MODULE:FACTORY",
        help="the store that penstock.testing.conformance tests: what makes an empty one; no default",
    )
    group.addoption(
        "--penstock-parts",
        metavar="PARTS",
        help="the parts that this store has beside the required ones, such as flows,keys; all by default",
    )


@pytest.fixture
def penstock_kit() -> "Iterator[Callable[[Penstock], Kit]]":
    """Give it an app: until the end of the test the app works in memory, and the kit looks into it."""
    from penstock.testing.kit import in_memory

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(in_memory(app))
