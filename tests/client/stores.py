"""Stores that misbehave, as a network does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.stores.protocol import Subscription
from penstock.stores.values import Spawn, Topic
from tests.kit.intercepted import InterceptedStore


class Recording(InterceptedStore):
    """Keeps the sizes of the enqueue calls it got."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        self.calls.append(len(jobs))
        return await self.real.moves.enqueue(queue, jobs, spawns, mode)


class LostReplies(Recording):
    """Applies each enqueue; the first answers are lost."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost = lost

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        answers = await super().enqueue(queue, jobs, spawns, mode)
        if len(self.calls) <= self.lost:
            raise StoreUnavailableError("the connection went away")
        return answers


class Unreachable(Recording):
    """Answers the first calls and then goes away."""

    def __init__(self, answered: int = 0) -> None:
        super().__init__()
        self.answered = answered

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        if len(self.calls) >= self.answered:
            self.calls.append(len(jobs))
            raise StoreUnavailableError("nobody there")
        return await super().enqueue(queue, jobs, spawns, mode)


class Full(InterceptedStore):
    """Takes in one job at most."""

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        first = await self.real.moves.enqueue(queue, jobs[:1], spawns, mode)
        return [*first, *(Refused(Refusal.FULL) for _ in jobs[1:])]


class _NoBell:
    def __init__(self, store: "Deaf") -> None:
        self._store = store

    async def wait(self, timeout: float) -> bool:
        self._store.waits.append(timeout)
        await self._store.meanwhile()
        await asyncio.sleep(0)
        return False


class Deaf(InterceptedStore):
    """Its subscriptions never ring: `meanwhile` happens instead of the time a wait takes."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def meanwhile(self) -> None: ...

    @asynccontextmanager
    async def _nothing(self) -> AsyncIterator[Subscription]:
        yield _NoBell(self)

    def subscribe(self, queue: QueueRef, topic: Topic) -> Any:
        return self._nothing()
