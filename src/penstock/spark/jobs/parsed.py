"""Columns of JSON as values of a type that the query names, instead of text."""

from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import is_variant
from pyspark.sql.types import VariantVal

PARSED: Final = frozenset({"payload", "result", "progress", "options", "headers"})
"""The columns that hold JSON."""
WANTED: Final = "string, VARIANT, or a type of structs, arrays, strings, numbers and booleans"
_decode: Final = msgspec.json.Decoder().decode


def is_parsable(kind: pa.DataType) -> bool:
    """Whether values of JSON can be read as this type."""
    if pa.types.is_struct(kind):
        return is_variant(kind) or (
            kind.num_fields > 0 and all(is_parsable(kind.field(at).type) for at in range(kind.num_fields))
        )
    if pa.types.is_list(kind):
        return is_parsable(kind.value_type)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def parsed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the types of the schema. A value that does not fit its type is null."""
    columns = [
        column if column.type == field.type else _parsed(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parsed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    texts = column.to_pylist()
    if is_variant(kind):
        return pa.array([None if text is None else _variant(text) for text in texts], kind)
    values = [None if text is None else _decode(text) for text in texts]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    return value


def _variant(text: str) -> dict[str, bytes]:
    found = VariantVal.parseJson(text)
    return {"value": found.value, "metadata": found.metadata}
