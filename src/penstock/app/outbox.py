"""The way from a task to the client of the app that declared it."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from penstock.client.client import Client
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.job import Job
from penstock.core.states import State
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle

R = TypeVar("R")


class Outbox:
    """Passes on to the client while the app is open. Tasks exist before the app is opened, and after."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    async def send(self, call: Call[R], /) -> JobHandle[R]:
        return await self._here().send(call)

    async def send_many(self, calls: Sequence[Call[R]], /) -> list[JobHandle[R] | PenstockError]:
        return await self._here().send_many(calls)

    async def job(self, queue: str, job: str, /) -> Job:
        return await self._here().job(queue, job)

    async def ended(self, queue: str, job: str, timeout: float | None, /) -> Job:
        return await self._here().ended(queue, job, timeout)

    async def cancel(self, queue: str, job: str, /) -> State:
        return await self._here().cancel(queue, job)

    def _here(self) -> Client:
        if self.client is None:
            raise ConfigError("the app is not open: do this inside `async with app:`")
        if self.loop is not asyncio.get_running_loop():
            raise ConfigError("the app was opened in another event loop: from other threads use app.blocking")
        return self.client
