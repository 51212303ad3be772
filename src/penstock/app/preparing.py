"""What is done before the workers of an app start: its declarations are held against what is stored."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import msgspec

from penstock.core.errors import StoreUnavailableError

_LOGGER: Final = logging.getLogger("penstock.worker")
GRACE: Final = 5.0
"""Seconds for which queues that are ready wait for the others."""


class Prepared(msgspec.Struct, frozen=True):
    """`waiting` has the declarations that could not be compared yet, by queue: their workers start later.

    `has_schedules` is False while the schedules of the app could not be put.
    """

    waiting: Mapping[str, asyncio.Task[Any]]
    has_schedules: bool = True


async def prepared(declaring: Mapping[str, Coroutine[Any, Any, Any]]) -> dict[str, asyncio.Task[Any]]:
    """Await declarations by queue; those of queues that cannot be reached, once others are ready.

    Raises what is wrong with a declaration, and what failed where no queue can be reached.
    """
    tasks = {name: asyncio.create_task(each) for name, each in declaring.items()}
    waiting = set(tasks.values())
    end = asyncio.get_running_loop().time() + GRACE
    try:
        while waiting:
            is_one_ready = any(_is_ready(task) for task in tasks.values())
            left = max(0.0, end - asyncio.get_running_loop().time()) if is_one_ready else None
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not isinstance(task.exception(), StoreUnavailableError):
                    task.result()
            if not done and is_one_ready:
                break
        if tasks and not any(_is_ready(task) for task in tasks.values()):
            next(iter(tasks.values())).result()
    except BaseException:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        raise
    unready = {name: task for name, task in tasks.items() if not _is_ready(task)}
    if unready:
        _LOGGER.warning("queues cannot be reached, and their workers wait: %s", ", ".join(sorted(unready)))
    return unready


def _is_ready(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
