"""What may be asked of the data source, as typed values. Spark hands over text and names in small letters."""

import difflib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from penstock.core.errors import ConfigError, OptionError
from penstock.core.job import DEFAULT_TENANT
from penstock.core.names import check_name
from penstock.core.states import State
from penstock.spark.schemas import TABLES
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.registry import StoreKind, kind_of

Role = Literal["read", "readStream", "write", "writeStream"]
READS: Final = frozenset[Role]({"read", "readStream"})
WRITES: Final = frozenset[Role]({"write", "writeStream"})
ALL_TENANTS: Final = "*"
_DIGITS: Final = 10
LONGEST_WRITE_ID: Final = 200


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one reader or writer; those of others have their defaults. Times are Unix milliseconds.

    It is pickled with the url in it, and shown without.
    """

    # Of all
    url: str | None = None
    url_env: str | None = None
    table: str = "jobs"
    tenants: tuple[str, ...] = (DEFAULT_TENANT,)
    queues: tuple[str, ...] = ()
    # Of readers
    columns: tuple[str, ...] = ()
    min_partitions: int | None = None
    # Of jobs and dlq
    states: frozenset[State] = frozenset()
    tasks: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    # Of events
    starting_offsets: str | None = None
    starting_timestamp: int | None = None
    ending_offsets: str | None = None
    max_events_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    reader_name: str | None = None
    # Of writers
    operation: Literal["enqueue", "redrive", "cancel", "delete"] = "enqueue"
    write_id: str | None = None
    key_columns: tuple[str, ...] = ()
    duplicates: Literal["refuse", "allow"] = "refuse"
    quarantine: str | None = None
    on_bad_row: Literal["quarantine", "fail"] | None = None
    task: str | None = None
    dry_run: bool = False
    key_filter: bool = False
    max_per_second: float | None = None
    chunk: int = CHUNK_JOBS
    declare: bool = False
    retry_timeout: float = 30.0
    report: str | None = None

    @property
    def store_url(self) -> str:
        """The url of the store, from the environment of this process where it is kept there."""
        if self.url is not None:
            return self.url
        found = os.environ.get(self.url_env or "")
        if not found:
            raise ConfigError(f"urlEnv: the environment variable {self.url_env} is not set in this process")
        return _url(f"urlEnv ({self.url_env})", found)

    def __repr__(self) -> str:
        given = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in msgspec.structs.fields(self)
            if each.name != "url" and getattr(self, each.name) != each.default
        )
        return f"SourceOptions({', '.join(given)})"


class _Option(msgspec.Struct, frozen=True):
    """An option: the field it sets, how its text is read, and for which roles and tables it is."""

    name: str
    field: str
    read: Callable[[str, str], Any]
    roles: frozenset[Role] = READS | WRITES
    tables: frozenset[str] = frozenset(TABLES)


def read_options(raw: Mapping[str, str], table: str | None = None, role: Role | None = None) -> SourceOptions:
    """The options of a reader or writer; OptionError names the one that is wrong, without any secret.

    `table` stands where none is given. Without a role, options of every role are taken.
    """
    values: dict[str, Any] = {}
    given = {name.lower(): text for name, text in raw.items() if name.lower() not in _SPARKS_OWN}
    table = _table("table", given.get("table", table or "jobs"))
    for name, text in given.items():
        option = _known(name)
        _refuse_misplaced(option, text, table, role)
        if option.field in values:
            raise OptionError(option.name, text, "one of it and the other of that meaning, not both")
        values[option.field] = option.read(option.name, text)
    if ("url" in values) == ("url_env" in values):
        wanted = "the url of a store, in `url` or in the environment variable that `urlEnv` names"
        raise OptionError("url", "both" if "url" in values else None, wanted)
    return SourceOptions(**{**values, "table": table})


def names() -> list[str]:
    """The name of every option."""
    return [option.name for option in _OPTIONS]


def _known(name: str) -> _Option:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name == "path":
        # What Spark makes of an argument of save or load.
        raise OptionError(
            "option", name, "none: a store is at its url; `save` and `load` are called without a path"
        )
    near = difflib.get_close_matches(name, _BY_NAME, 1, 0.5)
    hint = f"; did you mean {_BY_NAME[near[0]].name}?" if near else f": {', '.join(names())}"
    raise OptionError("option", name, f"one that the format penstock has{hint}")


def _refuse_misplaced(option: _Option, text: str, table: str, role: Role | None) -> None:
    found = None if option.field == "url" else text
    if role is not None and role not in option.roles:
        raise OptionError(option.name, found, f"it with {' or '.join(sorted(option.roles))}, not with {role}")
    if table not in option.tables:
        raise OptionError(option.name, found, f"it with {' or '.join(sorted(option.tables))}, not {table}")


# How text is read


def _url(name: str, text: str) -> str:
    if kind_of(text) is StoreKind.MEMORY:
        raise OptionError(name, "memory://", "a store that other processes reach")
    return text


def _table(name: str, text: str) -> str:
    if text.lower() not in TABLES:
        raise OptionError(name, text, f"one of {', '.join(TABLES)}")
    return text.lower()


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise OptionError(name, text, "text that is not empty")
    return text.strip()


def _write_id(name: str, text: str) -> str:
    found = _text(name, text)
    if len(found) > LONGEST_WRITE_ID:
        raise OptionError(name, found, f"at most {LONGEST_WRITE_ID} characters")
    return found


def _listed(name: str, text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(parts):
        raise OptionError(name, text, "names with commas between them")
    return parts


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(check_name(name, part) for part in _listed(name, text))


def _tenants(name: str, text: str) -> tuple[str, ...]:
    return (ALL_TENANTS,) if text.strip() == ALL_TENANTS else _names(name, text)


def _states(name: str, text: str) -> frozenset[State]:
    parts = [part.lower() for part in _listed(name, text)]
    if unknown := [part for part in parts if part not in set(State)]:
        raise OptionError(name, unknown[0], f"some of {', '.join(State)}")
    return frozenset(map(State, parts))


def _moment(name: str, text: str) -> int:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        wanted = "a time such as 2026-01-31T12:00:00Z, in UTC where it names no zone"
        raise OptionError(name, text, wanted) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _count(name: str, text: str, most: int = 2**31 - 1) -> int:
    # Python makes no number of thousands of digits.
    digits = text.strip().lstrip("0")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS and int(digits) <= most):
        raise OptionError(name, text, f"a whole number from 1 to {most}")
    return int(digits)


def _chunk(name: str, text: str) -> int:
    return _count(name, text, CHUNK_JOBS)


def _rate(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise OptionError(name, text, "a number above 0")
    return found


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise OptionError(name, text, "true or false")
    return text.strip().lower() == "true"


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.strip().lower() not in choices:
            raise OptionError(name, text, f"one of {', '.join(choices)}")
        return text.strip().lower()

    return read


_JOBS: Final = frozenset({"jobs", "dlq"})
_EVENTS: Final = frozenset({"events"})
_READ: Final = frozenset[Role]({"read"})
_STREAM: Final = frozenset[Role]({"readStream"})

_OPTIONS: Final = (
    # Of all
    _Option("url", "url", _url),
    _Option("urlEnv", "url_env", _text),
    _Option("table", "table", _table),
    _Option("tenant", "tenants", _tenants),
    _Option("tenants", "tenants", _tenants),
    _Option("queue", "queues", _names),
    _Option("queues", "queues", _names),
    # Of readers
    _Option("columns", "columns", _listed, READS),
    _Option("minPartitions", "min_partitions", _count, READS),
    # Of jobs and dlq
    _Option("states", "states", _states, _READ, frozenset({"jobs"})),
    _Option("tasks", "tasks", _names, _READ, _JOBS),
    _Option("since", "since", _moment, _READ, _JOBS),
    _Option("until", "until", _moment, _READ, _JOBS),
    # Of events
    _Option("startingOffsets", "starting_offsets", _text, READS, _EVENTS),
    _Option("startingTimestamp", "starting_timestamp", _moment, READS, _EVENTS),
    _Option("endingOffsets", "ending_offsets", _text, _READ, _EVENTS),
    _Option("maxEventsPerTrigger", "max_events_per_trigger", _count, _STREAM, _EVENTS),
    _Option("failOnDataLoss", "fail_on_data_loss", _truth, READS, _EVENTS),
    _Option("readerName", "reader_name", _text, READS, _EVENTS),
    # Of writers
    _Option("operation", "operation", _one_of("enqueue", "redrive", "cancel", "delete"), WRITES),
    _Option("writeId", "write_id", _write_id, WRITES),
    _Option("keyColumns", "key_columns", _listed, WRITES),
    _Option("duplicates", "duplicates", _one_of("refuse", "allow"), WRITES),
    _Option("quarantine", "quarantine", _text, WRITES),
    _Option("onBadRow", "on_bad_row", _one_of("quarantine", "fail"), WRITES),
    _Option("task", "task", lambda name, text: check_name(name, text.strip()), WRITES),
    _Option("dryRun", "dry_run", _truth, WRITES),
    _Option("keyFilter", "key_filter", _truth, WRITES),
    _Option("maxPerSecond", "max_per_second", _rate, WRITES),
    _Option("chunk", "chunk", _chunk, WRITES),
    _Option("declare", "declare", _truth, WRITES),
    _Option("retryTimeout", "retry_timeout", _rate, WRITES),
    _Option("report", "report", _text, WRITES),
)
_BY_NAME: Final = {option.name.lower(): option for option in _OPTIONS}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark hands on though it is its own."""
