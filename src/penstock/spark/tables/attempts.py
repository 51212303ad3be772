"""Silver, one row per attempt: a claim and how its lease ended.

Rows are pieces: each batch writes what its events say, and pieces of one attempt are merged when they are
read. Merging takes the highest of what grows and what the highest version said of the rest, so it does not
matter in which batch, in which order or how often an event came.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

JOB: Final = ("tenant", "queue", "job")
_BY_CLAIM: Final = ("drive", "delivery", "attempt", "worker", "task", "key", "priority")
_BY_END: Final = ("ended_at", "outcome", "state", "reason", "error", "fingerprint")


def pieces(events: DataFrame) -> DataFrame:
    """The pieces that are in these events.

    A piece without a fence is a job that became claimable, and waits for the claim that follows: the one with
    the next version.
    """
    is_claim = F.col("move") == "claim"
    is_end = F.col("fence").isNotNull() & ~is_claim & ~F.col("to_state").eqNullSafe("active")
    of_lease = events.where(F.col("fence").isNotNull()).select(
        *JOB,
        "fence",
        *_BY_CLAIM,
        F.when(is_claim, F.col("seq")).alias("claim_seq"),
        F.when(is_claim, F.col("version")).alias("claim_version"),
        F.when(is_claim, F.col("at")).alias("claimed_at"),
        F.when(is_claim, F.col("deadline")).alias("deadline"),
        F.lit(None).cast("long").alias("ready_seq"),
        F.lit(None).cast("timestamp").alias("ready_at"),
        F.when(is_end, F.col("version")).alias("end_version"),
        F.when(is_end, F.col("at")).alias("ended_at"),
        F.when(is_end, F.col("move")).alias("outcome"),
        F.when(is_end, F.col("to_state")).alias("state"),
        *(F.when(is_end, F.col(name)).alias(name) for name in ("reason", "error", "fingerprint")),
    )
    ready = events.where((F.col("to_state") == "pending") & F.col("version").isNotNull()).select(
        *JOB,
        (F.col("version") + 1).cast("int").alias("claim_version"),
        F.col("seq").alias("ready_seq"),
        F.col("at").alias("ready_at"),
    )
    return merge(of_lease.unionByName(ready, allowMissingColumns=True))


def merge(rows: DataFrame) -> DataFrame:
    """Pieces of one attempt made one, and what became claimable put with its claim once both are there."""
    is_mark = F.col("fence").isNull()
    mark = [F.when(is_mark, F.col(name)).alias(f"_{name}") for name in ("claim_version", "ready_seq")]
    whole = (
        rows.select("*", *mark)
        .groupBy(*JOB, "fence", "_claim_version", "_ready_seq")
        .agg(
            *(F.max(name).alias(name) for name in _BY_CLAIM),
            *(F.max(name).alias(name) for name in ("claim_seq", "claim_version")),
            *(F.min(name).alias(name) for name in ("claimed_at", "deadline")),
            *_newest("ready_seq", "ready_at"),
            *_newest("end_version", *_BY_END),
        )
        .drop("_claim_version", "_ready_seq")
    )
    line = Window.partitionBy(*JOB, "claim_version").orderBy(F.coalesce("claim_seq", "ready_seq"))
    before = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    mark_here = F.when(is_mark, F.struct("ready_seq", "ready_at"))
    own = F.struct("ready_seq", "ready_at")
    found = whole.select(
        "*",
        F.when(
            ~is_mark & F.col("claim_version").isNotNull(), F.last(mark_here, ignorenulls=True).over(before)
        ).alias("_mark"),
        F.lead("fence").over(line).isNotNull().alias("_is_claimed"),
    )
    # The newer of what it has and what was found.
    ready = F.when(F.col("_mark").isNull(), own).otherwise(F.greatest(own, F.col("_mark")))
    return (
        found.where(~is_mark | F.col("claim_version").isNull() | ~F.col("_is_claimed"))
        .withColumn("_ready", ready)
        .withColumns({"ready_seq": F.col("_ready.ready_seq"), "ready_at": F.col("_ready.ready_at")})
        .drop("_mark", "_is_claimed", "_ready")
    )


def whole(rows: DataFrame) -> DataFrame:
    """The table as it is read: one row per attempt, live ones without an outcome."""
    return (
        merge(rows)
        .where(F.col("fence").isNotNull())
        .select(
            *JOB,
            "drive",
            "delivery",
            "attempt",
            "fence",
            "worker",
            "task",
            "key",
            "priority",
            "ready_at",
            "claimed_at",
            "deadline",
            "ended_at",
            "outcome",
            "state",
            "reason",
            "error",
            "fingerprint",
            _ms("ready_at", "claimed_at").alias("wait_ms"),
            _ms("claimed_at", "ended_at").alias("run_ms"),
        )
    )


def _newest(by: str, *names: str) -> list[Column]:
    return [F.max(by).alias(by), *(F.max_by(name, by).alias(name) for name in names)]


def _ms(start: str, end: str) -> Column:
    return F.unix_millis(F.col(end)) - F.unix_millis(F.col(start))
