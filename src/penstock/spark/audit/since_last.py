"""Audits that go on where the last one ended, and the folder that remembers how far that was.

Each audit is a folder `run-N` there: `run.parquet` with its figures, `breaches.parquet`, and in `lives` what
the next one has to know of the jobs it came upon. The folder gets its name when all of it is written: an
audit that is killed leaves nothing behind that counts, and of two at once one is an error.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from penstock.spark.audit.found import Kind, spark_schema
from penstock.spark.audit.judge import examine, nothing_read, verdict_of
from penstock.spark.audit.known import joined
from penstock.spark.audit.verdict import Verdict
from penstock.spark.audit.wanted import Wanted
from penstock.spark.errors import TableError
from penstock.stores.private_files import create_private_folder

FORMAT: Final = 1
MOST_PARTS: Final = 8
"""What is known is written anew when it is in more parts than this, so that few are read."""
_STALE_S: Final = 86_400

_Name = tuple[str, str]
"""A tenant and a queue."""


class Log(msgspec.Struct, frozen=True):
    """How far the log of a queue is audited. `start` is its first number, `at` when its newest event was."""

    tenant: str
    queue: str
    last: int
    at: int | None
    start: int = 1


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit leaves for the next: everything up to and with `batch` was looked at.

    `figures` count everything since the first audit; `parts` are the runs whose `lives` are to be read.
    """

    format: int = FORMAT
    run: int = 0
    batch: int = -1
    logs: tuple[Log, ...] = ()
    figures: dict[str, int] = {}
    parts: tuple[int, ...] = ()


class Proofs:
    """The folder of audits, on this machine."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def last(self) -> Proof:
        """The newest audit; one of nothing where there is none. TableError where it cannot be read."""
        runs = sorted(self.folder.glob("run-*")) if self.folder.is_dir() else []
        if not runs:
            return Proof()
        file = runs[-1] / "run.parquet"
        try:
            (text,) = pq.read_table(file, columns=["proof"])["proof"].to_pylist()
            proof = msgspec.json.decode(text, type=Proof)
        except (OSError, ValueError, pa.ArrowException, msgspec.MsgspecError) as error:
            said = str(error).partition("\n")[0]
            raise TableError(f"{file}: cannot be read ({said}): remove {self.folder} to audit anew") from None
        if proof.format != FORMAT:
            raise TableError(f"{file}: has the format {proof.format}, this version writes {FORMAT}")
        return proof

    def known(self, spark: SparkSession, proof: Proof) -> DataFrame | None:
        """What the audits up to this one kept of jobs."""
        folders = [str(self._lives(run)) for run in proof.parts]
        if not folders:
            return None
        gone = [each for each in folders if not Path(each).is_dir()]
        if gone:
            raise TableError(f"{gone[0]} is not there: remove {self.folder} to audit anew")
        schema = spark_schema().add("run", "integer")
        return spark.read.schema(schema).parquet(*(f"file://{each}" for each in folders))

    def add(self, proof: Proof, verdict: Verdict, lives: DataFrame) -> None:
        """Keep an audit. TableError where another one came first."""
        create_private_folder(self.folder)
        self._forget_stale()
        new = self.folder.absolute() / f".new-{uuid4().hex}"
        create_private_folder(new)
        try:
            lives.write.parquet(f"file://{new}/lives")
            pq.write_table(_breaches(proof, verdict), new / "breaches.parquet")
            pq.write_table(_summary(proof, verdict), new / "run.parquet")
            new.rename(self._run(proof.run))
        except FileExistsError:
            raise TableError(f"{self.folder}: another audit came first; run it again") from None
        except OSError as error:
            if self._run(proof.run).exists():
                raise TableError(f"{self.folder}: another audit came first; run it again") from None
            raise TableError(f"{self.folder}: {error.strerror}: nothing was kept") from None
        finally:
            shutil.rmtree(new, ignore_errors=True)
        for run in range(proof.run):
            if run not in proof.parts:
                shutil.rmtree(self._lives(run), ignore_errors=True)

    def _run(self, run: int) -> Path:
        return self.folder.absolute() / f"run-{run:08}"

    def _lives(self, run: int) -> Path:
        return self._run(run) / "lives"

    def _forget_stale(self) -> None:
        """What audits left that were killed long ago."""
        for each in self.folder.glob(".new-*"):
            if time.time() - each.stat().st_mtime > _STALE_S:
                shutil.rmtree(each, ignore_errors=True)


def audit_since(
    spark: SparkSession,
    events_after: Callable[[int], DataFrame],
    proofs: Proofs,
    *,
    is_trimmed: bool = False,
) -> tuple[Verdict, Proof]:
    """Audit what came after the last audit, and keep how far that is.

    `events_after` gives the events with a `batch_id` above a number, from one version of their table. The
    figures of the verdict count everything since the first audit, and its breaches are new ones. With
    `is_trimmed` logs begin where the first event of a queue stands.
    """
    last = proofs.last()
    events = events_after(last.batch)
    newest = _newest_batch(events)
    if newest is None and last.batch >= 0 and (_newest_batch(events_after(-1)) or 0) < last.batch:
        raise TableError(
            f"{proofs.folder}: audits went up to batch {last.batch}, which the table of events does not have:"
            " it is another one. Keep its audits elsewhere, or remove these"
        )
    logs = {(log.tenant, log.queue): log for log in last.logs}
    starts = {name: log.start for name, log in logs.items() if log.start > 1}
    if is_trimmed:
        starts |= {name: first for name, first in _firsts(events).items() if name not in logs and first > 1}
    wanted = Wanted(starts, {name: (log.last, log.at) for name, log in logs.items()}, is_kept=True)
    known = proofs.known(spark, last)
    examined = examine(events, wanted, known=known)
    figures = {name: last.figures.get(name, 0) + number for name, number in examined.figures.items()}
    parts = [*examined.parts, *([] if figures["events"] else [nothing_read(spark)])]
    verdict = verdict_of(replace(examined, figures=figures, parts=parts))
    run = last.run + 1
    kept = f"kind IN ({int(Kind.LIFE)}, {int(Kind.INSTANT)})"
    lives, runs = examined.found.where(kept).selectExpr("*", f"{run} AS run"), (*last.parts, run)
    if known is not None and len(runs) > MOST_PARTS:
        lives, runs = joined(known.unionByName(lives)).withColumn("run", lit(run)), (run,)
    proof = Proof(
        run=run,
        batch=last.batch if newest is None else newest,
        logs=_reached(examined.logged, logs, starts),
        figures=figures,
        parts=runs,
    )
    proofs.add(proof, verdict, lives)
    return verdict, proof


def _newest_batch(events: DataFrame) -> int | None:
    found: int | None = events.agg({"batch_id": "max"}).collect()[0][0]
    return found


def _firsts(events: DataFrame) -> dict[_Name, int]:
    """The lowest number of each queue."""
    found = events.where("move IS NULL OR move <> 'gap'").groupBy("tenant", "queue").agg({"seq": "min"})
    return {(row.tenant or "", row.queue or ""): row[2] for row in found.collect() if row[2] is not None}


def _reached(logged: DataFrame, before: Mapping[_Name, Log], starts: Mapping[_Name, int]) -> tuple[Log, ...]:
    """How far logs go now; those without new events go as far as they did."""
    rows = logged.where(f"kind = {int(Kind.EDGE)}").select("tenant", "queue", "seq", "at").collect()
    now = {
        (row.tenant, row.queue): Log(
            row.tenant, row.queue, row.seq, row["at"], starts.get((row.tenant, row.queue), 1)
        )
        for row in rows
    }
    return tuple(log for _, log in sorted({**before, **now}.items()))


def _breaches(proof: Proof, verdict: Verdict) -> pa.Table:
    """The breaches as a table, with the audit that found them."""
    found = verdict.breaches.toArrow()
    return found.add_column(0, "run", pa.array([proof.run] * found.num_rows, pa.int32()))


def _summary(proof: Proof, verdict: Verdict) -> pa.Table:
    """One row: the figures, and what the next audit has to know."""
    row = {
        "run": proof.run,
        "audited_at": datetime.now(UTC),
        "batch_id": proof.batch,
        "is_clean": verdict.is_clean,
        "breaches": sum(verdict.by_rule.values()),
        **proof.figures,
        "proof": msgspec.json.encode(proof).decode(),
    }
    return pa.Table.from_pylist([row])
