"""Waiting until a queue is empty, with word of how far it is."""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.core.states import LIVE, State
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, Topic

LOOK: Final = 1.0
"""Seconds after which the queue is looked at again, whether or not a bell rang."""
PAUSE: Final = 0.05
WORD: Final = 5.0
"""Seconds between two lines about how far it is."""


async def wait_until_empty(
    store: Store, info: QueueInfo, timeout: float | None, tell: Callable[[str], None]
) -> dict[State, int]:
    """What is still live by state: nothing, unless that took longer than `timeout` seconds."""
    clock = asyncio.get_running_loop().time
    began = told = clock()
    if info.pause is not None and (info.pause.until is None or info.pause.until > await store.now()):
        tell(f"queue {info.queue.name!r} is paused: what waits there stays until it is resumed")
    async with store.bell(info.queue, Topic.ENDED) as bell:
        while True:
            counts = await store.counts(info.queue)
            left = {state: counts[state] for state in State if state in LIVE and counts[state]}
            now = clock()
            if not left or (timeout is not None and now - began >= timeout):
                return left
            if now - told >= WORD or told == began:
                each = ", ".join(f"{many} {state}" for state, many in left.items())
                tell(f"{sum(left.values())} left: {each}")
                told = now
            rest = LOOK if timeout is None else min(LOOK, began + timeout - now)
            await bell.wait(rest)
            # A busy queue rings all the time, and counting is not free.
            await asyncio.sleep(PAUSE)
