"""Events: read by cursor, or follow as server-sent events that resume after an interruption."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.core.cursors import read_cursor
from penstock.core.errors import CursorLostError, OptionError
from penstock.core.job import QueueRef
from penstock.service.limits import LONGEST_WAIT
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, Fault
from penstock.service.request import Request
from penstock.service.responses import StreamResponse
from penstock.service.routing import Routes
from penstock.service.wire.events import EventPage, event_view
from penstock.service.wire.jobs import Limit
from penstock.stores.protocol import Subscription
from penstock.stores.values import Topic

routes: Final = Routes()
POLL: Final = 1.0
"""Seconds between two reads: moves that make no job claimable and end none send no notification."""
ALIVE: Final = 15.0
CHUNK: Final = 500
LAST_EVENT_ID: Final = "last-event-id"


class EventListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin: after a cursor or a number, by default with the oldest event."""

    after: str = "0"
    limit: Limit = 100
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for one at most")] = 0.0


class EventStreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin; `now` is after the newest event. The header Last-Event-ID takes precedence."""

    after: str = "now"


@routes.get("/v1/queues/{queue}/events", Verb.READ)
async def read_events(request: Request, queue: str, query: EventListQuery) -> EventPage:
    """Read events by cursor. 410 when some of them were trimmed."""
    info = await request.queue(queue)
    after = _cursor("after", query.after)
    events = await request.store.events.read_events(info.queue, after, query.limit)
    if not events and query.wait:
        async with request.held(), _subscriptions(request, info.queue) as subscriptions:
            end = asyncio.get_running_loop().time() + query.wait
            while not events and not request.over.is_set():
                left = end - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                await request.until_over(_notified(subscriptions, min(POLL, left)))
                async with request.turn():
                    events = await request.store.events.read_events(info.queue, after, query.limit)
    return EventPage([event_view(event) for event in events], events[-1].cursor if events else after)


@routes.get("/v1/queues/{queue}/events/stream", Verb.READ)
async def stream_events(request: Request, queue: str, query: EventStreamQuery) -> StreamResponse:
    """Follow events as they come (text/event-stream), each with its cursor as id."""
    info = await request.queue(queue)
    last = request.headers.get(LAST_EVENT_ID)
    if last is not None:
        after = _cursor(LAST_EVENT_ID, last)
    elif query.after == "now":
        after = await request.store.events.cursor_after(info.queue, 0)
    else:
        after = _cursor("after", query.after)
    return StreamResponse(_follow(request, info.queue, after))


async def _follow(request: Request, queue: QueueRef, after: str) -> AsyncGenerator[bytes]:
    clock = asyncio.get_running_loop().time
    async with request.held(), _subscriptions(request, queue) as subscriptions:
        # The cursor is tried before anything is sent: one that is lost is a problem, not a stream.
        async with request.turn():
            events = await request.store.events.read_events(queue, after, CHUNK)
        yield b"retry: 2000\n\n"
        spoke = clock()
        while not request.over.is_set():
            if events:
                yield b"".join(
                    b"id: %s\nevent: %s\ndata: %s\n\n"
                    % (event.cursor.encode(), event.move.encode(), msgspec.json.encode(event_view(event)))
                    for event in events
                )
                after, spoke = events[-1].cursor, clock()
            else:
                await request.until_over(_notified(subscriptions, POLL))
                if clock() - spoke >= ALIVE:
                    yield b": alive\n\n"
                    spoke = clock()
            try:
                async with request.turn():
                    events = await request.store.events.read_events(queue, after, CHUNK)
            except CursorLostError:
                yield b"event: cursor-lost\ndata: {}\n\n"
                return


@asynccontextmanager
async def _subscriptions(request: Request, queue: QueueRef) -> AsyncIterator[list[Subscription]]:
    """Subscriptions to the queue, which report most events at once."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(request.store.notifier.subscribe(queue, topic)) for topic in Topic
        ]


async def _notified(subscriptions: Sequence[Subscription], timeout: float) -> None:
    """Wait until one of the subscriptions has a notification, or for `timeout` seconds."""
    waits = [asyncio.create_task(subscription.wait(timeout)) for subscription in subscriptions]
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
