"""Printing events as they are read, up to a limit, and as they come."""

import asyncio
import heapq
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final

from penstock.cli.checks import holdup_line
from penstock.cli.desk import Desk
from penstock.cli.records import event_line
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.protocol import Bell, HasHoldups, Store
from penstock.stores.values import Topic

POLL_SECONDS: Final = 1.0
"""Moves that make nothing claimable and end nothing ring no bell."""
RENEW_SECONDS: Final = 3600.0
"""How often a reader that follows keeps its place though nothing comes."""
CHUNK: Final = 1_000
HELD_MS: Final = 1_000
"""A transaction that holds back newer events for less is not worth a word."""


class Printer:
    """Prints what is after its cursors, up to its limit, and keeps the place of its reader."""

    def __init__(
        self, desk: Desk, store: Store, limit: int | None, *, every_queue: bool, reader: str | None = None
    ) -> None:
        self._desk, self._store = desk, store
        self._left = limit
        self._reader = reader
        self._kept_at = float("-inf")
        self._is_held = False
        self.cursors: dict[QueueRef, str | int] = {}
        self.every_queue = every_queue

    async def print_last(self, refs: list[QueueRef], many: int) -> None:
        """The newest events over all the queues, in the order of time."""
        pages: list[list[Event]] = []
        for ref in refs:
            first, last = await self._store.event_range(ref)
            events = await self._store.events(ref, max(first - 1, last - many), many)
            self.cursors[ref] = events[-1].cursor if events else last
            pages.append(events)
        for event in list(_by_time(pages))[-many:]:
            self._print(event)

    async def print_new(self) -> None:
        """Everything after the cursors."""
        while not self.is_done:
            pages: list[list[Event]] = []
            for ref, cursor in self.cursors.items():
                events = await self._store.events(ref, cursor, min(CHUNK, self._left or CHUNK))
                if events:
                    self.cursors[ref] = events[-1].cursor
                    pages.append(events)
            for event in _by_time(pages):
                self._print(event)
            await self._keep(moved=bool(pages))
            if not pages:
                return

    async def tell_holdup(self) -> None:
        """Say once, beside the events, who holds back newer ones."""
        held = await self._store.holdup() if isinstance(self._store, HasHoldups) else None
        was_held, self._is_held = self._is_held, held is not None and (held.age_ms or 0) >= HELD_MS
        if held is not None and self._is_held and not was_held:
            self._desk.out.note(f"newer events are {holdup_line(held)}")

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
                    await self.tell_holdup()
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


def _by_time(pages: list[list[Event]]) -> Iterable[Event]:
    """The events of several queues together; those of one stay in its own order."""
    return heapq.merge(*pages, key=lambda event: (event.at, event.queue))


async def _watch(bell: Bell, rung: asyncio.Event) -> None:
    while True:
        if await bell.wait(60.0):
            rung.set()
