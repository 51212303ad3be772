"""The way from a task to the client of the app that declared it."""

import asyncio
from collections.abc import Collection, Sequence
from typing import TypeVar

from penstock.client.client import Client
from penstock.client.upkeep import Upkeep
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.flows import Child, JobRef
from penstock.core.job import Job
from penstock.core.states import State
from penstock.tasks.call import Call
from penstock.tasks.flow import Flow
from penstock.tasks.flow_handle import FlowHandle
from penstock.tasks.handle import JobHandle

R = TypeVar("R")


class Sending:
    """Passes on to the client while the app is open. Tasks exist before the app is opened, and after."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_storeless = False
        """Whether this process only executes handlers."""

    async def send(self, call: Call[R], /) -> JobHandle[R]:
        return await self._here().send(call)

    async def send_in(self, connection: object, call: Call[R], /) -> JobHandle[R]:
        return await self._here().send_in(connection, call)

    async def send_many_in(
        self, connection: object, calls: Sequence[Call[R]], /
    ) -> list[JobHandle[R] | PenstockError]:
        return await self._here().send_many_in(connection, calls)

    async def send_many(self, calls: Sequence[Call[R]], /) -> list[JobHandle[R] | PenstockError]:
        return await self._here().send_many(calls)

    async def job(self, queue: str, job: str, /) -> Job:
        return await self._here().job(queue, job)

    async def ended(self, queue: str, job: str, timeout: float | None, /) -> Job:
        return await self._here().ended(queue, job, timeout)

    async def cancel(self, queue: str, job: str, /) -> State:
        return await self._here().cancel(queue, job)

    async def send_flow(self, flow: Flow, /) -> FlowHandle:
        return await self._here().send_flow(flow)

    async def jobs(self, refs: Sequence[JobRef], /) -> list[Job | None]:
        return await self._here().jobs(refs)

    async def children(self, ref: JobRef, /) -> list[Child]:
        return await self._here().children(ref)

    async def cancel_all(self, refs: Sequence[JobRef], /) -> int:
        return await self._here().cancel_all(refs)

    async def carry(self, queue: str, /) -> None:
        await self._here().carry(queue)

    async def upkeep(self, queue: str) -> Upkeep:
        """What an owner does to a queue as a whole."""
        return await self._here().upkeep(queue)

    async def delete_queue(self, queue: str, *, purge: bool = False) -> int:
        """Delete a queue that has nothing in it; with `purge` its ended jobs first, and how many."""
        return await self._here().delete_queue(queue, purge=purge)

    async def prepare(self, queues: Collection[str] | None = None) -> None:
        """Hold what the app says of these queues, or all, against what is stored, as workers do."""
        await self._here().prepare(queues)

    def _here(self) -> Client:
        if self.is_storeless:
            raise ConfigError(
                "a handler in a process has no store: let it make jobs with ctx.spawn(…), or return what an "
                "inline task enqueues"
            )
        if self.client is None:
            raise ConfigError("the app is not open: do this inside `async with app:`")
        if self.loop is not asyncio.get_running_loop():
            raise ConfigError("the app was opened in another event loop: from other threads use app.blocking")
        return self.client
