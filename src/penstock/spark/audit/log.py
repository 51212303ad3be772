"""Rules on the log itself: its numbers and its clock, queue by queue.

A log is looked at as it lies, in runs: within a run numbers follow each other, and between runs only their
edges have to be compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr, lit
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.clocks import STEP_MS
from penstock.core.history.rules import Rule
from penstock.spark.audit import found
from penstock.spark.audit.columns import NONE, Flags, Ints, numbers_of
from penstock.spark.audit.found import Kind
from penstock.spark.audit.rows import GAP
from penstock.spark.audit.wanted import Wanted

_ORDERED: Final = "NOT coalesce(cursor, '') LIKE '%-%-%'"
"""SQL: the cursor has no stamp. One is there where a log has another order than that of its numbers."""

_LOG: Final = f"""
SELECT tenant, queue, seq, unix_millis(at) AS at, job, in_order,
    CASE WHEN move = '{GAP}' THEN coalesce(problem, 'events are missing') END AS gap
FROM {{events}}
WHERE seq IS NOT NULL
"""  # noqa: S608 (constants)

_RUNS: Final = pa.schema(
    [
        pa.field("tenant", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("first_at", pa.int64()),
        pa.field("last_at", pa.int64()),
        pa.field("job", pa.string()),
        pa.field("in_order", pa.bool_()),
        pa.field("rule", pa.string()),
        pa.field("says", pa.string()),
    ]
)
"""A run, with the job of its first event; where there is a rule, a breach of that event."""

_TWICE: Final = f"""
SELECT '{Rule.SEQ_TWICE}' AS rule, tenant, queue, job, seq, 'is there twice' AS says
FROM (
    SELECT /*+ BROADCAST(spans) */ events.tenant, events.queue, events.job, events.seq,
        row_number() OVER (
            PARTITION BY events.tenant, events.queue, events.seq ORDER BY events.at, events.job
        ) AS nth
    FROM {{events}} AS events
    JOIN (
        SELECT tenant, queue, min(seq) AS first, max(number) AS last FROM {{logged}}
        WHERE kind = {int(Kind.SPAN)} GROUP BY tenant, queue
    ) AS spans
    ON spans.tenant = events.tenant AND spans.queue = events.queue
        AND events.seq BETWEEN spans.first AND spans.last
    WHERE events.move IS NULL OR events.move <> '{GAP}'
)
WHERE nth > 1
"""  # noqa: S608 (constants)


def logged(events: DataFrame, wanted: Wanted, *, in_order: bool | None) -> DataFrame:
    """Breaches of `seq-gap` and `time-back`, where numbers may be there twice, and how far logs go.

    All in the shape of `found.SCHEMA`. If `in_order` is None, cursors tell what is in order.
    """
    spark = events.sparkSession
    ordered = expr(_ORDERED) if in_order is None else lit(in_order)
    log = spark.sql(_LOG, events=events.withColumn("in_order", ordered))
    runs = log.mapInArrow(_runs, from_arrow_schema(_RUNS))

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _joined(batches, wanted)

    side_by_side = runs.repartition("tenant", "queue").sortWithinPartitions(
        "tenant", "queue", "first", "last"
    )
    return side_by_side.mapInArrow(join, found.spark_schema())


def twice(events: DataFrame, logged: DataFrame) -> DataFrame:
    """Breaches of `seq-twice`, looked for where numbers may be there twice."""
    return events.sparkSession.sql(_TWICE, events=events, logged=logged)


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        gaps = batch.filter(batch.column("gap").is_valid())
        if gaps.num_rows:
            yield _breaches(gaps, Rule.SEQ_GAP, gaps.column("gap"))
            batch = batch.filter(batch.column("gap").is_null())
        if batch.num_rows:
            yield from _runs_of(batch)


def _runs_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    log, seq = _logs(batch), numbers_of(batch.column("seq"))
    if not _is_sorted(log, seq):
        order = np.lexsort((seq, log))
        batch = batch.take(pa.array(order))
        log, seq = log[order], seq[order]
    at, in_order = numbers_of(batch.column("at")), np.asarray(batch.column("in_order"))
    index = np.arange(len(seq))
    step = np.diff(seq, prepend=seq[0])
    is_first = np.ones(len(seq), np.bool_)
    is_first[1:] = log[1:] != log[:-1]
    is_first |= np.where(in_order, step != 1, step < 1)
    # An event without a time says nothing of it: the time of the one before it stands.
    timed = np.maximum.accumulate(np.where((at != NONE) | is_first, index, 0))
    back = np.zeros(len(seq), np.int64)
    back[1:] = at[timed[:-1]] - at[1:]
    is_back = in_order & ~is_first & (at != NONE) & (back > 0) & (back < STEP_MS)
    if is_back.any():
        says = pa.array([f"{ms} ms before the event ahead of it" for ms in back[is_back].tolist()])
        yield _breaches(batch.filter(pa.array(is_back)), Rule.TIME_BACK, says)
    starts = np.flatnonzero(is_first)
    lasts = np.append(starts[1:], len(seq)) - 1
    firsts = batch.take(pa.array(starts))
    yield _rows(
        firsts,
        first=firsts.column("seq"),
        last=pa.array(seq[lasts]),
        first_at=firsts.column("at"),
        last_at=pa.array(at[timed[lasts]]),
        in_order=firsts.column("in_order"),
    )


def _logs(batch: pa.RecordBatch) -> Ints:
    """Numbers that are equal where events are of one queue."""
    tenants, queues = (batch.column(name).dictionary_encode() for name in ("tenant", "queue"))
    found: Ints = numbers_of(tenants.indices) * (len(queues.dictionary) + 1) + numbers_of(queues.indices)
    return found


def _is_sorted(log: Ints, seq: Ints) -> bool:
    is_after: Flags = (log[1:] > log[:-1]) | (log[1:] == log[:-1]) & (seq[1:] >= seq[:-1])
    return bool(is_after.all())


def _breaches(events: pa.RecordBatch, rule: Rule, says: pa.Array) -> pa.RecordBatch:
    rules = pa.array([str(rule)] * len(says))
    return _rows(events, first=events.column("seq"), rule=rules, says=says)


def _rows(events: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    for name in ("tenant", "queue", "job"):
        columns[name] = events.column(name)
    many = events.num_rows
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(many, field.type)) for field in _RUNS], schema=_RUNS
    )


def _joined(batches: Iterator[pa.RecordBatch], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Breaches between runs, which come in their order."""
    edge = _Edge(wanted)
    for batch in batches:
        yield found.rows(entry for run in batch.to_pylist() for entry in edge.follow(run))
    yield found.rows(edge.reached())


class _Edge:
    """How far the runs of one log have come."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._log: tuple[str, str] | None = None
        self._last = 0
        self._known = 0
        """The newest number that an earlier audit saw."""
        self._at: int | None = None

    def follow(self, run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What is wrong between the run and those before it."""
        if run["rule"] is not None:
            yield _entry(run, run["rule"], run["says"])
            return
        log = (run["tenant"] or "", run["queue"] or "")
        if log != self._log:
            yield from self.reached()
            self._begin(log, run["first"])
        first, at = run["first"], run["first_at"]
        if first <= self._last:
            if min(run["last"], self._last) > self._known:
                number = min(run["last"], self._last)
                yield {**_named(run), "kind": Kind.SPAN, "seq": max(first, self._known + 1), "number": number}
        elif run["in_order"]:
            if first > self._last + 1:
                yield _entry(run, str(Rule.SEQ_GAP), f"{self._last + 1} to {first - 1} are missing")
            if self._at is not None and at is not None and 0 < self._at - at < STEP_MS:
                yield _entry(run, str(Rule.TIME_BACK), f"{self._at - at} ms before the event ahead of it")
        if run["last"] > self._last:
            self._last = run["last"]
            self._at = self._at if run["last_at"] in (None, NONE) else run["last_at"]

    def reached(self) -> Iterator[dict[str, Any]]:
        """How far the log goes."""
        if self._log is not None:
            tenant, queue = self._log
            yield {"kind": Kind.EDGE, "tenant": tenant, "queue": queue, "seq": self._last, "at": self._at}

    def _begin(self, log: tuple[str, str], first: int) -> None:
        self._log = log
        known = self._wanted.edges.get(log)
        if known is None:
            # What was trimmed may be there all the same.
            self._last, self._known, self._at = min(self._wanted.starts.get(log, 1), first) - 1, 0, None
        else:
            (self._last, self._at), self._known = known, known[0]


def _entry(run: Mapping[str, Any], rule: str, says: str) -> dict[str, Any]:
    return {
        **_named(run),
        "kind": Kind.BREACH,
        "job": run["job"],
        "seq": run["first"],
        "name": rule,
        "text": says,
    }


def _named(run: Mapping[str, Any]) -> dict[str, Any]:
    return {"tenant": run["tenant"], "queue": run["queue"]}
