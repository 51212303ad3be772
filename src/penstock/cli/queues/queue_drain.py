"""Waiting until a queue has no live job, with progress."""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.core.states import LIVE, State
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, Topic

POLL_SECONDS: Final = 1.0
"""The queue is counted again after this time, notified or not."""
MIN_INTERVAL_SECONDS: Final = 0.05
PROGRESS_SECONDS: Final = 5.0
"""Time between two lines of progress."""


async def wait_until_empty(
    store: Store, info: QueueInfo, timeout: float | None, print_progress: Callable[[str], None]
) -> dict[State, int]:
    """The number of live jobs per state: none, unless `timeout` seconds passed before."""
    clock = asyncio.get_running_loop().time
    began = printed_at = clock()
    if info.pause is not None and (info.pause.until is None or info.pause.until > await store.clock.now()):
        print_progress(f"queue {info.queue.name!r} is paused: its waiting jobs stay until it is resumed")
    async with store.notifier.subscribe(info.queue, Topic.ENDED) as subscription:
        while True:
            counts = await store.reads.counts(info.queue)
            left = {state: counts[state] for state in State if state in LIVE and counts[state]}
            now = clock()
            if not left or (timeout is not None and now - began >= timeout):
                return left
            if now - printed_at >= PROGRESS_SECONDS or printed_at == began:
                each = ", ".join(f"{many} {state}" for state, many in left.items())
                print_progress(f"{sum(left.values())} left: {each}")
                printed_at = now
            rest = POLL_SECONDS if timeout is None else min(POLL_SECONDS, began + timeout - now)
            await subscription.wait(rest)
            # A busy queue notifies all the time, and each count costs the store a query.
            await asyncio.sleep(MIN_INTERVAL_SECONDS)
