"""Several calls on their way to a store at once: rows are read while it works."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

AHEAD: Final = 3


class InFlight:
    """Calls that are under way; the first failure comes up at the next chance. None outlives the block."""

    def __init__(self, most: int = AHEAD) -> None:
        self._most = most
        self._calls: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._calls:
                await self._land()
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def start(self, call: Coroutine[Any, Any, None]) -> None:
        """Have the call made, once there is room for it."""
        try:
            while len(self._calls) >= self._most:
                await self._land()
        except BaseException:
            call.close()
            raise
        self._calls.add(asyncio.create_task(call))
        # It goes out now: what follows may keep the loop busy for a while.
        await asyncio.sleep(0)

    async def _land(self) -> None:
        done, self._calls = await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
        for error in [call.exception() for call in done]:
            if error is not None:
                raise error
