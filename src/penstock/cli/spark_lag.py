"""`penstock spark lag`: how far the registered readers of events are behind, and what holds them back."""

from typing import Annotated

import msgspec
import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import span, without_none
from penstock.core.errors import CursorLostError
from penstock.explain.formatting import holdup_text
from penstock.stores.protocol import HasHoldups, Store
from penstock.stores.values import QueueInfo, Reader


class ReaderLag(msgspec.Struct, frozen=True):
    """How far a reader of a queue is behind; `lost` says why its cursor is not valid any more."""

    queue: str
    reader: Reader
    behind: int
    oldest_ms: int | None
    lease_ms: int
    lost: str | None = None


async def lag(
    context: CommandContext,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this queue, such as mail", show_default="all queues"),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this reader, such as audit", show_default="all readers"),
    ] = None,
) -> None:
    """List the registered readers: how many events each is behind, and the age of the oldest unread one.

    Streams on Spark register under the name of their option readerName, or of their checkpoint. Events that a
    reader has not read are not trimmed until its lease ends. On PostgreSQL an open transaction holds back all
    readers; the command names it.
    """
    async with context.store(may_migrate=False) as store:
        found = [
            await _lag(store, info, each)
            for info in await context.queues(store, queue)
            for each in await store.readers.list_readers(info.queue)
            if reader in (None, each.name)
        ]
        held = await store.holdup() if isinstance(store, HasHoldups) else None
    held_back = {} if held is None else {"held_back": held}
    context.out.documents(_lag_document(each) | held_back for each in found)
    context.out.table(
        ["reader", "queue", "cursor", "behind", "oldest unread", "lease left"],
        (
            (
                each.reader.name,
                each.queue,
                each.reader.cursor,
                each.behind,
                _oldest_text(each),
                _lease_text(each),
            )
            for each in found
        ),
        right=frozenset({"behind"}),
        drop=["cursor", "lease left"],
    )
    for each in found:
        if each.lost is not None:
            context.out.line(f"{each.reader.name} has lost its cursor: {each.lost}")
    if held is not None:
        context.out.line(f"newer events are {holdup_text(held)}")


async def _lag(store: Store, info: QueueInfo, reader: Reader) -> ReaderLag:
    now = await store.clock.now()
    _, newest = await store.events.event_range(info.queue)
    lost, oldest_ms = None, None
    try:
        following = await store.events.cursor_after(info.queue, reader.cursor, 1)
        unread = await store.events.event_columns(info.queue, reader.cursor, following, 1)
        times = [at for at in unread.fields.get("at", ()) if at is not None]
        oldest_ms = now - times[0] if times else None
    except CursorLostError as error:
        lost = str(error)
    return ReaderLag(
        info.queue.name, reader, max(0, newest - reader.seq), oldest_ms, reader.kept_until - now, lost
    )


def _lag_document(each: ReaderLag) -> dict[str, object]:
    return without_none(
        queue=each.queue,
        reader=each.reader.name,
        cursor=each.reader.cursor,
        seq=each.reader.seq,
        behind=each.behind,
        oldest_unread_ms=each.oldest_ms,
        lease_left_ms=each.lease_ms,
        lost=each.lost,
    )


def _oldest_text(each: ReaderLag) -> str:
    if each.lost is not None:
        return "lost"
    return "" if each.oldest_ms is None else span(each.oldest_ms)


def _lease_text(each: ReaderLag) -> str:
    return "over" if each.lease_ms <= 0 else span(each.lease_ms)
