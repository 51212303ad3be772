"""The way from a task to the client of the app that declared it."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

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

    def check_own(self, calls: Iterable[Call[Any]]) -> None:
        """ConfigError for a call of a task that another app declared: it would go into this app's store."""
        for call in calls:
            if call.sender is not None and call.sender is not self:
                raise ConfigError(
                    f"task {call.task!r} is one of another app: enqueue it with that app, or name it here "
                    f"with app.by_name({call.task!r}, queue={call.queue!r})"
                )

    def check_blocking(self) -> None:
        """ConfigError where a wait would stop the event loop that the app is open in."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self.client is not None and self.loop is running:
            raise ConfigError(
                "app.blocking would wait in the event loop that the app is open in, and stop it: "
                "await handle.result() there, or wait in a thread with asyncio.to_thread(…)"
            )

    async def send(self, call: Call[R], /) -> JobHandle[R]:
        self.check_own([call])
        return await self._here().send(call)

    async def send_in(self, connection: object, call: Call[R], /) -> JobHandle[R]:
        self.check_own([call])
        return await self._here().send_in(connection, call)

    async def send_many_in(
        self, connection: object, calls: Sequence[Call[R]], /
    ) -> list[JobHandle[R] | PenstockError]:
        self.check_own(calls)
        return await self._here().send_many_in(connection, calls)

    async def send_many(self, calls: Sequence[Call[R]], /) -> list[JobHandle[R] | PenstockError]:
        self.check_own(calls)
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
