"""A stream of notifications for one remote store: lines of JSON without an end."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from penstock.service.request import Request
from penstock.service.reserved_names import is_reserved
from penstock.stores.protocol import TenantSubscription
from penstock.stores.values import Topic
from penstock.stores.wire import ANY_QUEUE, MOST_SUBSCRIPTIONS, QueueTopic

ALIVE: Final = 15.0
"""Seconds after which a stream without notifications sends a sign of life."""


async def notifications(
    request: Request, tenant: str, topics: Sequence[QueueTopic], *, is_for_all: bool
) -> AsyncGenerator[bytes]:
    """Notifications of these topics; with `is_for_all` of all queues of the tenant that the token is for.

    A line for each, and null once all is subscribed and now and then after.
    """
    unsent = _Unsent(request)
    async with request.held(), AsyncExitStack() as stack:
        shared = request.service.subscriptions.subscribe(tenant, topics, unsent)
        await stack.enter_async_context(shared)
        if is_for_all:
            subscribing = request.store.notifier.subscribe_tenant(tenant)
            subscription = await stack.enter_async_context(subscribing)
            listener = asyncio.create_task(_listen_to_all(request, subscription, unsent))
            stack.push_async_callback(_ended, listener)
        yield _line(None)
        while not request.over.is_set():
            found = await request.until_over(unsent.take())
            yield b"".join(map(_line, found)) if found else _line(None)


class _Unsent:
    """Notifications that wait for the stream. One that was not sent yet says all that a second one could."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._topics: dict[QueueTopic, None] = {}
        self._notified = asyncio.Event()

    def __len__(self) -> int:
        return len(self._topics)

    def notify(self, topic: QueueTopic) -> None:
        """Send this with what else waits."""
        self._topics[topic] = None
        self._notified.set()

    def fail(self) -> None:
        """End the stream: the client subscribes anew."""
        self._request.over.set()

    async def take(self) -> list[QueueTopic]:
        """All that wait, as soon as there are any; none after a while."""
        try:
            async with asyncio.timeout(ALIVE):
                await self._notified.wait()
        except TimeoutError:
            return []
        topics, self._topics = list(self._topics), {}
        self._notified.clear()
        return topics


async def _listen_to_all(request: Request, subscription: TenantSubscription, unsent: _Unsent) -> None:
    try:
        while True:
            found = await subscription.wait(ALIVE)
            theirs = [name for name in found.queues if request.may(name) and not is_reserved(name)]
            if found.for_all or len(unsent) + len(theirs) > MOST_SUBSCRIPTIONS:
                # A slow client is notified once, and not of each queue.
                theirs = [ANY_QUEUE]
            for name in theirs:
                unsent.notify(QueueTopic(name, Topic.READY))
    finally:
        unsent.fail()


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _line(topic: QueueTopic | None) -> bytes:
    return msgspec.json.encode(topic) + b"\n"
