"""How pytest runs the suite: coroutines in event loops, and only the tests whose parts the store has."""

import pytest

from penstock.testing.conformance import aio, fixtures
from penstock.testing.conformance.parts import Part


def pytest_configure(config: pytest.Config) -> None:
    """Bring the fixtures as those of a plugin: those of a conftest above the suite go before them."""
    config.addinivalue_line("markers", "needs(*parts): parts of a store that the test needs")
    config.pluginmanager.register(fixtures, "penstock-conformance")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine functions, each in an event loop of its own."""
    return aio.run_item(pyfuncitem)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of parts that the store does not have."""
    parts = fixtures.parts_of(config)
    left_out = [item for item in items if not _needed(item) <= parts]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]


def _needed(item: pytest.Item) -> frozenset[Part]:
    return frozenset(part for mark in item.iter_markers("needs") for part in mark.args)
