"""One step of silver: new events and the open rows of both tables become open rows and closed ones."""

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.lake.silver.attempts import fold_attempts
from penstock.spark.lake.silver.jobs import Folded, fold_jobs
from penstock.spark.lake.silver.lives import Lives, keys_of

GAP: Final = "gap"
"""The move of a row that stands for events which were trimmed before they were read."""
EVENT_COLUMNS: Final = (
    "tenant",
    "queue",
    "seq",
    "move",
    "at",
    "job",
    "version",
    "drive",
    "to_state",
    "task",
    "key",
    "priority",
    "delivery",
    "attempt",
    "fence",
    "worker",
    "deadline",
    "visible_at",
    "reason",
    "error",
    "fingerprint",
    "parent",
    "schedule",
    "instant",
    "idempotency_key",
    "max_attempts",
)
"""What silver needs of an event."""


class Silver(msgspec.Struct, frozen=True):
    """What a step leaves of both tables."""

    attempts: Folded
    jobs: Folded


def fold(events: pa.Table, attempts: pa.Table, jobs: pa.Table) -> Silver:
    """Merge events into the open rows. Their order does not matter, nor whether some came before."""
    key, attempt_key, job_key = keys_of(events, attempts, jobs)
    lives = Lives(events, jobs, key, job_key)
    return Silver(fold_attempts(lives, attempts, attempt_key), fold_jobs(lives))


def readable(events: pa.Table) -> pa.Table:
    """The events that say something of a job, one row for each job: neither gaps nor what cannot be read.

    One call that removes many jobs is one event, with a list of them.
    """
    is_said = pc.and_(pc.is_null(events["problem"]), pc.not_equal(events["move"], GAP).fill_null(True))
    events = events.filter(is_said)
    is_bulk = pc.and_(pc.is_null(events["job"]), pc.is_valid(events["jobs"]))
    names = list(EVENT_COLUMNS)
    single = events.filter(pc.is_valid(events["job"])).select(names)
    bulk = events.filter(is_bulk).combine_chunks()
    if not bulk.num_rows:
        return single
    lists = bulk["jobs"].combine_chunks()
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    exploded = bulk.select(names).take(pc.list_parent_indices(lists))
    exploded = exploded.set_column(names.index("job"), "job", pc.list_flatten(lists))
    return pa.concat_tables([single, exploded])
