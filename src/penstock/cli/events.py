"""`penstock events`: the log of transitions, as it was and as it grows, and who reads it."""

from typing import Annotated, Final

import typer

from penstock.cli.checks import holdup_line
from penstock.cli.desk import Desk, command
from penstock.cli.output import local, utc
from penstock.cli.tailing import Printer
from penstock.core.cursors import read_cursor
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.stores.protocol import HasHoldups, Store

group = typer.Typer(help="The log of everything that happened to jobs.", no_args_is_help=True)

LAST: Final = 20
MOST: Final = 10**15


@command(group, "tail")
async def tail(
    desk: Desk,
    queue: Annotated[str | None, typer.Option(help="Only this queue")] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Events after this cursor or number; needs --queue"),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Go on where this reader was, and keep its place; needs --queue"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events are written")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=MOST,
            help="The last so many, or with --after or --reader the first",
            show_default=f"the last {LAST}, or all after --after and for --reader",
        ),
    ] = None,
) -> None:
    """Print the last events: one line each, or JSON lines with --json.

    With --follow it then goes on until it is interrupted. With --after it begins there instead, and ends when
    --limit events are printed. The cursor of an event is among what --json writes.

    With --reader it begins where the reader of that name was, and moves its place on once the lines are
    written: none is left out, and after a crash some come again. A new reader begins with the oldest event;
    --after puts it elsewhere.
    """
    for option, value in (("--after", after), ("--reader", reader)):
        if value is not None and queue is None:
            raise OptionError(option, value, "--queue with it: every queue numbers its own events")
    if after is not None:
        read_cursor("--after", after)
    async with desk.store() as store:
        refs = [info.queue for info in await desk.queues(store, queue)]
        begin = after if reader is None else await _begin(store, refs[0], reader, after)
        every = queue is None
        printer = Printer(desk, store, None if begin is None else limit, every_queue=every, reader=reader)
        if begin is None:
            await printer.print_last(refs, limit or LAST)
        else:
            printer.cursors = {refs[0]: begin}
            await printer.print_new()
        await printer.tell_holdup()
        if follow:
            await printer.follow()


@command(group, "readers")
async def readers(
    desk: Desk, queue: Annotated[str | None, typer.Option(help="Only this queue")] = None
) -> None:
    """List the registered readers: how far they have read, and until when their places are kept."""
    async with desk.store() as store:
        found = [
            (info.queue.name, each, (await store.event_range(info.queue))[1])
            for info in await desk.queues(store, queue)
            for each in await store.readers(info.queue)
        ]
        held = await store.holdup() if isinstance(store, HasHoldups) else None
    desk.out.document(
        {
            "readers": [
                {
                    "queue": name,
                    "name": each.name,
                    "cursor": each.cursor,
                    "seq": each.seq,
                    "behind": max(0, last - each.seq),
                    "kept_until": utc(each.kept_until),
                }
                for name, each, last in found
            ]
        }
        | ({} if held is None else {"held_back": held})
    )
    desk.out.table(
        ["reader", "queue", "cursor", "behind", "kept until"],
        (
            (each.name, name, each.cursor, max(0, last - each.seq), local(each.kept_until))
            for name, each, last in found
        ),
        right=frozenset({"behind"}),
        drop=["cursor"],
    )
    if held is not None:
        desk.out.line(f"newer events are {holdup_line(held)}")


@command(group, "forget")
async def forget(
    desk: Desk,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The reader's name", show_default=False)],
    queue: Annotated[str, typer.Option(help="The queue whose events it reads", show_default=False)],
) -> None:
    """Forget a reader: its place is gone, and nothing is kept for it any longer."""
    async with desk.store() as store:
        ref = (await desk.queue(store, queue)).queue
        if not await store.drop_reader(ref, name):
            known = ", ".join(each.name for each in await store.readers(ref))
            raise OptionError("reader", name, f"a reader of queue {queue!r}; there are: {known or 'none'}")
    desk.out.document({"queue": queue, "reader": name, "forgotten": True})
    desk.out.line(f"reader {name} of queue {queue} is forgotten")


async def _begin(store: Store, ref: QueueRef, reader: str, after: str | None) -> str:
    """Where the reader begins: where it was told to, or where it was, or with the oldest event."""
    if after is None:
        kept = {each.name: each.cursor for each in await store.readers(ref)}
        if reader in kept:
            return kept[reader]
        first, _ = await store.event_range(ref)
        after = str(first - 1)
    return (await store.keep_reader(ref, reader, after)).cursor
