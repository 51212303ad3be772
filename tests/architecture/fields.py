"""Each field of a job and of an event, and where it stands: what `test_fields.py` holds every place to.

A new field begins with a row here. The test then fails for each place that lacks it, and names the place.
"""

from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """What a value is."""

    TEXT = "text"
    NUMBER = "a whole number of 32 bits"
    LONG = "a whole number of 64 bits"
    TIME = "a time in Unix milliseconds"
    FLAG = "true or false"
    JSON = "bytes of JSON"
    STRUCT = "a struct or a mapping"
    LIST = "a list"


COLUMN: Final = "column"
"""A column of the table `job`."""
MORE: Final = "more"
"""A member of the column `more`, which few jobs have."""
RECORD: Final = "record"
"""A value of Redis's packed record."""
EXTRA: Final = "extra"
"""A member of the record's `extra`, which few jobs have."""
NAMED: Final = "named"
"""Part of the row or the key by which the job is found."""


class JobField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a job. A place that lacks it is empty here; others have the name that it has there."""

    name: str
    kind: Kind
    sql: str = COLUMN
    redis: str = RECORD
    """RECORD, EXTRA, NAMED, or the hash beside the records that it stands in."""
    extra_name: str = ""
    """Its name in `extra`, where that is another."""
    new: bool = False
    """Whether callers bring it, on NewJob."""
    claimed: bool = False
    """Whether workers get it, on Claimed."""
    event: str = ""
    http: str = ""
    cli: str = ""
    spark: str = ""
    """In the tables `jobs` and `dlq`, which are read of a store."""
    silver: str = ""
    """In the table `jobs` of the lake, which is made of events: what no event tells is not there."""


class EventField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of an event."""

    name: str
    kind: Kind
    sql: bool = True
    """Whether it is a column of the table `event`; the others follow from where the event stands."""
    redis: bool = True
    """Whether scripts write it with each event; the others follow from its place in the log."""
    http: bool = True
    spark: str = ""
    """Its column in `events`, where that has another name."""
    silver: bool = True
    """Whether the tables of silver are made of it."""


class OptionField(msgspec.Struct, frozen=True, kw_only=True):
    """One option of an enqueue, and the field of the job that comes of it."""

    name: str
    field: str = ""
    http: str = ""
    cli: str = ""
    sink: str = ""
    """The column of rows that become jobs, without its underscore."""


def _job(name: str, kind: Kind, shown: str = "http cli spark silver", **more: str | bool) -> JobField:
    """A row; `shown` names the places that have the field under its own name."""
    places = dict.fromkeys(shown.split(), name)
    return msgspec.convert({"name": name, "kind": kind, **places, **more}, JobField)


def _option(name: str, field: str = "", shown: str = "http cli sink", **more: str) -> OptionField:
    return OptionField(name=name, field=field, **(dict.fromkeys(shown.split(), name) | more))


_T, _N, _L, _AT, _F = Kind.TEXT, Kind.NUMBER, Kind.LONG, Kind.TIME, Kind.FLAG

JOB: Final = (
    _job("tenant", _T, "cli spark silver", sql=NAMED, redis=NAMED, event="tenant"),
    _job("queue", _T, sql=NAMED, redis=NAMED, event="queue"),
    _job("id", _T, "http cli spark", redis=NAMED, new=True, claimed=True, event="job", silver="job"),
    _job("nonce", _T, "", new=True),
    _job("task", _T, new=True, claimed=True, event="task"),
    _job("state", _T, event="target"),
    _job("payload", Kind.JSON, "http cli spark", redis="payloads", new=True, claimed=True),
    _job("priority", _N, new=True, claimed=True, event="priority"),
    _job(
        "options",
        Kind.STRUCT,
        "spark",
        new=True,
        claimed=True,
        event="max_attempts",
        http="max_attempts",
        cli="max_attempts",
        silver="max_attempts",
    ),
    _job("enqueued_at", _AT, claimed=True),
    _job("version", _N, event="version"),
    _job("drive", _N, claimed=True, event="drive"),
    _job("delivery", _N, "http cli spark", claimed=True, event="delivery", silver="deliveries"),
    _job("attempts", _N, claimed=True, event="attempt"),
    _job("visible_at", _AT, event="visible_at"),
    _job("idempotency_key", _T, new=True, event="idempotency_key"),
    _job("key", _T, new=True, claimed=True, event="key"),
    _job("token", _T, "", claimed=True),
    _job("fence", _L, "cli spark silver", claimed=True, event="fence"),
    _job("deadline", _AT, "spark", claimed=True, event="deadline", http="lease_until", cli="lease_until"),
    _job("lease_ms", _L, ""),
    _job("worker", _T, event="worker"),
    _job("cancel_requested", _F, "http cli spark", claimed=True, silver="cancel_requested_at"),
    _job("last_delay_ms", _L, "", claimed=True),
    _job("reason", _T, event="reason"),
    _job("error", _T, event="error"),
    _job("fingerprint", _T, event="fingerprint"),
    _job("result", Kind.JSON, "http cli spark", redis="results"),
    _job("progress", Kind.JSON, "http cli spark", redis="progress"),
    _job("progress_at", _AT, ""),
    _job("ended_at", _AT),
    _job("settled", _T, ""),
    _job("delay_ms", _L, "", sql=MORE, redis=EXTRA, new=True),
    _job("run_at", _AT, "", sql=MORE, redis=EXTRA, new=True),
    _job("unique", Kind.STRUCT, "http cli", sql=MORE, redis=EXTRA, new=True),
    _job(
        "parents",
        Kind.LIST,
        "http cli spark",
        sql=MORE,
        redis=EXTRA,
        new=True,
        claimed=True,
        event="parent",
        silver="parent",
    ),
    _job("child_policy", _T, "http cli", sql=MORE, redis=EXTRA, extra_name="policy", new=True),
    _job("schedule", _T, sql=MORE, redis=EXTRA, new=True, event="schedule"),
    _job("instant", _AT, sql=MORE, redis=EXTRA, new=True, event="instant"),
    _job("unhandled_since", _AT, "", sql=MORE, redis=EXTRA, claimed=True),
    _job("headers", Kind.STRUCT, "http cli spark", sql=MORE, redis=EXTRA, new=True, claimed=True),
)

EVENT: Final = (
    EventField(name="v", kind=_N, sql=False, http=False, silver=False),
    EventField(name="tenant", kind=_T, sql=False, redis=False, http=False),
    EventField(name="queue", kind=_T, sql=False, redis=False),
    EventField(name="seq", kind=_L, redis=False),
    EventField(name="move", kind=_T),
    EventField(name="at", kind=_AT),
    EventField(name="job", kind=_T),
    EventField(name="version", kind=_N),
    EventField(name="drive", kind=_N),
    EventField(name="source", kind=_T, spark="from_state", silver=False),
    EventField(name="target", kind=_T, spark="to_state"),
    EventField(name="task", kind=_T),
    EventField(name="key", kind=_T),
    EventField(name="priority", kind=_N),
    EventField(name="delivery", kind=_N),
    EventField(name="attempt", kind=_N),
    EventField(name="fence", kind=_L),
    EventField(name="worker", kind=_T),
    EventField(name="deadline", kind=_AT),
    EventField(name="visible_at", kind=_AT),
    EventField(name="reason", kind=_T),
    EventField(name="error", kind=_T),
    EventField(name="fingerprint", kind=_T),
    EventField(name="parent", kind=_T),
    EventField(name="schedule", kind=_T),
    EventField(name="instant", kind=_AT),
    EventField(name="idempotency_key", kind=_T),
    EventField(name="max_attempts", kind=_N),
    EventField(name="jobs", kind=Kind.LIST, silver=False),
    EventField(name="cursor", kind=_T, sql=False, redis=False, silver=False),
)

OPTIONS: Final = (
    _option("priority", "priority"),
    _option("delay", "delay_ms"),
    _option("run_at", "run_at"),
    _option("idempotency_key", "idempotency_key"),
    _option("strict", "", "http cli"),
    _option("key", "key"),
    _option("id", "id"),
    _option("max_attempts", "options"),
    _option("max_retries", "options", "sink"),
    _option("backoff", "options"),
    _option("timeout", "options"),
    _option("retention", "options"),
    _option("key_retention", "options"),
    _option("result_retention", "options"),
    _option("unique", "unique", "http cli"),
    _option("throttle", "unique", "http cli"),
    _option("debounce", "unique", "http cli"),
    _option("unique_key", "unique", "http cli"),
    _option("headers", "headers", "http sink", cli="header"),
)
