"""Printing events up to a limit, and new events as they are written."""

import asyncio
import heapq
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final

from penstock.cli.command_context import CommandContext
from penstock.cli.jobs.job_output import event_line
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.explain.formatting import holdup_text
from penstock.stores.protocol import HasHoldups, Store, Subscription
from penstock.stores.values import Topic

POLL_SECONDS: Final = 1.0
"""Moves that make no job claimable and end none send no notification: so new events are polled too."""
RENEW_SECONDS: Final = 3600.0
"""How often the registration of a reader is renewed while no event comes."""
CHUNK: Final = 1_000
HELD_MS: Final = 1_000
"""A transaction that holds back newer events for less than this is not reported."""


class EventPrinter:
    """Prints the events after its cursors, up to its limit, and stores the cursor of its reader."""

    def __init__(
        self,
        context: CommandContext,
        store: Store,
        limit: int | None,
        *,
        every_queue: bool,
        reader: str | None = None,
    ) -> None:
        self._context, self._store = context, store
        self._remaining = limit
        self._reader = reader
        self._renewed_at = float("-inf")
        self._is_held = False
        self.cursors: dict[QueueRef, str | int] = {}
        self.every_queue = every_queue

    async def print_last(self, refs: list[QueueRef], many: int) -> None:
        """Print the newest events of all the queues together, in the order of time."""
        pages: list[list[Event]] = []
        for ref in refs:
            first, last = await self._store.events.event_range(ref)
            events = await self._store.events.read_events(ref, max(first - 1, last - many), many)
            self.cursors[ref] = events[-1].cursor if events else last
            pages.append(events)
        for event in list(_by_time(pages))[-many:]:
            self._print(event)

    async def print_new(self) -> None:
        """Print all events after the cursors."""
        while not self.is_done:
            pages: list[list[Event]] = []
            for ref, cursor in self.cursors.items():
                events = await self._store.events.read_events(
                    ref, cursor, min(CHUNK, self._remaining or CHUNK)
                )
                if events:
                    self.cursors[ref] = events[-1].cursor
                    pages.append(events)
            for event in _by_time(pages):
                self._print(event)
            await self._store_cursor(moved=bool(pages))
            if not pages:
                return

    async def print_holdup(self) -> None:
        """Report once, on standard error, which transaction holds back newer events."""
        held = await self._store.holdup() if isinstance(self._store, HasHoldups) else None
        was_held, self._is_held = self._is_held, held is not None and (held.age_ms or 0) >= HELD_MS
        if held is not None and self._is_held and not was_held:
            self._context.out.note(f"newer events are {holdup_text(held)}")

    async def _store_cursor(self, *, moved: bool) -> None:
        """Store the reader's cursor; the events before it were printed and flushed."""
        now = time.monotonic()
        if self._reader is None or (not moved and now - self._renewed_at < RENEW_SECONDS):
            return
        self._renewed_at = now
        for ref, cursor in self.cursors.items():
            await self._store.readers.register_reader(ref, self._reader, cursor)

    async def follow(self) -> None:
        """Print new events, on notifications and on a poll."""
        notified = asyncio.Event()
        async with AsyncExitStack() as stack:
            subscriptions = [
                await stack.enter_async_context(self._store.notifier.subscribe(ref, topic))
                for ref in self.cursors
                for topic in Topic
            ]
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            watches = [tasks.create_task(_watch(subscription, notified)) for subscription in subscriptions]
            while not self.is_done:
                await self._add_new_queues()
                await self.print_new()
                try:
                    async with asyncio.timeout(POLL_SECONDS):
                        await notified.wait()
                except TimeoutError:
                    await self.print_holdup()
                    continue
                notified.clear()
            for watch in watches:
                watch.cancel()

    async def _add_new_queues(self) -> None:
        if self.every_queue:
            for info in await self._store.queues.list_queues(self._context.tenant):
                self.cursors.setdefault(info.queue, 0)

    @property
    def is_done(self) -> bool:
        """True once the limit is reached."""
        return self._remaining is not None and self._remaining <= 0

    def _print(self, event: Event) -> None:
        if self.is_done:
            return
        if self._remaining is not None:
            self._remaining -= 1
        self._context.out.document(event)
        self._context.out.line(event_line(event))


def _by_time(pages: list[list[Event]]) -> Iterable[Event]:
    """The events of several queues merged by time; the events of one queue keep their order."""
    return heapq.merge(*pages, key=lambda event: (event.at, event.queue))


async def _watch(subscription: Subscription, notified: asyncio.Event) -> None:
    while True:
        if await subscription.wait(60.0):
            notified.set()
