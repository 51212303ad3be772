"""What is done before the workers of an app start: its declarations are held against what is stored."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import msgspec

from penstock.core.errors import DamagedQueueError, StoreUnavailableError

_LOGGER: Final = logging.getLogger("penstock.worker")
GRACE: Final = 5.0
"""Seconds for which queues that are ready wait for the others."""


UNUSABLE: Final = (StoreUnavailableError, DamagedQueueError)
"""What keeps a queue from being declared for now, and no other queue."""


class Prepared(msgspec.Struct, frozen=True):
    """`waiting` has the declarations that could not be compared yet, by queue: their workers start later.

    `has_schedules` is False while the schedules of the app could not be put.
    """

    waiting: Mapping[str, asyncio.Task[Any]]
    has_schedules: bool = True


async def prepared(
    declaring: Mapping[str, Coroutine[Any, Any, Any]], *, others: bool = False
) -> dict[str, asyncio.Task[Any]]:
    """Await declarations by queue; those of queues that cannot be reached or read, once others are ready.

    Raises what is wrong with a declaration, and what failed where no queue can be used. With `others` there
    are queues without a declaration, which a damaged one does not concern.
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
                if not isinstance(task.exception(), UNUSABLE):
                    task.result()
            if not done and is_one_ready:
                break
        none_ready = tasks and not any(_is_ready(task) for task in tasks.values())
        if none_ready and not (others and all(_is_damaged(task) for task in tasks.values())):
            next(iter(tasks.values())).result()
    except BaseException:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        raise
    unready = {name: task for name, task in tasks.items() if not _is_ready(task)}
    if unready:
        away = [name for name, task in unready.items() if not _is_damaged(task)]
        if away:
            _LOGGER.warning("queues cannot be reached, and their workers wait: %s", ", ".join(sorted(away)))
        for name, task in unready.items():
            if _is_damaged(task):
                _LOGGER.warning(
                    "the worker of a damaged queue waits: %s", task.exception(), extra={"queue": name}
                )
    return unready


def _is_ready(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _is_damaged(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and isinstance(task.exception(), DamagedQueueError)
