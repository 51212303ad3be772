"""`penstock events`: the log of transitions, as it was and as it grows."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Final

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.records import event_line
from penstock.core.errors import OptionError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.protocol import Bell, Store, Topic

group = typer.Typer(help="The log of everything that happened to jobs.", no_args_is_help=True)

POLL_SECONDS: Final = 1.0
"""Moves that make nothing claimable and end nothing ring no bell."""
CHUNK: Final = 1_000
LAST: Final = 20
MOST: Final = 10**15


@command(group, "tail")
async def tail(
    desk: Desk,
    queue: Annotated[str | None, typer.Option(help="Only this queue")] = None,
    after: Annotated[
        int | None, typer.Option(min=0, max=MOST, help="Events after this number; needs --queue")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events are written")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=MOST,
            help="The last so many, or with --after the first",
            show_default=f"the last {LAST}, or all after --after",
        ),
    ] = None,
) -> None:
    """Print the last events: one line each, or JSON lines with --json.

    With --follow it then goes on until it is interrupted. With --after it begins there instead, and ends when
    --limit events are printed.
    """
    if after is not None and queue is None:
        raise OptionError("--after", after, "--queue with it: every queue numbers its own events")
    async with desk.store() as store:
        refs = [info.queue for info in await desk.queues(store, queue)]
        reader = _Reader(desk, store, None if after is None else limit, every_queue=queue is None)
        if after is not None:
            reader.cursors = {refs[0]: after}
            await reader.print_new()
        else:
            await reader.print_last(refs, limit or LAST)
        if follow:
            await reader.follow()


class _Reader:
    """Prints what is after its cursors, up to its limit."""

    def __init__(self, desk: Desk, store: Store, limit: int | None, *, every_queue: bool) -> None:
        self._desk, self._store = desk, store
        self._left = limit
        self.cursors: dict[QueueRef, int] = {}
        self.every_queue = every_queue

    async def print_last(self, refs: list[QueueRef], many: int) -> None:
        """The newest events over all the queues, in the order of time."""
        found: list[Event] = []
        for ref in refs:
            first, last = await self._store.event_range(ref)
            found += await self._store.events(ref, max(first - 1, last - many), many)
            self.cursors[ref] = last
        found.sort(key=lambda event: (event.at, event.queue, event.seq))
        for event in found[-many:]:
            self._print(event)

    async def print_new(self) -> None:
        """Everything after the cursors."""
        while not self.is_done:
            found: list[Event] = []
            for ref, cursor in self.cursors.items():
                events = await self._store.events(ref, cursor, CHUNK)
                if events:
                    self.cursors[ref] = events[-1].seq
                found += events
            found.sort(key=lambda event: (event.at, event.queue, event.seq))
            for event in found:
                self._print(event)
            if not found:
                return

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
