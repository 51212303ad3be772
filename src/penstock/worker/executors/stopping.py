"""How a process that runs a handler is stopped: told, asked, killed."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.worker.delivery import Delivery, Stop
from penstock.worker.executors.process.host import Process

TERM_AFTER: Final = 1.0
KILL_AFTER: Final = 0.5
KILLED: Final = 3.0
"""Seconds until a process that was killed is given up on."""


class StopDelays(msgspec.Struct, frozen=True):
    """Seconds from one step of stopping to the next."""

    term_after: float = TERM_AFTER
    """Seconds that a handler has to end once it was told to, before its process gets SIGTERM."""
    kill_after: float = KILL_AFTER
    """Seconds that its process has to end after SIGTERM, before it gets SIGKILL."""

    @property
    def total(self) -> float:
        """Seconds until a process that was told to stop is killed."""
        return self.term_after + self.kill_after


async def stop(
    delivery: Delivery,
    process: Process,
    done: asyncio.Future[Any],
    tell: Callable[[], None],
    delays: StopDelays,
) -> bool:
    """Until `done`, or until nothing can be done; at once where others may run the job already.

    True when the caller, whose cancel led here, may go on with what the handler made of it; false when it
    was cancelled by someone else.
    """
    try:
        if delivery.stop in {Stop.CANCEL, Stop.SHUTDOWN} and not delivery.lease.is_lost:
            tell()
            await asyncio.wait([done], timeout=delays.term_after)
            if not done.done():
                process.send_signal(signal.SIGTERM)
                await asyncio.wait([done], timeout=delays.kill_after)
    finally:
        # Also when this is cut short: it is told to stop once more, and now.
        if not done.done():
            process.send_signal(signal.SIGKILL)
    await asyncio.wait([done], timeout=KILLED)
    if not done.done() or (delivery.stop is None and not delivery.lease.is_lost):
        return False
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass
    return True
