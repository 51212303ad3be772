"""`penstock lake audit`: every rule that events can show, over a store or over tables of any size."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import without_none
from penstock.cli.spark_run import Master, started
from penstock.core.errors import ConfigError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    context: CommandContext,
    tables: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the tables of `penstock spark run`, to audit instead of the log of a store",
            show_default="the log of the store",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this queue, such as mail", show_default="all queues"),
    ] = None,
    trimmed: Annotated[
        bool,
        typer.Option(
            "--trimmed",
            help="With --tables: events before the first one in the tables were trimmed, which is no breach",
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="last",
            help="With --tables: audit only events after the last kept audit, and keep the state of this one",
            show_default="audit all events",
        ),
    ] = None,
    kept: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With --since: folder in which the state of audits is kept",
            show_default="the folder audit within --tables",
        ),
    ] = None,
    limits_since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Check claims after this time, such as 2026-01-31T12:00:00Z, against today's limits",
            show_default="limits are not checked",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder to write the breaches to as well, as Parquet files"),
    ] = None,
    master: Master = "local[*]",
) -> None:
    """Audit an event log on Spark; the exit code is 1 if a rule was broken.

    Without --tables the command reads the whole log of the store at --url and compares it with the jobs
    there; workers may go on. With --tables it reads the table of events in that folder and no store. With
    --since last it reads only the events after the last such audit: the counts are of all events since the
    first audit, the breaches are the new ones. A log without events is a breach. With --json every breach is
    a line, and the last line is the verdict.
    """
    if tables is not None and limits_since is not None:
        raise OptionError(
            "--limits-since", limits_since, "no --tables beside it: limits are read from a store"
        )
    if tables is None and trimmed:
        raise OptionError("--trimmed", trimmed, "--tables beside it: a store knows where its own log begins")
    limited = None if limits_since is None else _moment(limits_since)
    audits = _kept(since, kept, tables, queue, context.settings.tenant)
    _refuse_taken(out)
    url = _url(context) if tables is None else ""
    with started("penstock audit", master) as spark:
        if tables is None:
            verdict = await _of_store(context, spark, url, queue, limited)
        elif audits is not None:
            verdict = _of_new(context, spark, tables, audits, trimmed=trimmed)
        else:
            verdict = _of_tables(context, spark, tables, queue, trimmed=trimmed)
        if out is not None:
            verdict.breaches.write.mode("errorifexists").parquet(out)
        _show(context, verdict)
        is_clean = verdict.is_clean
    if not is_clean:
        raise typer.Exit(1)


def _kept(
    since: str | None, kept: str | None, tables: str | None, queue: str | None, tenant: str | None
) -> str | None:
    """The folder of audits to go on from; None where everything is to be audited."""
    if since is None:
        if kept is not None:
            raise OptionError("--kept", kept, "--since last beside it")
        return None
    if since != "last":
        raise OptionError("--since", since, "last")
    if tables is None:
        raise OptionError(
            "--since", since, "--tables beside it: the log of a store is always audited as a whole"
        )
    if queue is not None or tenant is not None:
        name, value = ("--tenant", tenant) if queue is None else ("--queue", queue)
        raise OptionError(name, value, "no --since beside it: an audit that is continued covers all queues")
    folder = f"{tables.rstrip('/')}/audit" if kept is None else kept
    if "://" in folder:
        raise OptionError("--kept", folder, "a folder on this machine")
    return folder


def _refuse_taken(out: str | None) -> None:
    """OptionError where something is at the path."""
    from penstock.spark.lake.folder import folder_at

    # What is behind an address Spark looks at itself, when it writes.
    if out is not None and folder_at(out).is_local and Path(out).exists():
        raise OptionError("--out", out, "a folder that does not exist")


def _url(context: CommandContext) -> str:
    """The store that is meant; an error before a Java is started."""
    from penstock.spark.options import read_options
    from penstock.spark.stores import refuse_missing_file

    url = context.settings.url or (None if context.app is None else context.app.url)
    if url is None:
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")
    read_options({"url": url})
    refuse_missing_file(url)
    return url


async def _of_store(
    context: CommandContext, spark: "SparkSession", url: str, queue: str | None, since: int | None
) -> "Verdict":
    from penstock.spark.audit.running import audit_store

    queues = [] if queue is None else [queue]
    # It has an event loop of its own for each look at the store.
    return await asyncio.to_thread(
        audit_store,
        spark,
        url,
        tenant=context.tenant,
        queues=queues,
        limits_since=since,
        say=context.out.note,
    )


def _of_new(
    context: CommandContext, spark: "SparkSession", folder: str, audits: str, *, trimmed: bool
) -> "Verdict":
    from penstock.spark.audit.since_last import Proofs, audit_since

    def events_after(batch: int) -> "DataFrame":
        context.out.note(f"reading the events in {folder}" + (f" after batch {batch}" if batch >= 0 else ""))
        return _events(spark, folder, batch)

    verdict, proof = audit_since(spark, events_after, Proofs(audits), is_trimmed=trimmed)
    context.out.note(f"kept as audit {proof.run} in {audits}, up to batch {proof.batch}")
    return verdict


def _events(spark: "SparkSession", folder: str, after_batch: int = -1) -> "DataFrame":
    """The table of events, those of batches after this one."""
    from penstock.spark import lake

    return lake.events(spark, folder, after_batch=after_batch)


def _of_tables(
    context: CommandContext, spark: "SparkSession", folder: str, queue: str | None, *, trimmed: bool
) -> "Verdict":
    from pyspark.sql.functions import col

    from penstock.core.job import QueueRef
    from penstock.spark.audit import audit as audit_events

    events = _events(spark, folder)
    if context.settings.tenant is not None:
        events = events.where(col("tenant") == context.tenant)
    if queue is not None:
        events = events.where(col("queue") == queue)
    context.out.note(f"reading the events in {folder}")
    starts: dict[QueueRef, int] = {}
    if trimmed:
        found = events.where("move IS NULL OR move <> 'gap'").groupBy("tenant", "queue").agg({"seq": "min"})
        starts = {QueueRef(row.tenant, row.queue): row[2] for row in found.collect() if row[2] is not None}
    return audit_events(events, starts=starts)


def _show(context: CommandContext, verdict: "Verdict") -> None:
    broken = sum(verdict.by_rule.values())
    if context.out.json:
        for row in verdict.breaches.orderBy("tenant", "queue", "seq", "job", "rule").toLocalIterator():
            context.out.document(without_none(**row.asDict()))
    context.out.document(_document(verdict))
    context.out.fields(
        (name, value)
        for name, value in _document(verdict).items()
        if name not in {"live", "by_rule", "clean", "compared"}
    )
    context.out.line(f"live  {', '.join(f'{many} {state}' for state, many in verdict.live.items())}")
    if not verdict.is_compared:
        context.out.line("not compared with the jobs of a store")
    context.out.table(
        ["rule", "broken", "promise"], ((rule, many, rule.promise) for rule, many in verdict.by_rule.items())
    )
    for breach in verdict.first(SHOWN) if not context.out.json else ():
        context.out.line(str(breach))
    if broken > SHOWN:
        context.out.line(f"… and {broken - SHOWN} more: --json or --out has all")
    context.out.line("clean" if verdict.is_clean else f"{broken} breaches")


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
