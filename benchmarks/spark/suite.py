"""The sections of the benchmark of the pipeline on Spark."""

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.cases import Section
from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.spark.auditing import auditing, since_last
from benchmarks.spark.enqueueing import enqueueing
from benchmarks.spark.following import following
from benchmarks.spark.goals import verdicts
from benchmarks.spark.heads import heads
from benchmarks.spark.meter import CORES
from benchmarks.spark.piping import piping
from benchmarks.spark.plan import FULL, QUICK
from benchmarks.spark.reading import filtering, reading
from benchmarks.suite import Prepared, Suite
from penstock.spark import java_home

DEBIAN_DRIVER: Final = Path("/usr/share/java/postgresql.jar")


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "Spark": f"PySpark {version('pyspark')}, local[{CORES}]",
        "Java": _java(),
        "Arrow": f"PyArrow {version('pyarrow')}",
        "Servers": f"{redis.version('valkey')}, {postgres.version()}",
        "JDBC driver": "none" if asked.jdbc is None else asked.jdbc.resolve().name,
    }
    yield Prepared(replace(QUICK if asked.quick else FULL, jdbc=asked.jdbc), facts)


def _java() -> str:
    done = subprocess.run(
        [java_home() / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30
    )
    return done.stderr.partition("\n")[0].replace('"', "")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jdbc",
        type=Path,
        metavar="JAR",
        default=DEBIAN_DRIVER if DEBIAN_DRIVER.exists() else None,
        help="PostgreSQL's JDBC driver, to read beside Spark's own reader; Debian's is found by itself",
    )


SUITE: Final = Suite(
    "spark",
    "Spark",
    (
        Section("enqueue", "rows to jobs on Redis", enqueueing),
        Section("jobs", "jobs of PostgreSQL to rows", reading),
        Section("filter", "one job of a hundred, on PostgreSQL", filtering),
        Section("events", "events of Redis, as a stream", following),
        Section("lake", "the log of each store into bronze and silver", piping),
        Section("heads", "how far a log goes: latestOffset", heads),
        Section("audit", "audit of a table of events", auditing),
        Section("since", "audit of what came since the last", since_last),
    ),
    _prepared,
    verdicts,
    _options,
    has_ratios=True,
)
