"""What the SQL stores have in common: statements for wanted rows, and their answers as rows of the table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import StoreFormatError
from penstock.core.flows import JobRef
from penstock.core.job import QueueRef
from penstock.spark.jobs.wanted import COLUMNS_IN_MORE, COLUMNS_OF_QUEUES, Condition, Op, Value, Wanted
from penstock.spark.schemas import JOBS

LARGE: Final = frozenset({"payload", "result", "progress", "error"})
"""Columns that may hold a lot."""
_ESCAPED: Final = frozenset({"key", "idempotency_key"})
_TEXT: Final = frozenset({"more"}) | {field.name for field in JOBS if pa.types.is_string(field.type)}
_NARROW: Final = frozenset(field.name for field in JOBS if pa.types.is_int32(field.type))

Numbers = Mapping[int, QueueRef]
"""Queues by the number that jobs name them by."""


class _More(msgspec.Struct, frozen=True):
    """What few jobs have: JSON in a column of its own."""

    parents: tuple[JobRef, ...] = ()
    schedule: str | None = None
    instant: int | None = None


_MORE: Final = msgspec.json.Decoder(_More)
_NOTHING: Final = _More()


def stored_columns(wanted: Wanted) -> list[str]:
    """The columns of the store that the wanted ones are made of."""
    found = [name for name in wanted.columns if name not in COLUMNS_OF_QUEUES | COLUMNS_IN_MORE]
    if not COLUMNS_OF_QUEUES.isdisjoint(wanted.columns):
        found.append("queue")
    if not COLUMNS_IN_MORE.isdisjoint(wanted.columns):
        # With the id, by which a job is told whose JSON cannot be read.
        found += ["more"] if "id" in found else ["more", "id"]
    return found


def is_text(column: str) -> bool:
    """True for a column of the store that holds text. There, `queue` is a number."""
    return column in _TEXT and column != "queue"


def misfit(column: str, value: object) -> str | None:
    """What is wrong with a value of a column of the store; None where nothing is."""
    if value is None:
        return None
    if is_text(column):
        return None if isinstance(value, str) else f"found {value!r:.60}, wanted text"
    bits = 32 if column in _NARROW else 64
    fits = isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1
    return None if fits else f"found {value!r:.60}, wanted a whole number of {bits} bits"


def where(conditions: Sequence[Condition], literal: Callable[[Value], str]) -> list[str]:
    """Conditions as SQL; those about queues are for whoever plans."""
    return [_sql(each, literal) for each in conditions if each.column not in COLUMNS_OF_QUEUES]


def _sql(condition: Condition, literal: Callable[[Value], str]) -> str:
    column = condition.column
    values = [_escaped(each) if column in _ESCAPED else each for each in condition.values]
    if condition.op is Op.NULL:
        return f"{column} IS NULL"
    if condition.op is Op.NOT_NULL:
        return f"{column} IS NOT NULL"
    # No store keeps NUL in text.
    said = [literal(each) for each in values if not (isinstance(each, str) and "\0" in each)]
    if condition.op is Op.IN:
        return f"{column} IN ({', '.join(said)})" if said else "1 = 0"
    return f"{column} {condition.op} {said[0]}"


def shaped(batch: pa.RecordBatch, wanted: Wanted, queues: Numbers) -> pa.RecordBatch:
    """Rows of the store as rows of the table; StoreFormatError names a job whose JSON is damaged."""
    more = _more(batch) if "more" in batch.schema.names else None
    arrays = []
    for name in wanted.columns:
        if name in COLUMNS_OF_QUEUES:
            arrays.append(_of_queues(batch, name, queues))
        elif name in COLUMNS_IN_MORE:
            arrays.append(
                pa.nulls(batch.num_rows, JOBS.field(name).type) if more is None else _of_more(more, name)
            )
        else:
            arrays.append(_column(batch.column(name), name))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([JOBS.field(name) for name in wanted.columns]))


def _column(found: pa.Array, name: str) -> pa.Array:
    kind = JOBS.field(name).type
    if pa.types.is_timestamp(kind):
        return moments(found)
    if name in _ESCAPED and pc.any(pc.match_substring(found, "\\")).as_py():
        found = pa.array(map(_restored, found.to_pylist()), pa.string())
    return found if found.type == kind else found.cast(kind)


def moments(millis: pa.Array) -> pa.Array:
    """Times out of milliseconds."""
    return pc.multiply(millis.cast(pa.int64()), 1000).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def _of_queues(batch: pa.RecordBatch, name: str, queues: Numbers) -> pa.Array:
    numbers = pa.array(list(queues), pa.int64())
    names = pa.array(
        [each.tenant if name == "tenant" else each.name for each in queues.values()], pa.string()
    )
    return names.take(pc.index_in(batch.column("queue").cast(pa.int64()), value_set=numbers))


def _more(batch: pa.RecordBatch) -> list[_More] | None:
    """What few jobs have; None where none of these has."""
    column = batch.column("more")
    if column.null_count == len(column):
        return None
    found = []
    for at, text in enumerate(column.to_pylist()):
        try:
            found.append(_NOTHING if text is None else _MORE.decode(text))
        except msgspec.DecodeError as error:
            raise StoreFormatError(f"job {batch.column('id')[at]}: column more: {error}") from None
    return found


def _of_more(more: Sequence[_More], name: str) -> pa.Array:
    if name == "parents":
        found = [list(map(str, each.parents)) or None for each in more]
        return pa.array(found, JOBS.field(name).type)
    if name == "schedule":
        return pa.array([each.schedule for each in more], pa.string())
    return moments(pa.array([each.instant for each in more], pa.int64()))


def _escaped(value: Value) -> Value:
    return value.replace("\\", "\\\\").replace("\0", "\\0") if isinstance(value, str) else value


def _restored(text: str | None) -> str | None:
    if text is None:
        return None
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\"))
