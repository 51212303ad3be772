"""Running a test that is a coroutine function, with arguments that are opened in its own event loop."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest


class InLoop:
    """A fixture's value that the test gets opened: entered in the test's event loop, left at its end."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self.manager = manager


def run(test: Callable[..., Coroutine[Any, Any, None]], arguments: dict[str, Any]) -> None:
    """Run the test in a fresh event loop."""
    asyncio.run(_opened(test, arguments))


def run_item(item: pytest.Function) -> bool | None:
    """Run a test of pytest that is a coroutine function; None, for pytest to run it, when it is not."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    names = inspect.signature(item.obj).parameters
    run(item.obj, {name: item.funcargs[name] for name in names})
    return True


async def _opened(test: Callable[..., Coroutine[Any, Any, None]], arguments: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        for name, value in arguments.items():
            if isinstance(value, InLoop):
                arguments[name] = await stack.enter_async_context(value.manager)
        await test(**arguments)
