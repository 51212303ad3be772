"""How the columns of batches from different versions become those of one table."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from penstock.core.errors import TableError

_WIDER: Final = (
    (ByteType(), ShortType(), IntegerType(), LongType()),
    (FloatType(), DoubleType()),
)


def merged(where: str, schemas: Iterable[StructType]) -> StructType:
    """All columns there are, in the order they first came; each may be null.

    A column that a batch lacks is null there. Where types differ the wider one is taken; those of which
    neither is wider are a TableError.
    """
    columns: dict[str, DataType] = {}
    for schema in schemas:
        for field in schema.fields:
            known = columns.setdefault(field.name, field.dataType)
            columns[field.name] = _wider(f"{where}: column {field.name}", known, field.dataType)
    return StructType([StructField(name, kind, nullable=True) for name, kind in columns.items()])


def fitted(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with exactly these columns: missing ones are null."""
    there = set(rows.columns)
    return rows.select(
        *(
            (F.col(f"`{field.name}`") if field.name in there else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in schema.fields
        )
    )


def _wider(where: str, known: DataType, new: DataType) -> DataType:
    if known == new or _shape(known) == _shape(new):
        return known
    for line in _WIDER:
        if known in line and new in line:
            return line[max(line.index(known), line.index(new))]
    raise TableError(f"{where}: {known.simpleString()} in one batch, {new.simpleString()} in another")


def _shape(kind: DataType) -> str:
    """The type without whether it may be null within."""
    return kind.simpleString()
