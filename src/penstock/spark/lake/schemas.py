"""The tables of a lake: their columns, each with a sentence, and what they are partitioned by."""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from penstock.core.errors import OptionError
from penstock.spark.schemas import AT, EVENTS

_TEXT: Final = pa.string()
_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_DAY: Final = pa.date32()

CLOSED_DAY: Final = "closed_day"
BUCKET: Final = "bucket"
DAY: Final = "day"


class TableShape(msgspec.Struct, frozen=True):
    """One table: its name, where it lies below the folder of the lake, and its columns."""

    name: str
    path: str
    says: str
    schema: pa.Schema
    partitions: tuple[str, ...]

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are in its files: values of partitions are in the log alone."""
        return pa.schema(
            [field.remove_metadata() for field in self.schema if field.name not in self.partitions]
        )


def _schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, metadata={"comment": says}) for name, kind, says in columns])


_CLOSING: Final = (
    (CLOSED_DAY, _DAY, "The day in UTC on which the row was closed; null while it may still change"),
    (BUCKET, _TEXT, "Which part of the rows that may still change this one lies in; null once it is closed"),
)

_EVENT_SAYS: Final = {
    "tenant": "Who the queue belongs to",
    "queue": "The queue",
    "seq": "The number of the event in its queue",
    "cursor": "Where reading goes on after this event",
    "v": "The version of the event record",
    "move": "The transition; `gap` stands for events that were trimmed before they were read",
    "at": "When the move was made, by the clock of the store",
    "job": "The id of the job; null of moves that remove many",
    "version": "The number of the transition in the life of the job",
    "drive": "1, and one more with each redrive",
    "from_state": "The state before the move",
    "to_state": "The state after the move",
    "task": "The task",
    "key": "The concurrency key",
    "priority": "The priority",
    "delivery": "The job's how-manieth claim",
    "attempt": "The drive's how-manieth attempt",
    "fence": "The fence of the lease that the move was made under",
    "worker": "Who held the lease",
    "deadline": "Of claims: when the lease ends unless it is renewed",
    "visible_at": "Of delayed jobs: when they become claimable",
    "reason": "Why it ended or is tried again",
    "error": "The first line of the error",
    "fingerprint": "The same for errors that differ only in values",
    "parent": "The job that waits for this one",
    "schedule": "The schedule that made the job",
    "instant": "The instant of the schedule",
    "idempotency_key": "Of enqueues: the idempotency key",
    "max_attempts": "Of enqueues: how many attempts a drive has",
    "jobs": "The ids of the jobs that one move removed",
    "extra": "JSON of fields that this version does not know, and of values that do not fit their column",
    "problem": "Why the event could not be read, or which events are missing; null of sound ones",
}

BRONZE: Final = TableShape(
    "events",
    "bronze/events",
    "Every event of the log as it came",
    pa.schema(
        [
            *(field.with_metadata({"comment": _EVENT_SAYS[field.name]}) for field in EVENTS),
            *_schema(
                ("batch_id", _LONG, "The batch that brought the event"),
                ("ingested_at", AT, "When it was brought, by the clock of the driver"),
                (DAY, _DAY, "The day of `at` in UTC; null of events that could not be read"),
            ),
        ]
    ),
    (DAY,),
)

ATTEMPTS: Final = TableShape(
    "attempts",
    "silver/attempts",
    "One row per lease: a claim, and how it ended",
    _schema(
        ("tenant", _TEXT, "Who the queue belongs to"),
        ("queue", _TEXT, "The queue"),
        ("job", _TEXT, "The id of the job"),
        ("drive", _INT, "1, and one more with each redrive"),
        ("delivery", _INT, "The job's how-manieth claim"),
        ("attempt", _INT, "The drive's how-manieth attempt"),
        ("fence", _LONG, "A number that is higher with each lease"),
        ("worker", _TEXT, "Who held the lease"),
        ("task", _TEXT, "The task"),
        ("key", _TEXT, "The concurrency key"),
        ("priority", _INT, "The priority"),
        ("ready_at", AT, "When the job became claimable"),
        ("claimed_at", AT, "When it was claimed"),
        ("deadline", AT, "When the lease was to end, as it was made"),
        ("ended_at", AT, "When the attempt ended; null while the lease is held"),
        ("outcome", _TEXT, "The move that ended it; null while the lease is held"),
        ("state", _TEXT, "The state of the job that the outcome led to"),
        ("reason", _TEXT, "Why it ended"),
        ("error", _TEXT, "The first line of the error"),
        ("fingerprint", _TEXT, "The same for errors that differ only in values"),
        ("wait_ms", _LONG, "Milliseconds from ready_at to claimed_at"),
        ("run_ms", _LONG, "Milliseconds from claimed_at to ended_at"),
        *_CLOSING,
    ),
    (CLOSED_DAY, BUCKET),
)

JOBS: Final = TableShape(
    "jobs",
    "silver/jobs",
    "One row per job and drive, those that live with their newest state",
    _schema(
        ("tenant", _TEXT, "Who the queue belongs to"),
        ("queue", _TEXT, "The queue"),
        ("job", _TEXT, "The id of the job"),
        ("enqueue_seq", _LONG, "The number of the event that enqueued it"),
        ("drive", _INT, "1, and one more with each redrive"),
        ("task", _TEXT, "The task"),
        ("key", _TEXT, "The concurrency key"),
        ("priority", _INT, "The priority"),
        ("state", _TEXT, "The newest state of the drive"),
        ("is_live", pa.bool_(), "Neither ended nor removed"),
        ("enqueued_at", AT, "When the job was enqueued"),
        ("began_at", AT, "When the drive began: enqueued, or redriven"),
        ("ready_at", AT, "When the job became claimable for the last time"),
        ("first_claim_at", AT, "The first claim of the drive"),
        ("last_claim_at", AT, "The last claim of the drive"),
        ("ended_at", AT, "When the drive ended"),
        ("visible_at", AT, "Of delayed jobs: when they become claimable"),
        ("changed_at", AT, "When the newest move of the drive was made"),
        ("removed_at", AT, "When the job was removed, unless the drive had completed"),
        ("removed_by", _TEXT, "delete or prune"),
        ("cancel_requested_at", AT, "When a running job was asked to stop"),
        ("attempts", _INT, "Attempts used up in this drive"),
        ("deliveries", _INT, "Claims in this drive"),
        ("max_attempts", _INT, "How many attempts a drive has"),
        ("worker", _TEXT, "Who holds the job, or held it last"),
        ("fence", _LONG, "The fence of the last lease"),
        ("version", _INT, "The newest version of the drive"),
        ("last_seq", _LONG, "The number of the newest event of the drive"),
        ("reason", _TEXT, "Why it ended or is tried again"),
        ("error", _TEXT, "The first line of the last error"),
        ("fingerprint", _TEXT, "The same for errors that differ only in values"),
        ("idempotency_key", _TEXT, "The idempotency key"),
        ("parent", _TEXT, "The job that waits for it"),
        ("schedule", _TEXT, "The schedule that made it"),
        ("instant", AT, "The instant of the schedule"),
        ("wait_ms", _LONG, "Milliseconds from began_at to first_claim_at"),
        ("total_ms", _LONG, "Milliseconds from began_at to ended_at"),
        *_CLOSING,
    ),
    (CLOSED_DAY, BUCKET),
)

SHAPES: Final = {shape.name: shape for shape in (BRONZE, ATTEMPTS, JOBS)}
NAMES: Final = tuple(SHAPES)


def shape_of(name: str) -> TableShape:
    """The table of that name, with or without `bronze.` or `silver.` before it; OptionError for others."""
    for shape in SHAPES.values():
        if name in (shape.name, shape.path.replace("/", ".")):
            return shape
    raise OptionError("table", name, f"one of {', '.join(NAMES)}")


def shapes_of(names: Sequence[str]) -> list[TableShape]:
    """Those that were named, or all."""
    return [shape_of(name) for name in names] or list(SHAPES.values())
