"""The batch reader of `jobs` and `dlq`."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.core.errors import ConfigError
from penstock.spark.jobs.requests import conditions_of, request_of
from penstock.spark.options import SourceOptions
from penstock.spark.shielding import shielded
from penstock.stores.registry import StoreKind, kind_of


class JobsReader(DataSourceReader):
    """Jobs as they are when they are read, each once, and none that came after the query was planned.

    With a schema, columns of JSON have the types that stand there.
    """

    def __init__(self, options: SourceOptions, table: str, schema: pa.Schema | None = None) -> None:
        self._options = options
        self._parsed = schema
        self._request = request_of(options, table)
        # Spark refuses a reader that overrides it while spark.sql.python.filterPushdown.enabled is off.
        self.pushFilters = _Push(self)  # type: ignore[method-assign]

    def push(self, filters: list[Filter]) -> None:
        """Let the store look at these filters."""
        self._request = self._request.and_also(conditions_of(filters))

    def partitions(self) -> list[InputPartition]:
        """What each task reads, decided now."""
        url = self._options.store_url
        with shielded(url):
            found: list[InputPartition] = list(_module(url).plan(self._options, self._request))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if type(partition) is InputPartition:
            # What Spark makes up where there is nothing to read.
            return
        url = self._options.store_url
        with shielded(url):
            found = _module(url).read(self._options, self._request, partition)
            if self._parsed is None:
                yield from found
                return
            from penstock.spark.jobs.parsed import parsed

            for batch in found:
                yield parsed(batch, self._parsed)


class _Push:
    """`pushFilters` of a reader, which takes itself for the one that it has from its class."""

    __func__: Final = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: JobsReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """All filters are still Spark's to apply: what is pushed only spares rows."""
        self._reader.push(filters)
        return filters


def _module(url: str) -> Any:
    match kind_of(url):
        case StoreKind.SQLITE:
            from penstock.spark.jobs import sqlite

            return sqlite
        case StoreKind.POSTGRES:
            from penstock.spark.jobs import postgres

            return postgres
        case StoreKind.REMOTE:
            raise ConfigError(
                "jobs are read from the store itself: found a service, wanted the url of its store"
            )
        case _:
            from penstock.spark.jobs import redis

            return redis
