"""`penstock quarantine`: what was damaged from outside and set aside."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.output import local, utc, without_none
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.stores.values import QuarantinedEntry

group = typer.Typer(help="See and delete damaged records that the store has set aside.", no_args_is_help=True)

PAGE: Final = 500

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name", show_default=False)]


@command(group, "list")
async def list_entries(
    desk: Desk, queue: Annotated[str | None, typer.Option(help="Only this queue")] = None
) -> None:
    """List what was set aside, with what was found."""
    async with desk.store() as store:
        refs = [info.queue for info in await desk.queues(store, queue)]
        found = [(ref.name, entry) for ref in refs async for entry in entries_of(store, ref)]
    desk.out.document({"entries": [_document(name, entry) for name, entry in found]})
    desk.out.table(
        ["queue", "id", "set aside", "what was found"],
        ((name, entry.id, local(entry.at), entry.what) for name, entry in found),
        drop=["set aside"],
    )


@command(group, "show")
async def show(
    desk: Desk,
    queue: Name,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id in the list")],  # noqa: A002
    payload: Annotated[bool, typer.Option("--payload", help="Show the payload too")] = False,
) -> None:
    """Show one entry with what was left of its record."""
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        async for entry in entries_of(store, info.queue):
            if entry.id == id:
                break
        else:
            raise OptionError("ID", id, f"an id that `penstock quarantine list --queue {queue}` names")
    desk.out.document(_document(queue, entry, payload=payload))
    desk.out.fields(_document(queue, entry, payload=payload).items())


@command(group, "delete")
async def delete(
    desk: Desk,
    queue: Name,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The ids to delete")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all entries of the queue")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Delete entries for good; jobs among them are deleted jobs in the event log."""
    if bool(ids) == everything:
        raise OptionError("ID", ids, "some ids, or --all")
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        wanted = ids or [entry.id async for entry in entries_of(store, info.queue)]
        if wanted and not yes:
            desk.out.confirm(f"Delete {len(wanted)} entries of the quarantine of queue {queue!r} for good?")
        deleted = 0
        for start in range(0, len(wanted), PAGE):
            deleted += await store.delete_quarantined(info.queue, wanted[start : start + PAGE])
    desk.out.document({"queue": queue, "deleted": deleted})
    desk.out.line(f"deleted {deleted} entries of the quarantine of queue {queue!r}")
    if deleted < len(wanted):
        raise typer.Exit(1)


async def entries_of(store: Store, ref: QueueRef) -> AsyncIterator[QuarantinedEntry]:
    """All entries of a queue, page by page."""
    after = ""
    while page := await store.quarantined(ref, after=after, limit=PAGE):
        for entry in page:
            yield entry
        after = page[-1].id


def _document(queue: str, entry: QuarantinedEntry, *, payload: bool = False) -> dict[str, Any]:
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
