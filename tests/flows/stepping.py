"""Running several coroutines on one store step by step, in an order that a test chooses."""

import random
from collections.abc import Coroutine, Generator, Sequence
from types import coroutine
from typing import Any

from penstock.core.flows import ChildEnding
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Applied, Enqueued, Refused
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.values import Adoption, Relay, Spawn
from tests.kit.intercepted import InterceptedStore


@coroutine
def _pause() -> Generator[None, None, None]:
    yield


class Stepping(InterceptedStore):
    """Gives way before and after every call that a relayer makes."""

    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        await _pause()
        found = await self.real.flows.list_relay_entries(queue, limit, after=after)
        await _pause()
        return found

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        await _pause()
        answers = await self.real.moves.enqueue(queue, jobs, spawns, mode)
        await _pause()
        return answers

    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        await _pause()
        return await self.real.flows.adopt(queue, adoptions)

    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        await _pause()
        return await self.real.flows.child_ended(queue, endings)

    async def delete_relay_entries(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        await _pause()
        await self.real.flows.delete_relay_entries(queue, numbers)


def step(work: Coroutine[Any, Any, Any]) -> bool:
    """Let it go on to its next call; False when it has ended."""
    try:
        work.send(None)
    except StopIteration:
        return False
    return True


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    """Let it go on to its end; what it came to."""
    while True:
        try:
            work.send(None)
        except StopIteration as stop:
            return stop.value


class Chance(random.Random):
    """Choices of a test, repeated by its seed."""

    def one_in(self, number: int) -> bool:
        """True so often."""
        return self.randrange(number) == 0
