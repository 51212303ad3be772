"""`penstock events`: the log of transitions, as it was and as it grows, and who reads it."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Annotated, Final

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.output import local, utc
from penstock.cli.records import event_line
from penstock.core.errors import OptionError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.protocol import Bell, Store, Topic

group = typer.Typer(help="The log of everything that happened to jobs.", no_args_is_help=True)

POLL_SECONDS: Final = 1.0
"""Moves that make nothing claimable and end nothing ring no bell."""
RENEW_SECONDS: Final = 3600.0
"""How often a reader that follows keeps its place though nothing comes."""
CHUNK: Final = 1_000
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
    async with desk.store() as store:
        refs = [info.queue for info in await desk.queues(store, queue)]
        begin = after if reader is None else await _begin(store, refs[0], reader, after)
        every = queue is None
        printer = _Printer(desk, store, None if begin is None else limit, every_queue=every, reader=reader)
        if begin is None:
            await printer.print_last(refs, limit or LAST)
        else:
            printer.cursors = {refs[0]: begin}
            await printer.print_new()
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


class _Printer:
    """Prints what is after its cursors, up to its limit, and keeps the place of its reader."""

    def __init__(
        self, desk: Desk, store: Store, limit: int | None, *, every_queue: bool, reader: str | None = None
    ) -> None:
        self._desk, self._store = desk, store
        self._left = limit
        self._reader = reader
        self._kept_at = 0.0
        self.cursors: dict[QueueRef, str | int] = {}
        self.every_queue = every_queue

    async def print_last(self, refs: list[QueueRef], many: int) -> None:
        """The newest events over all the queues, in the order of time."""
        found: list[Event] = []
        for ref in refs:
            first, last = await self._store.event_range(ref)
            events = await self._store.events(ref, max(first - 1, last - many), many)
            self.cursors[ref] = events[-1].cursor if events else last
            found += events
        found.sort(key=lambda event: (event.at, event.queue, event.seq))
        for event in found[-many:]:
            self._print(event)

    async def print_new(self) -> None:
        """Everything after the cursors."""
        while not self.is_done:
            found: list[Event] = []
            for ref, cursor in self.cursors.items():
                events = await self._store.events(ref, cursor, min(CHUNK, self._left or CHUNK))
                if events:
                    self.cursors[ref] = events[-1].cursor
                found += events
            found.sort(key=lambda event: (event.at, event.queue, event.seq))
            for event in found:
                self._print(event)
            await self._keep(moved=bool(found))
            if not found:
                return

    async def _keep(self, *, moved: bool) -> None:
        """Keep the reader's place: what was printed was also flushed."""
        now = time.monotonic()
        if self._reader is None or (not moved and now - self._kept_at < RENEW_SECONDS):
            return
        self._kept_at = now
        for ref, cursor in self.cursors.items():
            await self._store.keep_reader(ref, self._reader, cursor)

    async def follow(self) -> None:
        """Print what comes, woken by bells and by a poll."""
        rung = asyncio.Event()
        async with AsyncExitStack() as stack:
            bells = [
                await stack.enter_async_context(self._store.bell(ref, topic))
                for ref in self.cursors
                for topic in Topic
            ]
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            watches = [tasks.create_task(_watch(bell, rung)) for bell in bells]
            while not self.is_done:
                await self._notice_new_queues()
                await self.print_new()
                try:
                    async with asyncio.timeout(POLL_SECONDS):
                        await rung.wait()
                except TimeoutError:
                    continue
                rung.clear()
            for watch in watches:
                watch.cancel()

    async def _notice_new_queues(self) -> None:
        if self.every_queue:
            for info in await self._store.queues(self._desk.tenant):
                self.cursors.setdefault(info.queue, 0)

    @property
    def is_done(self) -> bool:
        """True when as many were printed as were asked for."""
        return self._left is not None and self._left <= 0

    def _print(self, event: Event) -> None:
        if self.is_done:
            return
        if self._left is not None:
            self._left -= 1
        self._desk.out.document(event)
        self._desk.out.line(event_line(event))


async def _watch(bell: Bell, rung: asyncio.Event) -> None:
    while True:
        if await bell.wait(60.0):
            rung.set()
