"""One Spark session for the whole run, and the stores that other processes can reach, by url."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark import session
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from tests.conformance.having import kind_among
from tests.conformance.stores import STORES, Kind, Place, opened

T = TypeVar("T")

CONF: Final = Path(__file__).parent / "conf" / "spark-defaults.conf"
SETTINGS: Final = dict(
    line.split(maxsplit=1) for line in CONF.read_text().splitlines() if line.startswith("spark.")
)
"""What makes small queries fast."""
MASTER: Final = "local[2,4]"
"""Two cores, and four tries of a task: plain local[2] never tries again."""

kind = kind_among([kind for kind in STORES if kind.name in {"sqlite", "valkey", "postgres"}])


class SparkPlace(msgspec.Struct, frozen=True):
    """An empty store that drivers, executors and tests reach by its url."""

    kind: str
    url: str

    def open(self) -> AbstractAsyncContextManager[Store]:
        """The store, open for the time of the block."""
        return opened(open_store(self.url))

    def run(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """What `work` makes of the open store."""

        async def whole() -> T:
            async with self.open() as store:
                return await work(store)

        return asyncio.run(whole())

    def read(self, spark: SparkSession, table: str = "jobs", **options: Any) -> DataFrame:
        """A table of the store, read in batch."""
        return spark.read.format("penstock").options(url=self.url, table=table, **options).load()


@contextmanager
def preloading() -> Iterator[None]:
    """A Spark that is started within the block forks workers that have everything loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "preloaded"), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the run, with filters pushed down; stopped at its end."""
    with preloading():
        made = session("penstock-tests", MASTER, **SETTINGS)
    yield made
    made.stop()


@pytest.fixture
def place(kind: Kind, where: Place) -> SparkPlace:
    """A store of each kind, with nothing in it."""
    address = kind.address(where)
    return SparkPlace(kind.name, f"sqlite:///{address}" if kind.name == "sqlite" else address)
