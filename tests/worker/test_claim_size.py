"""How many jobs a worker asks for at once."""

from typing import Any, ClassVar

import pytest

from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims
from penstock.worker.claim_size import ClaimSize
from tests.kit.intercepted import InterceptedStore
from tests.worker.kit import Desk


class Server(InterceptedStore):
    """A store that counts as a server, and notes what claims ask for."""

    is_server: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    async def claim(self, *args: Any, **kwargs: Any) -> Claims:
        self.asked.append(kwargs["limit"])
        return await self.real.moves.claim(*args, **kwargs)


async def test_a_server_is_asked_for_half_of_the_slots(queue: QueueRef) -> None:
    """While these jobs run, the server works on the next ones."""
    store = Server()
    desk = Desk(queue, store)

    async def work() -> None: ...

    for _ in range(20):
        await desk.enqueue("work")
    await desk.burst(work, concurrency=8)

    assert max(store.asked) == 4


@pytest.mark.parametrize(("is_server", "most"), [(True, 3), (False, 6)])
def test_a_claim_size_stays_between_one_and_its_bound(is_server: bool, most: int) -> None:
    """However often a claim is late, and however often it brings all that it asked for."""
    size = ClaimSize(6, is_server=is_server)
    size.shrink(1)
    least = size.limit
    for _ in range(20):
        size.grow(size.limit)

    assert (least, size.limit) == (1, most)


def test_a_claim_size_does_not_grow_from_a_claim_that_asked_for_less() -> None:
    """Only a claim of the whole size shows that the size can be answered."""
    size = ClaimSize(6, is_server=False)
    size.shrink(6)
    size.grow(2)

    assert size.limit == 3
