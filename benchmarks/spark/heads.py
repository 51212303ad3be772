"""How long a stream takes to see how far a log goes, however much stands in it."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.cases import OURS, Case
from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.spark.filling import QUEUE
from benchmarks.spark.plan import Plan
from benchmarks.spawn import Figures, run
from penstock.spark.events.stream import EventsStreamReader
from penstock.spark.options import read_options

STORES: Final = ("SQLite", "Valkey", "PostgreSQL")
_MODULE: Final = "benchmarks.spark.heads"


def heads(plan: Plan) -> Iterator[list[Case]]:
    """Every store, with a short log and a long one."""
    for events in plan.backlogs:
        yield [
            Case(
                "heads",
                "",
                OURS,
                f"{store}, {events:,} events",
                partial(_side, store, events, plan.looks),
                {"p50": "ms", "p99": "ms"},
            )
            for store in STORES
        ]


def _side(store: str, events: int, looks: int, folder: Path) -> Figures:
    with store_url(store, folder) as url:
        run("benchmarks.spark.filling", "fill", url=url, jobs=events)
        return run(_MODULE, "look", url=url, looks=looks)


@contextmanager
def store_url(store: str, folder: Path) -> Iterator[str]:
    """An empty store of that kind, for the time of the block."""
    if store == "SQLite":
        yield f"sqlite:///{folder}/jobs.db"
    elif store == "Valkey":
        with redis.running("valkey", folder) as found:
            yield found.url
    else:
        with postgres.running() as server:
            yield server.url


def look(url: str, looks: int) -> Figures:
    """`latestOffset` from the beginning of the log, as the first batch of a query asks."""
    reader = EventsStreamReader(
        read_options({"url": url, "table": "events", "queue": QUEUE}, role="readStream")
    )
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    waits: list[float] = []
    for _ in range(looks):
        began = time.perf_counter()
        reader.latestOffset(start, ReadAllAvailable())
        waits.append((time.perf_counter() - began) * 1000)
    reader.stop()
    return {"p50": statistics.median(waits), "p99": statistics.quantiles(waits, n=100)[98]}
