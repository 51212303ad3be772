"""The fold over the events of jobs, on Spark: whole jobs at a time, in columns where they are plain."""

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.core.history.life import Totals
from penstock.core.moves import Move
from penstock.core.states import ENDED, LIVE, State
from penstock.spark.audit import found, one_by_one, plain_lives
from penstock.spark.audit.columns import jobs_of
from penstock.spark.audit.found import Kind
from penstock.spark.audit.plain import plain
from penstock.spark.audit.wanted import Wanted


def judged(rows: DataFrame, wanted: Wanted) -> DataFrame:
    """What the rows of jobs say, in the shape of `found.SCHEMA`; each job's stand together in their order."""

    def judge_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return judge(batches, wanted)

    return rows.mapInArrow(judge_part, found.spark_schema())


def judge(batches: Iterator[pa.RecordBatch], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    totals, live = Totals(), Counter[State]()
    for rows in _whole_jobs(batches):
        jobs = jobs_of(rows)
        is_plain = plain(jobs)
        yield from plain_lives.follow(jobs, is_plain, wanted, totals, live)
        if not is_plain.all():
            others = rows.filter(pa.array(~is_plain[jobs.is_start.cumsum() - 1]))
            yield found.rows(one_by_one.follow(others, wanted, totals, live))
    yield found.rows(
        {"kind": Kind.FIGURE, "name": name, "number": number}
        for name, number in _figures(totals, live).items()
    )


def _figures(totals: Totals, live: Counter[State]) -> dict[str, int]:
    """The figures of a verdict, and how many jobs are left in each state."""
    moves = totals.moves
    return {
        "events": totals.events,
        "unknown": totals.unknown,
        "jobs": totals.jobs,
        "deleted": totals.deleted,
        "removed": totals.removed,
        "enqueued": moves[Move.ENQUEUE],
        "claimed": moves[Move.CLAIM],
        "retried": moves[Move.RETRY],
        "recovered": moves[Move.EXPIRE],
        "redriven": moves[Move.REDRIVE],
        **{str(state): totals.ends[state] for state in State if state in ENDED},
        **{str(state): live[state] for state in State if state in LIVE},
    }


def _whole_jobs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut where a job ends."""
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        life = batch.column("life")
        newest = life[-1]
        # The rows are in the order of `life`: those of its last value are the end.
        start = pc.index(life, newest).as_py()
        if start or (kept and kept[-1].column("life")[-1] != newest):
            yield _joined([*kept, batch.slice(0, start)])
            kept = []
        kept.append(batch.slice(start))
    if kept:
        yield _joined(kept)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches)
