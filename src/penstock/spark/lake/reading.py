"""A table of a lake as a DataFrame: Spark reads the files of one version of Delta's log."""

from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.errors import OptionError
from penstock.spark.errors import TableError
from penstock.spark.lake.folder import folder_at
from penstock.spark.lake.lake import refuse_old_layout
from penstock.spark.lake.schemas import shape_of
from penstock.spark.lake.table import LakeTable

_CHECKED: Final = "parquet.page.verify-checksum.enabled"
"""Pages are always written with a checksum; that it is right is looked at only when asked for."""


def rows_of(spark: SparkSession, folder: str, name: str, version: int | None = None) -> DataFrame:
    """The rows of a table, all from one version."""
    shape, place = shape_of(name), folder_at(folder)
    refuse_old_layout(place)
    table = LakeTable(place, shape)
    if not table.load():
        raise TableError(f"{table.where}: there is no table")
    columns, paths = _version(table, version)
    schema = from_arrow_schema(columns)
    if not paths:
        return spark.createDataFrame([], schema)
    urls = [table.folder.spark_url(path) for path in paths]
    reader = spark.read.schema(schema).option(_CHECKED, True).option("basePath", table.folder.spark_url())
    try:
        return reader.parquet(*urls)
    except AnalysisException as error:
        said = str(error).partition("\n")[0]
        raise TableError(f"{table.where}: the log names a file that is not there: {said}") from None


def _version(table: LakeTable, version: int | None) -> tuple[pa.Schema, list[str]]:
    if version is None:
        return table.columns(), [file.path for file in table.files()]
    try:
        old = DeltaTable(table.folder.uri, version=version)
    except (DeltaError, OSError):
        wanted = f"one of 0 to {table.version} that the log still has"
        raise OptionError("version", version, wanted) from None
    return pa.schema(old.schema()), [row["path"] for row in pa.table(old.get_add_actions()).to_pylist()]
