"""Silver, one row per job and drive, live ones with their newest known state.

Rows are pieces, merged when they are read, as those of attempts are. An id can be used again once its job is
gone: `enqueue_seq`, the number of the event that enqueued it, tells the jobs of one id apart. A piece that
does not know it, or of a removal its drive, has those of the piece before it in the order of event numbers.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from penstock.core.states import ENDED, LIVE
from penstock.spark.tables.attempts import JOB

_REMOVALS: Final = ("delete", "prune")
_COUNTED: Final = ("retry", "bury", "expire")
_FAULTS: Final = ("complete", "fail", *_COUNTED)
"""Moves that set or clear reason and error. A cancel that is only asked for does not."""
_AT_ENQUEUE: Final = ("enqueued_at", "idempotency_key", "max_attempts", "parent", "schedule", "instant")
_BY_VERSION: Final = ("task", "key", "priority", "state", "visible_at", "changed_at")
_FAULT: Final = ("reason", "error", "fingerprint")


def pieces(events: DataFrame) -> DataFrame:
    """The pieces that are in these events."""
    move, to = F.col("move"), F.col("to_state")
    is_enqueue, is_claim = move == "enqueue", move == "claim"
    is_removal = move.isin(*_REMOVALS)
    has_ended = to.isin(*(str(state) for state in ENDED))
    has_lease = F.col("fence").isNotNull()
    is_fault = move.isin(*_FAULTS) | (has_ended & move.isin("cancel", "unblock", "snooze", "release"))
    # One call that removes many jobs is one event, with a list of them.
    named = F.when(F.col("job").isNull(), F.col("jobs")).otherwise(F.array("job"))
    rows = events.withColumn("job", F.explode(named)).select(
        *JOB,
        _if(is_enqueue, "seq").alias("enqueue_seq"),
        "drive",
        F.col("seq").alias("first_seq"),
        F.col("seq").alias("last_seq"),
        _if(~is_removal, "version").alias("version"),
        "task",
        "key",
        "priority",
        to.alias("state"),
        "visible_at",
        F.col("at").alias("changed_at"),
        _if(is_enqueue, "at").alias("enqueued_at"),
        *(F.col(name) for name in _AT_ENQUEUE[1:]),
        _if(is_enqueue | (move == "redrive"), "at").alias("began_at"),
        _if(is_claim, "at").alias("first_claim_at"),
        _if(is_claim, "at").alias("last_claim_at"),
        F.col("delivery").alias("first_delivery"),
        "delivery",
        F.when(move.isin(*_COUNTED), F.col("attempt")).otherwise(F.col("attempt") - 1).alias("attempts"),
        _if(has_lease, "version").alias("lease_version"),
        "fence",
        "worker",
        _if(has_ended, "version").alias("end_version"),
        _if(has_ended, "at").alias("ended_at"),
        _if(is_fault, "version").alias("fault_version"),
        *(F.col(name) for name in _FAULT),
        _if((move == "cancel") & (to == "active"), "at").alias("cancel_requested_at"),
        _if(is_removal, "at").alias("removed_at"),
        _if(is_removal, "move").alias("removed_by"),
    )
    return merge(rows)


def merge(rows: DataFrame) -> DataFrame:
    """Pieces of the same job and drive made one."""
    line = Window.partitionBy(*JOB).orderBy("first_seq", "last_seq")
    before = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    placed = rows.withColumns(
        {name: F.last(name, ignorenulls=True).over(before) for name in ("enqueue_seq", "drive")}
    )
    return placed.groupBy(*JOB, "enqueue_seq", "drive").agg(
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        *_newest("version", *_BY_VERSION),
        *(F.max(name).alias(name) for name in _AT_ENQUEUE),
        *(F.min(name).alias(name) for name in ("began_at", "first_claim_at")),
        F.max("last_claim_at").alias("last_claim_at"),
        F.min("first_delivery").alias("first_delivery"),
        *(F.max(name).alias(name) for name in ("delivery", "attempts")),
        *_newest("lease_version", "fence", "worker"),
        *_newest("end_version", "ended_at"),
        *_newest("fault_version", *_FAULT),
        F.min("cancel_requested_at").alias("cancel_requested_at"),
        F.max_by("removed_by", "removed_at").alias("removed_by"),
        F.max("removed_at").alias("removed_at"),
    )


def whole(rows: DataFrame) -> DataFrame:
    """The table as it is read: one row per job and drive."""
    life = Window.partitionBy(*JOB, "enqueue_seq")
    is_live = F.col("state").isin(*(str(state) for state in LIVE)) & F.col("removed_at").isNull()
    return (
        merge(rows)
        # A removal of which no other event is known.
        .where(F.col("drive").isNotNull())
        .withColumns({name: F.max(name).over(life) for name in _AT_ENQUEUE})
        .select(
            *JOB,
            "enqueue_seq",
            "drive",
            "task",
            "key",
            "priority",
            "state",
            is_live.alias("is_live"),
            "enqueued_at",
            "began_at",
            "first_claim_at",
            "last_claim_at",
            "ended_at",
            "visible_at",
            "changed_at",
            "removed_at",
            "removed_by",
            "cancel_requested_at",
            F.coalesce("attempts", F.lit(0)).alias("attempts"),
            F.coalesce(F.col("delivery") - F.col("first_delivery") + 1, F.lit(0)).alias("deliveries"),
            "max_attempts",
            "worker",
            "fence",
            "version",
            "reason",
            "error",
            "fingerprint",
            "idempotency_key",
            "parent",
            "schedule",
            "instant",
            _ms("began_at", "first_claim_at").alias("wait_ms"),
            _ms("began_at", "ended_at").alias("total_ms"),
        )
    )


def _newest(by: str, *names: str) -> list[Column]:
    return [F.max(by).alias(by), *(F.max_by(name, by).alias(name) for name in names)]


def _if(condition: Column, name: str) -> Column:
    return F.when(condition, F.col(name))


def _ms(start: str, end: str) -> Column:
    return F.unix_millis(F.col(end)) - F.unix_millis(F.col(start))
