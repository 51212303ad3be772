"""The data source `penstock`: `table` and what Spark wants to do say which reader or writer it is."""

from collections.abc import MutableMapping
from copy import copy
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.core.errors import OptionError
from penstock.spark.options import Role, SourceOptions, read_options
from penstock.spark.schemas import schema_of

LAKE_OPTION: Final = "lake"
"""The option that names the folder of a lake, in the place of the url of a store."""
_OF_CATALOG: Final = frozenset({"provider", "owner", "location", "is_managed_location", "external"})
_COPY_PREFIX: Final = "option."


class PenstockSource(DataSource):
    """Jobs, dead letters and events as tables, and jobs from rows.

    Modules of readers and writers are loaded when they are wanted.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(_without_catalog(options))
        self._lake = None
        if LAKE_OPTION in self.options:
            # Loaded when it is wanted, as readers and writers are.
            from penstock.spark.lake.source import read_lake_options

            self._lake = read_lake_options(self.options)
        else:
            read_options(self.options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format("penstock")`."""
        return "penstock"

    def schema(self) -> StructType:
        """The columns that were asked for, of the table."""
        if self._lake is not None:
            return from_arrow_schema(self._lake.schema)
        options = read_options(self.options)
        return from_arrow_schema(schema_of(options.table, options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch of rows, as the store or the lake has them when the query is planned."""
        if self._lake is not None:
            from penstock.spark.lake.source import LakeReader

            return LakeReader(self._lake)
        options = self._reading(schema, "read")
        if options.table == "events":
            from penstock.spark.events.batch import EventsReader

            return EventsReader(options)
        from penstock.spark.jobs.reader import JobsReader

        wanted = to_arrow_schema(schema, timezone="UTC")
        is_plain = wanted == schema_of(options.table, wanted.names)
        return JobsReader(options, options.table, None if is_plain else wanted)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Events as they come."""
        options = self._reading(schema, "readStream")
        if options.table != "events":
            raise OptionError("table", options.table, "events: a stream is of events")
        from penstock.spark.events.stream import EventsStreamReader

        return EventsStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Jobs from rows, in one go."""
        options = self._writing("write", overwrite)
        from penstock.spark.sink.writers import JobsWriter

        return JobsWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Jobs from the rows of a stream."""
        options = self._writing("writeStream", overwrite)
        from penstock.spark.sink.writers import JobsStreamWriter

        return JobsStreamWriter(options, schema)

    def _reading(self, schema: StructType, role: Role) -> SourceOptions:
        self._refuse_lake(role)
        options = read_options(self.options, role=role)
        wanted = to_arrow_schema(schema, timezone="UTC")
        ours = schema_of(options.table, wanted.names)
        for field in wanted:
            if field != ours.field(field.name) and not _is_parsed(options.table, field):
                raise OptionError("schema", _typed(field), _typed(ours.field(field.name)))
        if not wanted.names:
            raise OptionError("schema", "no columns", f"some of {', '.join(ours.names)}")
        return msgspec.structs.replace(options, columns=tuple(wanted.names))

    def _refuse_lake(self, role: Role) -> None:
        if self._lake is not None:
            raise OptionError(
                LAKE_OPTION, self._lake.folder.uri, f"no lake with {role}: a lake can only be read in batch"
            )

    def _writing(self, role: Role, overwrite: bool) -> SourceOptions:
        self._refuse_lake(role)
        options = read_options(self.options, role=role)
        if overwrite:
            wanted = 'mode("append"), or outputMode("append"): a queue is never overwritten'
            raise OptionError("mode", "overwrite", wanted)
        if options.table != "jobs":
            raise OptionError("table", options.table, "jobs: rows become jobs")
        return options


def _without_catalog(options: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """The options without what `CREATE TABLE … USING penstock` adds to them.

    OptionError where a table of a catalog is read: Spark hands it none of those that it was made with.
    """
    found = copy(options)
    for name in list(options):
        if name in _OF_CATALOG or name.startswith(_COPY_PREFIX):
            del found[name]
    if not found:
        wanted = (
            "the option url: read a table of a catalog by SELECT … FROM name WITH ('url' = '…'), or by a view"
        )
        raise OptionError("options", "none", wanted)
    return found


def _is_parsed(table: str, field: pa.Field) -> bool:
    """Whether the query wants the JSON of a column as values of a type; OptionError where that cannot be."""
    from penstock.spark.jobs.parsed import PARSED, WANTED, is_parsable

    if table == "events" or field.name not in PARSED:
        return False
    if not is_parsable(field.type):
        raise OptionError("schema", _typed(field), f"{field.name} as {WANTED}")
    return True


def _typed(field: pa.Field) -> str:
    return f"{field.name} {field.type}"
