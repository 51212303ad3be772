"""Events: reads by cursor, and a stream of server-sent events that goes on where it broke off."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.core.cursors import read_cursor
from penstock.core.errors import CursorLostError, OptionError
from penstock.core.job import QueueRef
from penstock.service.answers import Stream
from penstock.service.ask import Ask
from penstock.service.limits import LONGEST_WAIT
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, Fault
from penstock.service.routing import Routes
from penstock.service.wire.events import EventPage, event_view
from penstock.service.wire.jobs import Limit
from penstock.stores.protocol import Bell
from penstock.stores.values import Topic

routes: Final = Routes()
POLL: Final = 1.0
"""Seconds between two looks: moves that make nothing claimable and end nothing ring no bell."""
ALIVE: Final = 15.0
CHUNK: Final = 500
LAST_EVENT_ID: Final = "last-event-id"


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin: after a cursor or a number, from the oldest event if nothing is said."""

    after: str = "0"
    limit: Limit = 100
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for one at most")] = 0.0


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin; `now` is after the newest. The header Last-Event-ID goes before it."""

    after: str = "now"


@routes.get("/v1/queues/{queue}/events", Verb.READ)
async def read_events(ask: Ask, queue: str, query: EventsQuery) -> EventPage:
    """Read events by cursor. 410 when some of them were trimmed."""
    info = await ask.queue(queue)
    after = _cursor("after", query.after)
    events = await ask.store.events(info.queue, after, query.limit)
    if not events and query.wait:
        async with ask.held(), _bells(ask, info.queue) as bells:
            end = asyncio.get_running_loop().time() + query.wait
            while not events and not ask.over.is_set():
                left = end - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                await ask.until_over(_rung(bells, min(POLL, left)))
                events = await ask.store.events(info.queue, after, query.limit)
    return EventPage([event_view(event) for event in events], events[-1].cursor if events else after)


@routes.get("/v1/queues/{queue}/events/stream", Verb.READ)
async def stream_events(ask: Ask, queue: str, query: StreamQuery) -> Stream:
    """Follow events as they come (text/event-stream), each with its cursor as id."""
    info = await ask.queue(queue)
    last = ask.headers.get(LAST_EVENT_ID)
    if last is not None:
        after = _cursor(LAST_EVENT_ID, last)
    elif query.after == "now":
        after = await ask.store.cursor_after(info.queue, 0)
    else:
        after = _cursor("after", query.after)
    return Stream(_follow(ask, info.queue, after))


async def _follow(ask: Ask, queue: QueueRef, after: str) -> AsyncGenerator[bytes]:
    clock = asyncio.get_running_loop().time
    async with ask.held(), _bells(ask, queue) as bells:
        # The cursor is tried before anything is sent: one that is lost is a problem, not a stream.
        events = await ask.store.events(queue, after, CHUNK)
        yield b"retry: 2000\n\n"
        spoke = clock()
        while not ask.over.is_set():
            if events:
                yield b"".join(
                    b"id: %s\nevent: %s\ndata: %s\n\n"
                    % (event.cursor.encode(), event.move.encode(), msgspec.json.encode(event_view(event)))
                    for event in events
                )
                after, spoke = events[-1].cursor, clock()
            else:
                await ask.until_over(_rung(bells, POLL))
                if clock() - spoke >= ALIVE:
                    yield b": alive\n\n"
                    spoke = clock()
            try:
                events = await ask.store.events(queue, after, CHUNK)
            except CursorLostError:
                yield b"event: cursor-lost\ndata: {}\n\n"
                return


@asynccontextmanager
async def _bells(ask: Ask, queue: QueueRef) -> AsyncIterator[list[Bell]]:
    """The bells of the queue, which tell of most events at once."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ask.store.bell(queue, topic)) for topic in Topic]


async def _rung(bells: Sequence[Bell], timeout: float) -> None:
    """Wait until one of them rings, or so many seconds."""
    waits = [asyncio.create_task(bell.wait(timeout)) for bell in bells]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _cursor(parameter: str, given: str) -> str:
    try:
        read_cursor(parameter, given)
    except OptionError as error:
        raise BadRequestError(Fault(wanted=error.wanted, found=given[:100], parameter=parameter)) from None
    return given
