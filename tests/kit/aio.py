"""Running a test that is a coroutine function, with arguments that are opened in its own event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


class InLoop:
    """A fixture's value that the test gets opened: entered in the test's event loop, left at its end."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self.manager = manager


def run(test: Callable[..., Coroutine[Any, Any, None]], arguments: dict[str, Any]) -> None:
    """Run the test in a fresh event loop."""
    asyncio.run(_opened(test, arguments))


async def _opened(test: Callable[..., Coroutine[Any, Any, None]], arguments: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        for name, value in arguments.items():
            if isinstance(value, InLoop):
                arguments[name] = await stack.enter_async_context(value.manager)
        await test(**arguments)
