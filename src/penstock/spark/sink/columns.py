"""What each column is to the sink: an option of its job, an argument, or the job. Decided at planning."""

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructType

from penstock.core.errors import OptionError
from penstock.core.payload import MAX_DEPTH, Description
from penstock.spark.options import ALL_TENANTS, SourceOptions

Types = tuple[type[DataType], ...]

_TEXT: Final[Types] = (spark.StringType, spark.CharType, spark.VarcharType)
_WHOLE: Final[Types] = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_SECONDS: Final[Types] = (
    *_WHOLE,
    spark.FloatType,
    spark.DoubleType,
    spark.DecimalType,
    spark.DayTimeIntervalType,
)
_PLAIN: Final[Types] = (
    *_TEXT,
    *_SECONDS,
    spark.BooleanType,
    spark.DateType,
    spark.TimestampType,
    spark.TimestampNTZType,
    spark.BinaryType,
    spark.NullType,
)
_WANTED_SECONDS: Final = "a number of seconds, or interval day to second"
OPTIONS: Final[Mapping[str, tuple[Types, str]]] = {
    "queue": (_TEXT, "string"),
    "tenant": (_TEXT, "string"),
    "task": (_TEXT, "string"),
    "priority": ((*_WHOLE, *_TEXT), "int or string"),
    "delay": (_SECONDS, _WANTED_SECONDS),
    "run_at": ((spark.TimestampType,), "timestamp"),
    "key": (_TEXT, "string"),
    "idempotency_key": (_TEXT, "string"),
    "id": (_TEXT, "string"),
    "max_attempts": (_WHOLE, "int"),
    "max_retries": (_WHOLE, "int"),
    "backoff": (_TEXT, "string"),
    "timeout": (_SECONDS, _WANTED_SECONDS),
    "retention": (_SECONDS, _WANTED_SECONDS),
    "key_retention": (_SECONDS, _WANTED_SECONDS),
    "result_retention": (_SECONDS, _WANTED_SECONDS),
    "headers": ((spark.MapType,), "map of strings"),
}
_PAYLOAD: Final = "payload"
_UNFIT: Final = re.compile(r'["\\\x00-\x1f]')


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The places of columns in a batch.

    Of an enqueue: `options` by their names, `payload` or else the `members` of the arguments by theirs, and
    the `keys` of keyColumns. Of other operations: `job`, and `drive` where there is one.
    """

    names: tuple[str, ...]
    options: dict[str, int]
    members: dict[str, int] = {}
    payload: int | None = None
    keys: tuple[int, ...] = ()
    job: int | None = None
    drive: int | None = None


def columns_of(schema: StructType, options: SourceOptions) -> Columns:
    """What the columns mean; OptionError names the one that is missing, unknown or of the wrong type."""
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(twice[0], Description("it twice"), "each column once")
    if ALL_TENANTS in options.tenants or len(options.tenants) != 1:
        raise OptionError("tenant", ", ".join(options.tenants), "one tenant, or a column _tenant")
    if len(options.queues) > 1:
        raise OptionError("queue", ", ".join(options.queues), "one queue, or a column _queue")
    return _of_jobs(schema, options) if options.operation == "enqueue" else _of_moves(schema, options)


def _of_jobs(schema: StructType, options: SourceOptions) -> Columns:
    found = {name: at for at, name in enumerate(schema.names)}
    said = {name[1:]: at for name, at in found.items() if name.startswith("_")}
    for name, at in said.items():
        if name not in OPTIONS:
            raise OptionError(f"_{name}", Description("an unknown option"), _near(f"_{name}"))
        kinds, wanted = OPTIONS[name]
        kind = schema[at].dataType
        _check_type(f"_{name}", kind, kinds, wanted)
        if isinstance(kind, spark.MapType):
            _check_type(f"_{name} (its keys)", kind.keyType, _TEXT, "string")
            _check_type(f"_{name} (its values)", kind.valueType, _TEXT, "string")
    _need(said, "queue", options.queues)
    _need(said, "task", options.task)
    keys = tuple(_key_column(name, found) for name in options.key_columns)
    _check_key(said, options)
    members = {name: at for name, at in sorted(found.items()) if not name.startswith("_")}
    payload = members.get(_PAYLOAD)
    if payload is not None:
        _check_alone(schema, members, options.key_columns)
        members = {}
    for name in members:
        if _UNFIT.search(name):
            raise OptionError("column", name, "a name without quotes, backslashes and control characters")
    for at in {*members.values(), *keys, *(() if payload is None else (payload,))}:
        _check_json_type(schema.names[at], schema[at].dataType, MAX_DEPTH - 1)
    return Columns(names=tuple(schema.names), options=said, members=members, payload=payload, keys=keys)


def _of_moves(schema: StructType, options: SourceOptions) -> Columns:
    found = {name: at for at, name in enumerate(schema.names)}
    if "job" in found and "id" in found:
        raise OptionError("job", Description("both job and id"), "one column with the ids of jobs")
    job = found.get("job", found.get("id"))
    if job is None:
        raise OptionError("job", Description("no such column"), "a column job or id with the ids of jobs")
    said = {
        name: at for name in ("queue", "tenant") if (at := found.get(f"_{name}", found.get(name))) is not None
    }
    drive = found.get("drive") if options.operation == "redrive" else None
    for at in (job, *said.values()):
        _check_type(schema.names[at], schema[at].dataType, _TEXT, "string")
    if drive is not None:
        _check_type("drive", schema[drive].dataType, _WHOLE, "int")
    _need(said, "queue", options.queues)
    for name, given in (("keyColumns", options.key_columns), ("task", options.task)):
        if given:
            raise OptionError(name, given, f"it with operation=enqueue, not {options.operation}")
    return Columns(names=tuple(schema.names), options=said, job=job, drive=drive)


def _need(said: Mapping[str, int], name: str, given: object) -> None:
    if name not in said and not given:
        raise OptionError(
            f"_{name}", Description("no such column"), f"a column _{name}, or the option {name}"
        )


def _check_key(said: Mapping[str, int], options: SourceOptions) -> None:
    has_key = "idempotency_key" in said or bool(options.key_columns)
    if not has_key and options.duplicates == "refuse":
        wanted = (
            "the columns that tell rows apart, or a column _idempotency_key: by it rows are known when a "
            "task is run again. With duplicates=allow they are enqueued again"
        )
        raise OptionError("keyColumns", None, wanted)


def _key_column(name: str, found: Mapping[str, int]) -> int:
    if name not in found:
        raise OptionError("keyColumns", name, f"columns of the DataFrame{_did_you_mean(name, found)}")
    return found[name]


def _check_alone(schema: StructType, members: Mapping[str, int], keys: Collection[str]) -> None:
    kinds = (*_TEXT, spark.StructType, spark.MapType)
    _check_type(_PAYLOAD, schema[_PAYLOAD].dataType, kinds, "string with JSON, struct or map")
    others = [name for name in members if name != _PAYLOAD and name not in keys]
    if others:
        wanted = (
            "no arguments beside the column payload, which is all of them; drop it, or name it in keyColumns"
        )
        raise OptionError(others[0], Description("a column"), wanted)


def _check_type(name: str, found: DataType, kinds: Types, wanted: str) -> None:
    if not isinstance(found, (*kinds, spark.NullType)):
        raise OptionError(name, Description(found.simpleString()), wanted)


def _check_json_type(path: str, found: DataType, depth: int) -> None:
    """OptionError for a type that has no form in JSON."""
    match found:
        case spark.StructType() | spark.ArrayType() | spark.MapType() if depth == 0:
            raise OptionError(path, Description(found.typeName()), f"at most {MAX_DEPTH} levels")
        case spark.StructType():
            for field in found.fields:
                _check_json_type(f"{path}.{field.name}", field.dataType, depth - 1)
        case spark.ArrayType():
            _check_json_type(f"{path}[]", found.elementType, depth - 1)
        case spark.MapType():
            _check_type(f"{path} (its keys)", found.keyType, _TEXT, "string")
            _check_json_type(f"{path}{{}}", found.valueType, depth - 1)
        case _ if not isinstance(found, _PLAIN):
            raise OptionError(path, Description(found.simpleString()), "a type with a form in JSON: cast it")


def _near(name: str) -> str:
    known = [f"_{each}" for each in OPTIONS]
    hint = _did_you_mean(name, known) or f": {', '.join(known)}"
    return f"an option that a job has{hint}. An argument of the task does not start with an underscore"


def _did_you_mean(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""
