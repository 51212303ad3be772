"""`penstock spark audit`: every rule that events can show, over a store or over tables of any size."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.desk import Desk
from penstock.cli.output import without_none
from penstock.cli.spark_run import Master, started
from penstock.core.errors import ConfigError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.audit import Verdict

FIGURES: Final = (
    "events",
    "unknown",
    "jobs",
    "enqueued",
    "completed",
    "failed",
    "dead",
    "cancelled",
    "deleted",
    "removed",
    "claimed",
    "retried",
    "recovered",
    "redriven",
    "lost",
)
SHOWN: Final = 20
"""Breaches that people are shown; programs get all."""


async def audit(
    desk: Desk,
    tables: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="The tables of `penstock spark run`, instead of a store's own log"
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue")] = None,
    trimmed: Annotated[
        bool,
        typer.Option("--trimmed", help="With --tables: the tables begin where the log began then"),
    ] = False,
    limits_since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Hold claims after this time to the limits that are declared now"),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the breaches there too, as Parquet files")
    ] = None,
    master: Master = "local[*]",
) -> None:
    """Audit an event log on Spark; the exit code is 1 if a promise was broken.

    The log of the store at --url is read whole and held against its jobs, also while workers are at it. With
    --tables the log is the table of events in that folder, and no store is looked at. A log without any event
    is a breach. With --json every breach is a line, and the last line is the verdict.
    """
    if tables is not None and limits_since is not None:
        raise OptionError("--limits-since", limits_since, "it without --tables: limits come from the store")
    if tables is None and trimmed:
        raise OptionError("--trimmed", trimmed, "it with --tables: a store says where its log begins")
    since = None if limits_since is None else _moment(limits_since)
    _refuse_taken(out)
    url = _url(desk) if tables is None else ""
    with started("penstock audit", master) as spark:
        _refuse_taken(out, spark)
        if tables is None:
            verdict = await _of_store(desk, spark, url, queue, since)
        else:
            verdict = _of_tables(desk, spark, tables, queue, trimmed=trimmed)
        if out is not None:
            verdict.breaches.write.mode("errorifexists").parquet(out)
        _show(desk, verdict)
        is_clean = verdict.is_clean
    if not is_clean:
        raise typer.Exit(1)


def _refuse_taken(out: str | None, spark: "SparkSession | None" = None) -> None:
    """OptionError where something is at the path; an address is looked at once there is a session."""
    from penstock.spark.tables.files import files_at, is_address

    if out is None:
        return
    if is_address(out):
        is_taken = spark is not None and bool(files_at(out, spark).list(""))
    else:
        is_taken = Path(out).exists()
    if is_taken:
        raise OptionError("--out", out, "a folder that is not there yet")


def _url(desk: Desk) -> str:
    """The store that is meant; an error before a Java is started."""
    from penstock.spark.options import read_options
    from penstock.spark.stores import refuse_missing_file

    url = desk.settings.url or (None if desk.app is None else desk.app.url)
    if url is None:
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")
    read_options({"url": url})
    refuse_missing_file(url)
    return url


async def _of_store(
    desk: Desk, spark: "SparkSession", url: str, queue: str | None, since: int | None
) -> "Verdict":
    from penstock.spark.audit.running import audit_store

    queues = [] if queue is None else [queue]
    # It has an event loop of its own for each look at the store.
    return await asyncio.to_thread(
        audit_store, spark, url, tenant=desk.tenant, queues=queues, limits_since=since, say=desk.out.note
    )


def _of_tables(
    desk: Desk, spark: "SparkSession", folder: str, queue: str | None, *, trimmed: bool
) -> "Verdict":
    from pyspark.sql.functions import col

    from penstock.core.job import QueueRef
    from penstock.spark import tables
    from penstock.spark.audit import audit as audit_events

    events = tables.read(spark, folder, "events")
    if desk.settings.tenant is not None:
        events = events.where(col("tenant") == desk.tenant)
    if queue is not None:
        events = events.where(col("queue") == queue)
    desk.out.note(f"reading the events in {folder}")
    starts: dict[QueueRef, int] = {}
    if trimmed:
        found = events.where("move IS NULL OR move <> 'gap'").groupBy("tenant", "queue").agg({"seq": "min"})
        starts = {QueueRef(row.tenant, row.queue): row[2] for row in found.collect() if row[2] is not None}
    return audit_events(events, starts=starts)


def _show(desk: Desk, verdict: "Verdict") -> None:
    broken = sum(verdict.by_rule.values())
    if desk.out.json:
        for row in verdict.breaches.orderBy("tenant", "queue", "seq", "job", "rule").toLocalIterator():
            desk.out.document(without_none(**row.asDict()))
    desk.out.document(_document(verdict))
    desk.out.fields(
        (name, value)
        for name, value in _document(verdict).items()
        if name not in {"live", "by_rule", "clean", "compared"}
    )
    desk.out.line(f"live  {', '.join(f'{many} {state}' for state, many in verdict.live.items())}")
    if not verdict.is_compared:
        desk.out.line("not compared with the jobs of a store")
    desk.out.table(
        ["rule", "broken", "promise"], ((rule, many, rule.promise) for rule, many in verdict.by_rule.items())
    )
    for breach in verdict.first(SHOWN) if not desk.out.json else ():
        desk.out.line(str(breach))
    if broken > SHOWN:
        desk.out.line(f"… and {broken - SHOWN} more: --json or --out has all")
    desk.out.line("clean" if verdict.is_clean else f"{broken} breaches")


def _document(verdict: "Verdict") -> dict[str, Any]:
    figures = {name: getattr(verdict, name) for name in FIGURES}
    return {
        "clean": verdict.is_clean,
        **figures,
        "live": verdict.live,
        "compared": verdict.is_compared,
        "by_rule": verdict.by_rule,
    }


def _moment(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError("--limits-since", text, "a time such as 2026-01-31T12:00:00Z") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
