"""`penstock outbox`: carry jobs from a database of yours to their store, and see what waits there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.output import span, without_none
from penstock.outbox.relay import OutboxRelay
from penstock.outbox.sources import open_outbox, tables_of
from penstock.stores.outgoing import Failed, OutboxSource
from penstock.telemetry import logs
from penstock.worker.pool import WorkerPool

group = typer.Typer(help="Carry jobs from an outbox to their store.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="URL",
        help="The database with the outbox: postgresql:// or sqlite:///",
        show_default=False,
    ),
]
SHOWN: Final = 20


@command(group, "run", fast=True)
async def run(desk: Desk, source: Source) -> None:
    """Carry jobs over to the store (--url) until told to stop; makes the outbox's tables if they are missing.

    Any number may run on PostgreSQL: one carries, the others stand by. On SQLite run one.
    """
    logs.configure(json=desk.settings.worker.log_json, level=desk.settings.worker.log_level)
    outbox = open_outbox(source)
    async with desk.store(may_be_new=True) as store:
        await WorkerPool([OutboxRelay(outbox, store)]).run(handle_signals=True)


@command(group, "status")
async def status(desk: Desk, source: Source) -> None:
    """Show what waits, for how long, and what was set aside; exit code 1 when there is any of the latter."""
    async with _opened(source) as outbox:
        state = await outbox.state(SHOWN)
    desk.out.document(
        without_none(waiting=state.waiting, oldest_ms=state.oldest_ms, failed=state.failed)
        | {"first_failed": [_document(each) for each in state.first_failed]}
    )
    desk.out.fields(
        [
            ("waiting", state.waiting),
            ("oldest", None if state.oldest_ms is None else span(state.oldest_ms)),
            ("set aside", state.failed),
        ]
    )
    if state.failed:
        rows = ((each.number, str(each.queue), each.reason) for each in state.first_failed)
        desk.out.table(["number", "queue", "reason"], rows, right=frozenset({"number"}))
        raise typer.Exit(1)


@command(group, "retry")
async def retry(
    desk: Desk,
    source: Source,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="NUMBER…", help="Entries that were set aside", show_default="all"),
    ] = None,
) -> None:
    """Let entries that were set aside wait again, in their old places."""
    async with _opened(source) as outbox:
        back = await outbox.retry(numbers)
    desk.out.document({"retried": back})
    desk.out.line(f"{back} {'entry waits' if back == 1 else 'entries wait'} again")


@command(group, "sql")
async def sql(desk: Desk, source: Source) -> None:
    """Print what makes the outbox's tables, for those who run it themselves."""
    text = tables_of(source)
    desk.out.document({"sql": text})
    for line in text.split("\n"):
        desk.out.line(line)


@asynccontextmanager
async def _opened(source: str) -> AsyncIterator[OutboxSource]:
    outbox = open_outbox(source)
    await outbox.open(make=False)
    try:
        yield outbox
    finally:
        await outbox.close()


def _document(failed: Failed) -> dict[str, object]:
    return {
        "number": failed.number,
        "tenant": failed.queue.tenant,
        "queue": failed.queue.name,
        "reason": failed.reason,
    }
