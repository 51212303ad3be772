"""`penstock outbox`: relay jobs from an outbox in another database to the store, and show its state."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import span, without_none
from penstock.cli.registration import command, command_group
from penstock.outbox.relay import OutboxRelay
from penstock.outbox.sources import open_outbox, tables_of
from penstock.stores.outbox import OutboxSource, RejectedEntry
from penstock.telemetry import logs
from penstock.worker.pool import WorkerPool

group = command_group("Relay jobs from an outbox in another database to the store.")

Source = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="URL",
        help="URL of the database with the outbox, such as postgresql://db/shop or sqlite:///shop.db",
    ),
]
SHOWN: Final = 20


@command(group, "run", fast=True)
async def run(context: CommandContext, source: Source) -> None:
    """Relay jobs to the store (--url) until stopped; creates the tables of the outbox if they are missing.

    On PostgreSQL any number may run: one relays, the others wait to take over. On SQLite run one.
    """
    logs.configure(json=context.settings.worker.log_json, level=context.settings.worker.log_level)
    outbox = open_outbox(source)
    async with context.store(may_be_new=True) as store:
        await WorkerPool([OutboxRelay(outbox, store)]).run(handle_signals=True)


@command(group, "status")
async def status(context: CommandContext, source: Source) -> None:
    """Show how many entries wait, since when, and which were rejected; the exit code is 1 if any were."""
    async with _opened(source) as outbox:
        state = await outbox.state(SHOWN)
    context.out.document(
        without_none(waiting=state.waiting, oldest_ms=state.oldest_ms, failed=state.failed)
        | {"first_failed": [_rejected_document(each) for each in state.first_failed]}
    )
    context.out.fields(
        [
            ("waiting", state.waiting),
            ("oldest", None if state.oldest_ms is None else span(state.oldest_ms)),
            ("rejected", state.failed),
        ]
    )
    if state.failed:
        rows = ((each.number, str(each.queue), each.reason) for each in state.first_failed)
        context.out.table(["number", "queue", "reason"], rows, right=frozenset({"number"}))
        raise typer.Exit(1)


@command(group, "retry")
async def retry(
    context: CommandContext,
    source: Source,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="NUMBER…", help="Numbers of rejected entries", show_default="all"),
    ] = None,
) -> None:
    """Relay rejected entries again, at their old places in the order."""
    async with _opened(source) as outbox:
        back = await outbox.retry(numbers)
    context.out.document({"retried": back})
    context.out.line(f"{back} {'entry waits' if back == 1 else 'entries wait'} again")


@command(group, "sql")
async def sql(context: CommandContext, source: Source) -> None:
    """Print the SQL that creates the tables of the outbox."""
    text = tables_of(source)
    context.out.document({"sql": text})
    for line in text.split("\n"):
        context.out.line(line)


@asynccontextmanager
async def _opened(source: str) -> AsyncIterator[OutboxSource]:
    outbox = open_outbox(source)
    await outbox.open(make=False)
    try:
        yield outbox
    finally:
        await outbox.close()


def _rejected_document(rejected: RejectedEntry) -> dict[str, object]:
    return {
        "number": rejected.number,
        "tenant": rejected.queue.tenant,
        "queue": rejected.queue.name,
        "reason": rejected.reason,
    }
