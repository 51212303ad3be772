"""What a row of each table looks like: for Arrow, and from that for Spark. The two have to agree exactly."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.core.errors import OptionError

AT: Final = pa.timestamp("us", tz="UTC")

EVENTS: Final = pa.schema(
    [
        pa.field("tenant", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("cursor", pa.string()),
        pa.field("v", pa.int32()),
        pa.field("move", pa.string()),
        pa.field("at", AT),
        pa.field("job", pa.string()),
        pa.field("version", pa.int32()),
        pa.field("drive", pa.int32()),
        pa.field("from_state", pa.string()),
        pa.field("to_state", pa.string()),
        pa.field("task", pa.string()),
        pa.field("key", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("delivery", pa.int32()),
        pa.field("attempt", pa.int32()),
        pa.field("fence", pa.int64()),
        pa.field("worker", pa.string()),
        pa.field("deadline", AT),
        pa.field("visible_at", AT),
        pa.field("reason", pa.string()),
        pa.field("error", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("parent", pa.string()),
        pa.field("schedule", pa.string()),
        pa.field("instant", AT),
        pa.field("idempotency_key", pa.string()),
        pa.field("max_attempts", pa.int32()),
        pa.field("jobs", pa.list_(pa.string())),
        pa.field("extra", pa.string()),
        pa.field("problem", pa.string()),
    ]
)
"""One event per row. `extra` is JSON of fields that this version does not know; `problem` says why an event
could not be read, or which are missing where the move is `gap`."""

JOBS: Final = pa.schema(
    [
        pa.field("tenant", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("id", pa.string()),
        pa.field("task", pa.string()),
        pa.field("state", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("idempotency_key", pa.string()),
        pa.field("enqueued_at", AT),
        pa.field("visible_at", AT),
        pa.field("deadline", AT),
        pa.field("ended_at", AT),
        pa.field("version", pa.int32()),
        pa.field("drive", pa.int32()),
        pa.field("delivery", pa.int32()),
        pa.field("attempts", pa.int32()),
        pa.field("max_attempts", pa.int32()),
        pa.field("worker", pa.string()),
        pa.field("fence", pa.int64()),
        pa.field("cancel_requested", pa.bool_()),
        pa.field("reason", pa.string()),
        pa.field("error", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("schedule", pa.string()),
        pa.field("instant", AT),
        pa.field("parents", pa.list_(pa.string())),
        pa.field("headers", pa.string()),
        pa.field("options", pa.string()),
        pa.field("payload", pa.string()),
        pa.field("result", pa.string()),
        pa.field("progress", pa.string()),
    ]
)
"""One job per row, of `jobs` and of `dlq`.

`headers`, `options`, `payload`, `result` and `progress` are JSON.
"""

TABLES: Final = {"jobs": JOBS, "dlq": JOBS, "events": EVENTS}


def schema_of(table: str, columns: Sequence[str] = ()) -> pa.Schema:
    """The table's schema, or the part of it that is asked for, in that order."""
    whole = TABLES[table]
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        raise OptionError("columns", unknown[0], f"some of {', '.join(whole.names)}")
    return pa.schema([whole.field(name) for name in columns]) if columns else whole
