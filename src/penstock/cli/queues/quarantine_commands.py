"""`penstock quarantine`: list, show and delete damaged records that the store has put aside."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import utc, without_none
from penstock.cli.registration import command, command_group
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.stores.values import QuarantinedEntry

group = command_group("List, show and delete damaged records that the store has put aside.")

PAGE: Final = 500

Name = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue, such as mail", show_default=False)
]


@command(group, "list")
async def list_entries(
    context: CommandContext,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this queue, such as mail", show_default="all queues"),
    ] = None,
) -> None:
    """List the damaged records, each with the fault that was found."""
    async with context.store() as store:
        refs = [info.queue for info in await context.queues(store, queue)]
        found = [(ref.name, entry) for ref in refs async for entry in entries_of(store, ref)]
        now = await store.clock.now()
    context.out.documents(_entry_document(name, entry) for name, entry in found)
    context.out.table(
        ["queue", "id", "quarantined", "fault"],
        ((name, entry.id, context.out.time(entry.at, now), entry.what) for name, entry in found),
        drop=["quarantined"],
    )


@command(group, "show")
async def show(
    context: CommandContext,
    queue: Name,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the entry, as quarantine list prints it")],  # noqa: A002
    payload: Annotated[bool, typer.Option("--payload", help="Print the payload too")] = False,
) -> None:
    """Show an entry with what is left of its record."""
    async with context.store() as store:
        info = await context.queue(store, queue)
        async for entry in entries_of(store, info.queue):
            if entry.id == id:
                break
        else:
            raise OptionError("ID", id, f"an id that `penstock quarantine list --queue {queue}` names")
    context.out.document(_entry_document(queue, entry, payload=payload))
    context.out.fields(_entry_document(queue, entry, payload=payload).items())


@command(group, "delete")
async def delete(
    context: CommandContext,
    queue: Name,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of the entries to delete")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all entries of the queue")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")] = False,
) -> None:
    """Delete entries for good; the event log records each job among them as deleted."""
    if bool(ids) == everything:
        raise OptionError("ID", ids, "ids of entries, or --all")
    async with context.store() as store:
        info = await context.queue(store, queue)
        wanted = ids or [entry.id async for entry in entries_of(store, info.queue)]
        if wanted and not yes:
            context.out.confirm(
                f"Delete {len(wanted)} entries of the quarantine of queue {queue!r} for good?"
            )
        deleted = 0
        for start in range(0, len(wanted), PAGE):
            deleted += await store.quarantine.delete_quarantined(info.queue, wanted[start : start + PAGE])
    context.out.document({"queue": queue, "deleted": deleted})
    context.out.line(f"deleted {deleted} entries of the quarantine of queue {queue!r}")
    if deleted < len(wanted):
        raise typer.Exit(1)


async def entries_of(store: Store, ref: QueueRef) -> AsyncIterator[QuarantinedEntry]:
    """All entries of a queue, page by page."""
    after = ""
    while page := await store.quarantine.list_quarantined(ref, after=after, limit=PAGE):
        for entry in page:
            yield entry
        after = page[-1].id


def _entry_document(queue: str, entry: QuarantinedEntry, *, payload: bool = False) -> dict[str, Any]:
    return without_none(
        queue=queue,
        id=entry.id,
        at=utc(entry.at),
        what=entry.what,
        record=_text(entry.record),
        payload=_text(entry.payload) if payload else None,
    )


def _text(found: bytes | None) -> str | None:
    return None if found is None else found.decode(errors="backslashreplace")
