"""Every place that names the fields of a job or of an event has those of `fields.py`, and no others."""

import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

from penstock.cli.jobs.enqueue_command import enqueue as enqueue_command
from penstock.cli.jobs.job_output import job_document
from penstock.core.events import Event
from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import Claimed, Job, NewJob, Options
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.service.wire.events import EventView
from penstock.service.wire.jobs import JobCreate, JobView, job_view
from penstock.spark.lake.schemas import BRONZE
from penstock.spark.lake.schemas import JOBS as SILVER_JOBS
from penstock.spark.lake.silver.fold import EVENT_COLUMNS as FOLDED_COLUMNS
from penstock.spark.schemas import AT, EVENTS, JOBS
from penstock.spark.sink.columns import OPTIONS as SINK_OPTIONS
from penstock.stores.redis.codec.events import EVENT_FIELDS
from penstock.stores.redis.codec.jobs import RECORD_FIELDS, Extra
from penstock.stores.redis.keys import KEY_NAMES
from penstock.stores.redis.scripts import loaded_sources
from penstock.stores.rows import EVENT_COLUMNS, JOB_COLUMNS, More
from penstock.stores.scan_request import COLUMNS_IN_MORE
from penstock.tasks.options import CallOptions
from tests.architecture.fields import COLUMN, EVENT, EXTRA, JOB, MORE, NAMED, OPTIONS, RECORD, Kind

TABLE: Final = "tests/architecture/fields.py"
SQL_STORES: Final = ("sqlite", "postgres")
ENDED_WITHOUT: Final = frozenset({"token", "deadline", "lease_ms", "visible_at"})
"""Columns that a job of PostgreSQL has only while it has not ended."""


def wrong(place: str, found: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """What a place lacks, and what it has too much, in sentences that name it."""
    has, should = set(found), set(wanted)
    return [
        *(f"{place} lacks {name}, which {TABLE} has there" for name in sorted(should - has)),
        *(f"{place} has {name}, which {TABLE} does not have there" for name in sorted(has - should)),
    ]


def struct_fields(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    return struct.__struct_fields__


def test_a_difference_names_the_place_and_the_field() -> None:
    found = wrong("stores/rows.py: More", ["schedule", "extra"], ["schedule", "headers"])

    assert found == [
        f"stores/rows.py: More lacks headers, which {TABLE} has there",
        f"stores/rows.py: More has extra, which {TABLE} does not have there",
    ]


PLACES: Final[Mapping[str, tuple[Iterable[str], Iterable[str]]]] = {
    "core/job.py: Job": (struct_fields(Job), [each.name for each in JOB]),
    "core/job.py: NewJob": (struct_fields(NewJob), [*(each.name for each in JOB if each.new), "awaits"]),
    "core/job.py: Claimed": (struct_fields(Claimed), [each.name for each in JOB if each.claimed]),
    "core/events.py: Event": (struct_fields(Event), [each.name for each in EVENT]),
    "tasks/options.py: CallOptions": (
        typing.get_type_hints(CallOptions),
        [each.name for each in OPTIONS],
    ),
    "stores/rows.py: JOB_COLUMNS": (
        JOB_COLUMNS.split(", "),
        [*(each.name for each in JOB if each.sql == COLUMN), "more"],
    ),
    "stores/rows.py: More": (struct_fields(More), [each.name for each in JOB if each.sql == MORE]),
    "stores/rows.py: EVENT_COLUMNS": (EVENT_COLUMNS.split(", "), [each.name for each in EVENT if each.sql]),
    "stores/redis/codec/jobs.py: Record": (
        RECORD_FIELDS,
        [
            *(each.name for each in JOB if each.redis == RECORD),
            "place",
            "retention_ms",
            "key_held_ms",
            "extra",
        ],
    ),
    "stores/redis/codec/jobs.py: Extra": (
        struct_fields(Extra),
        [*(each.extra_name or each.name for each in JOB if each.redis == EXTRA), "left"],
    ),
    "stores/redis/codec/events.py: _PackedEvent": (EVENT_FIELDS, [each.name for each in EVENT if each.redis]),
    "stores/scan_request.py: COLUMNS_IN_MORE": (
        COLUMNS_IN_MORE,
        [each.name for each in JOB if each.sql == MORE and each.spark],
    ),
    "service/wire/jobs.py: JobView": (struct_fields(JobView), [each.http for each in JOB if each.http]),
    "service/wire/jobs.py: JobCreate": (
        struct_fields(JobCreate),
        [*(each.http for each in OPTIONS if each.http), "task", "payload"],
    ),
    "service/wire/events.py: EventView": (
        struct_fields(EventView),
        [each.name for each in EVENT if each.http],
    ),
    "cli/jobs/enqueue_command.py": (
        inspect.signature(enqueue_command).parameters,
        [
            *(each.cli for each in OPTIONS if each.cli),
            *("context", "task", "arguments", "queue", "payload", "declare"),
        ],
    ),
    "spark/schemas.py: JOBS": (JOBS.names, [*(each.spark for each in JOB if each.spark), "max_attempts"]),
    "spark/schemas.py: EVENTS": (
        EVENTS.names,
        [*(each.spark or each.name for each in EVENT), "extra", "problem"],
    ),
    "spark/sink/columns.py: OPTIONS": (
        SINK_OPTIONS,
        [*(each.sink for each in OPTIONS if each.sink), "queue", "tenant", "task"],
    ),
    "spark/lake/schemas.py: BRONZE": (
        BRONZE.schema.names,
        [*(each.spark or each.name for each in EVENT), "extra", "problem", "batch_id", "ingested_at", "day"],
    ),
    "spark/lake/silver/fold.py: EVENT_COLUMNS": (
        FOLDED_COLUMNS,
        [each.spark or each.name for each in EVENT if each.silver],
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_has_the_fields_of_the_table(place: str) -> None:
    found, wanted = PLACES[place]

    assert wrong(place, found, wanted) == []


def test_silver_has_what_events_tell_of_a_job() -> None:
    """It has more: times between moves, and which events a row was made of."""
    place = "spark/lake/schemas.py: JOBS"
    wanted = {each.silver for each in JOB if each.silver}

    assert wrong(place, wanted & set(SILVER_JOBS.schema.names), wanted) == []


def test_the_table_agrees_with_itself() -> None:
    """Fields of jobs that events tell are fields of events; an option makes one that callers bring."""
    of_events = {each.name for each in EVENT}
    brought = {each.name for each in JOB if each.new}
    hashes = {each.redis for each in JOB} - {RECORD, EXTRA, NAMED}

    assert wrong(TABLE, of_events, {each.event for each in JOB if each.event} | of_events) == []
    assert {each.field for each in OPTIONS if each.field} <= brought
    assert hashes <= set(KEY_NAMES)


# Types


def test_structs_have_the_types_of_the_table() -> None:
    python = {
        Kind.TEXT: str,
        Kind.NUMBER: int,
        Kind.LONG: int,
        Kind.TIME: int,
        Kind.FLAG: bool,
        Kind.JSON: bytes,
        Kind.STRUCT: (msgspec.Struct, dict),
        Kind.LIST: (tuple, list),
    }

    assert _mistyped("core/job.py: Job", Job, JOB, python) == []
    assert _mistyped("core/events.py: Event", Event, EVENT, python) == []


def test_the_views_of_http_have_the_types_of_the_table() -> None:
    """Times are dates there, and JSON is part of the answer."""
    views = {
        Kind.TEXT: str,
        Kind.NUMBER: int,
        Kind.LONG: int,
        Kind.TIME: datetime,
        Kind.FLAG: bool,
        Kind.JSON: msgspec.Raw,
        Kind.STRUCT: (msgspec.Struct, dict),
        Kind.LIST: (tuple, list),
    }
    shown = [each for each in JOB if each.http == each.name]

    assert _mistyped("service/wire/jobs.py: JobView", JobView, shown, views) == []
    assert (
        _mistyped("service/wire/events.py: EventView", EventView, [e for e in EVENT if e.http], views) == []
    )


def _mistyped(place: str, struct: type, fields: Iterable[Any], kinds: Mapping[Kind, Any]) -> list[str]:
    hints = typing.get_type_hints(struct)
    return [
        f"{place}: {each.name} is {hints[each.name]}, {TABLE} says {each.kind}"
        for each in fields
        if not all(issubclass(found, kinds[each.kind]) for found in _classes(hints[each.name]))
    ]


def _classes(hint: Any) -> list[type]:
    """The classes that values may be of, but for None and for what was not set."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return [found for each in typing.get_args(hint) for found in _classes(each)]
    found = typing.get_origin(hint) or hint
    return [] if found in (type(None), msgspec.UnsetType) else [found]


def test_spark_has_the_types_of_the_table() -> None:
    arrow = {
        Kind.TEXT: pa.string(),
        Kind.NUMBER: pa.int32(),
        Kind.LONG: pa.int64(),
        Kind.TIME: AT,
        Kind.FLAG: pa.bool_(),
        Kind.JSON: pa.string(),
        Kind.STRUCT: pa.string(),
        Kind.LIST: pa.list_(pa.string()),
    }
    wanted = {
        "spark/schemas.py: JOBS": (JOBS, {each.spark: each.kind for each in JOB if each.spark}),
        "spark/schemas.py: EVENTS": (EVENTS, {each.spark or each.name: each.kind for each in EVENT}),
        "spark/lake/schemas.py: JOBS": (
            SILVER_JOBS.schema,
            {each.silver: each.kind for each in JOB if each.silver == each.name},
        ),
    }

    assert [
        f"{place}: {name} is {schema.field(name).type}, {TABLE} says {kind}"
        for place, (schema, kinds) in wanted.items()
        for name, kind in kinds.items()
        if schema.field(name).type != arrow[kind]
    ] == []


# The tables of the SQL stores


def _columns(store: str, table: str) -> dict[str, str]:
    """The columns of a table as the store's migrations leave it, with their types in small letters."""
    folder = files(f"penstock.stores.{store}") / "migrations"
    found: dict[str, str] = {}
    for each in sorted(folder.iterdir(), key=lambda file: file.name):
        if not each.name.endswith(".sql"):
            continue
        text = each.read_text("utf-8")
        created = rf"CREATE TABLE (?:penstock\.)?{table} \((.*?)^\)"
        for body in re.findall(created, text, re.DOTALL | re.MULTILINE):
            found |= re.findall(r"^    ([a-z_]+) ([a-zA-Z0-9]+(?:\[\])?)", body, re.MULTILINE)
        found |= re.findall(rf"ALTER TABLE (?:penstock\.)?{table} ADD COLUMN (\w+) (\w+(?:\[\])?)", text)
    return {name: kind.lower() for name, kind in found.items()}


_TYPES: Final[Mapping[str, Mapping[Kind, frozenset[str]]]] = {
    "sqlite": {kind: frozenset({"integer"}) for kind in (Kind.NUMBER, Kind.LONG, Kind.TIME, Kind.FLAG)}
    | {kind: frozenset({"text"}) for kind in (Kind.TEXT, Kind.JSON, Kind.STRUCT, Kind.LIST)},
    "postgres": {
        Kind.TEXT: frozenset({"text"}),
        Kind.NUMBER: frozenset({"integer", "smallint"}),
        Kind.LONG: frozenset({"bigint"}),
        Kind.TIME: frozenset({"bigint"}),
        Kind.FLAG: frozenset({"boolean"}),
        Kind.JSON: frozenset({"text"}),
        Kind.STRUCT: frozenset({"text"}),
        Kind.LIST: frozenset({"text[]"}),
    },
}


@pytest.mark.parametrize("store", SQL_STORES)
def test_the_tables_have_a_column_for_each_field(store: str) -> None:
    """The table of jobs has others too, such as their order, and what is known without their JSON."""
    tables = {
        "job": {each.name: each.kind for each in JOB if each.sql == COLUMN} | {"more": Kind.STRUCT},
        "event": {each.name: each.kind for each in EVENT if each.sql},
    }

    for table, wanted in tables.items():
        place = f"stores/{store}/migrations: the table {table}"
        found = _columns(store, table)
        if store == "postgres" and table == "job":
            found = _columns(store, "ended") | found
        assert wrong(place, wanted.keys() & found.keys(), wanted) == []
        assert [
            f"{place}: {name} is {found[name]}, {TABLE} says {kind}"
            for name, kind in wanted.items()
            if found[name] not in _TYPES[store][kind]
        ] == []


def _inserted(store: str, table: str) -> list[tuple[str, set[str]]]:
    """Where rows are added to a table, and which columns they have."""
    statement = re.compile(
        rf"INSERT (?:OR IGNORE )?INTO (?:penstock\.)?{table} \((.*?)\)",
        re.DOTALL,
    )
    root = Path(str(files(f"penstock.stores.{store}")))
    return [
        (f"stores/{store}/{path.relative_to(root)}: INSERT INTO {table}", set(re.findall(r"\w+", columns)))
        for path in sorted([*root.glob("*.py"), *root.glob("sql/**/*.sql")])
        for columns in statement.findall(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize("store", SQL_STORES)
def test_every_field_of_an_event_is_written_by_some_move(store: str) -> None:
    written = set[str]().union(*(columns for _, columns in _inserted(store, "event")))
    wanted = [each.name for each in EVENT if each.sql]

    assert wrong(f"stores/{store}: INSERT INTO event", written - {"queue", "stamp"}, wanted) == []


@pytest.mark.parametrize("store", SQL_STORES)
def test_a_new_job_has_a_column_for_each_field_that_callers_bring(store: str) -> None:
    wanted = {each.name for each in JOB if each.new and each.sql == COLUMN} | {"more"}
    places = [found for found in _inserted(store, "job") if "/enqueue.sql" in found[0]]

    assert len(places) == 1
    for place, columns in places:
        assert wrong(place, wanted & columns, wanted) == []


def test_a_job_of_postgresql_that_ends_keeps_its_fields() -> None:
    """It moves to another table, but for what is of the lease and of the wait."""
    wanted = {each.name for each in JOB if each.sql == COLUMN} - ENDED_WITHOUT | {"more"}
    places = _inserted("postgres", "ended")

    assert places
    for place, columns in places:
        assert wrong(place, wanted & columns, wanted) == []


# Redis


def test_scripts_name_every_field_of_records_and_events() -> None:
    """By the names of codec/names.py. The members of `extra` travel as a whole."""
    words = set(re.findall(r"\b[A-Z][A-Z_]+\b", "\n".join(loaded_sources().values())))
    records = {name.upper() for name in RECORD_FIELDS}
    events = {f"EVENT_{each.name.upper()}" for each in EVENT if each.redis}

    assert wrong("stores/redis/lua (records)", words & records, records) == []
    assert wrong("stores/redis/lua (events)", words & events, events) == []


# What is shown


def test_a_job_is_shown_with_every_field() -> None:
    """A field that a view has, and nobody fills, would be missing here."""
    job = _full_job()
    of_http = msgspec.json.decode(msgspec.json.encode(job_view(job, payload=True, result=True)))
    of_cli = job_document(job, payload=True)

    assert wrong("service/wire/jobs.py: job_view", of_http, [each.http for each in JOB if each.http]) == []
    assert wrong("cli/jobs/job_output.py: job_document", of_cli, [each.cli for each in JOB if each.cli]) == []


def _full_job() -> Job:
    """A job with a value in every field."""
    values: dict[Kind, Any] = {
        Kind.TEXT: "a",
        Kind.NUMBER: 2,
        Kind.LONG: 2,
        Kind.TIME: 1_700_000_000_000,
        Kind.FLAG: True,
        Kind.JSON: b"1",
    }
    own: dict[str, Any] = {
        "state": State.BLOCKED,
        "options": Options(),
        "unique": Unique("k", UniqueRule.LIVE),
        "parents": (JobRef("q", "p"),),
        "child_policy": ChildPolicy.FAIL,
        "headers": {"a": "b"},
    }
    return msgspec.convert({each.name: own.get(each.name, values.get(each.kind)) for each in JOB}, Job)
