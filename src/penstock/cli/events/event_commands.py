"""`penstock events`: print the event log, follow it, and list its registered readers."""

from typing import Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.events.event_printer import EventPrinter
from penstock.cli.output import utc, without_none
from penstock.cli.registration import command, command_group
from penstock.core.cursors import read_cursor
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.explain.formatting import holdup_text
from penstock.stores.protocol import HasHoldups, Store

group = command_group("Print and follow the event log: everything that happened to jobs.")

DEFAULT_LAST: Final = 20
MAX_LIMIT: Final = 10**15


@command(group, "tail")
async def tail(
    context: CommandContext,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this queue, such as mail", show_default="all queues"),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="CURSOR",
            help="Begin after this cursor or event number, such as 1200; needs --queue",
            show_default="the newest events",
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Registered reader, such as audit: begin where it stopped, and store how far it has read; "
            "needs --queue",
            show_default="no reader",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events as they are written")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=MAX_LIMIT,
            metavar="N",
            help="Number of events: the last N, or with --after or --reader the first N",
            show_default=f"the last {DEFAULT_LAST}, or all with --after or --reader",
        ),
    ] = None,
) -> None:
    """Print the last events, one per line; times are always absolute.

    With --follow the command then prints new events until it is interrupted. With --after it begins at that
    cursor, and ends after --limit events. With --json each event has its cursor.

    With --reader the command begins where the reader of that name stopped, and stores its cursor after the
    lines are written: no event is left out, and after a crash some are printed again. A new reader begins
    with the oldest event, or at --after.
    """
    for option, value in (("--after", after), ("--reader", reader)):
        if value is not None and queue is None:
            raise OptionError(option, value, "--queue with it, because each queue numbers its own events")
    if after is not None:
        read_cursor("--after", after)
    async with context.store() as store:
        refs = [info.queue for info in await context.queues(store, queue)]
        start = after if reader is None else await _start_cursor(store, refs[0], reader, after)
        every = queue is None
        printer = EventPrinter(
            context, store, None if start is None else limit, every_queue=every, reader=reader
        )
        if start is None:
            await printer.print_last(refs, limit or DEFAULT_LAST)
        else:
            printer.cursors = {refs[0]: start}
            await printer.print_new()
        await printer.print_holdup()
        if follow:
            await printer.follow()


@command(group, "readers")
async def readers(
    context: CommandContext,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this queue, such as mail", show_default="all queues"),
    ] = None,
) -> None:
    """List the registered readers: how far each has read, and until when unread events are kept for it."""
    async with context.store() as store:
        found = [
            (info.queue.name, each, (await store.events.event_range(info.queue))[1])
            for info in await context.queues(store, queue)
            for each in await store.readers.list_readers(info.queue)
        ]
        held = await store.holdup() if isinstance(store, HasHoldups) else None
        now = await store.clock.now()
    context.out.documents(
        without_none(
            queue=name,
            name=each.name,
            cursor=each.cursor,
            seq=each.seq,
            behind=max(0, last - each.seq),
            kept_until=utc(each.kept_until),
            held_back=held,
        )
        for name, each, last in found
    )
    context.out.table(
        ["reader", "queue", "cursor", "behind", "kept until"],
        (
            (each.name, name, each.cursor, max(0, last - each.seq), context.out.time(each.kept_until, now))
            for name, each, last in found
        ),
        right=frozenset({"behind"}),
        drop=["cursor"],
    )
    if held is not None:
        context.out.line(f"newer events are {holdup_text(held)}")


@command(group, "forget")
async def forget(
    context: CommandContext,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the reader, such as audit", show_default=False)
    ],
    queue: Annotated[str, typer.Option(metavar="NAME", help="Queue whose events it reads, such as mail")],
) -> None:
    """Remove a registered reader: its cursor is deleted, and no events are kept for it."""
    async with context.store() as store:
        ref = (await context.queue(store, queue)).queue
        if not await store.readers.unregister_reader(ref, name):
            known = ", ".join(each.name for each in await store.readers.list_readers(ref))
            raise OptionError("reader", name, f"a reader of queue {queue!r}; there are: {known or 'none'}")
    context.out.document({"queue": queue, "reader": name, "forgotten": True})
    context.out.line(f"reader {name} of queue {queue} was removed")


async def _start_cursor(store: Store, ref: QueueRef, reader: str, after: str | None) -> str:
    """The cursor at which the reader begins: `after`, or its stored cursor, or the oldest event."""
    if after is None:
        stored = {each.name: each.cursor for each in await store.readers.list_readers(ref)}
        if reader in stored:
            return stored[reader]
        first, _ = await store.events.event_range(ref)
        after = str(first - 1)
    return (await store.readers.register_reader(ref, reader, after)).cursor
