"""Which tests `make test-fast` runs: those that need neither a server nor Spark, and begin no sandbox."""

from typing import Final

import pytest

from tests.conformance.stores import Kind

STORES: Final = frozenset({"memory", "sqlite"})
_SLOW_FOLDERS: Final = (
    "tests/benchmarks/",
    "tests/docs/",
    "tests/sandbox/",
    "tests/spark/",
    "tests/stores/postgres/",
    "tests/stores/redis/",
    "tests/stores/remote/",
    "tests/typing/",
    "tests/worker/executors/",
)
_SLOW_MODULES: Final = (
    "tests/acceptance/test_stopped_worker.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_postgres",
    "tests/cli/test_spark_",
    "tests/conformance/test_mutants.py",
    "tests/conformance/test_crashes.py",
)


def is_fast(item: pytest.Item) -> bool:
    """True where a test belongs to the inner loop of a developer."""
    if item.nodeid.startswith((*_SLOW_FOLDERS, *_SLOW_MODULES)):
        return False
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return all(value.name in STORES for value in params.values() if isinstance(value, Kind))
