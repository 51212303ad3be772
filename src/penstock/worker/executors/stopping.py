"""How a process that runs a handler is stopped: told, asked, killed."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

from penstock.worker.delivery import Delivery, Stop
from penstock.worker.executors.process.host import Process

TOLD: Final = 1.0
"""Seconds that a handler has to end once it was told."""
ASKED: Final = 0.5
"""Seconds that its process has to end after SIGTERM."""
KILLED: Final = 3.0
"""Seconds until a process that was killed is given up on."""


async def stop(
    delivery: Delivery, process: Process, done: asyncio.Future[Any], tell: Callable[[], None]
) -> bool:
    """Until `done`, or until nothing can be done; at once where others may run the job already.

    True when the caller, whose cancel led here, may go on with what the handler made of it; false when it
    was cancelled by someone else.
    """
    try:
        if delivery.stop in {Stop.CANCEL, Stop.SHUTDOWN} and not delivery.lost:
            tell()
            await asyncio.wait([done], timeout=TOLD)
            if not done.done():
                process.send_signal(signal.SIGTERM)
                await asyncio.wait([done], timeout=ASKED)
    finally:
        # Also when this is cut short: it is told to stop once more, and now.
        if not done.done():
            process.send_signal(signal.SIGKILL)
    await asyncio.wait([done], timeout=KILLED)
    if not done.done() or (delivery.stop is None and not delivery.lost):
        return False
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass
    return True
