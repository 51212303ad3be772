"""`penstock spark lag`: how far behind the registered readers of events are, and who holds them back."""

from typing import Annotated

import msgspec
import typer

from penstock.cli.checks import holdup_line
from penstock.cli.desk import Desk
from penstock.cli.output import span, without_none
from penstock.core.errors import CursorLostError
from penstock.stores.protocol import HasHoldups, Store
from penstock.stores.values import QueueInfo, Reader


class Lag(msgspec.Struct, frozen=True):
    """One reader of one queue. What it has lost was trimmed, or its log is another one now."""

    queue: str
    reader: Reader
    behind: int
    oldest_ms: int | None
    lease_ms: int
    lost: str | None = None


async def lag(
    desk: Desk,
    queue: Annotated[str | None, typer.Option(help="Only this queue")] = None,
    reader: Annotated[str | None, typer.Option(metavar="NAME", help="Only this reader")] = None,
) -> None:
    """List the registered readers of events: how many events behind they are, and how long the oldest waits.

    Streams on Spark register, by the name that their option readerName gives or their checkpoint has. Until
    the lease of a reader is over, what it has not read is not trimmed. On PostgreSQL a transaction that stays
    open holds all readers back, and is named.
    """
    async with desk.store(may_migrate=False) as store:
        found = [
            await _lag(store, info, each)
            for info in await desk.queues(store, queue)
            for each in await store.readers(info.queue)
            if reader in (None, each.name)
        ]
        held = await store.holdup() if isinstance(store, HasHoldups) else None
    desk.out.document(
        {"readers": [_document(each) for each in found]} | ({} if held is None else {"held_back": held})
    )
    desk.out.table(
        ["reader", "queue", "cursor", "behind", "oldest unread", "lease left"],
        (
            (each.reader.name, each.queue, each.reader.cursor, each.behind, _oldest(each), _lease(each))
            for each in found
        ),
        right=frozenset({"behind"}),
        drop=["cursor", "lease left"],
    )
    for each in found:
        if each.lost is not None:
            desk.out.line(f"{each.reader.name} has lost its place: {each.lost}")
    if held is not None:
        desk.out.line(f"newer events are {holdup_line(held)}")


async def _lag(store: Store, info: QueueInfo, reader: Reader) -> Lag:
    now = await store.now()
    _, newest = await store.event_range(info.queue)
    lost, oldest_ms = None, None
    try:
        following = await store.cursor_after(info.queue, reader.cursor, 1)
        unread = await store.event_columns(info.queue, reader.cursor, following, 1)
        times = [at for at in unread.fields.get("at", ()) if at is not None]
        oldest_ms = now - times[0] if times else None
    except CursorLostError as error:
        lost = str(error)
    return Lag(info.queue.name, reader, max(0, newest - reader.seq), oldest_ms, reader.kept_until - now, lost)


def _document(each: Lag) -> dict[str, object]:
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


def _oldest(each: Lag) -> str:
    if each.lost is not None:
        return "lost"
    return "" if each.oldest_ms is None else span(each.oldest_ms)


def _lease(each: Lag) -> str:
    return "over" if each.lease_ms <= 0 else span(each.lease_ms)
