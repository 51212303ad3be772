"""The limits of a claim travel to the service, which has bounds of its own."""

from typing import Any

import pytest

from penstock.core.errors import InvalidError
from penstock.core.job import QueueRef
from penstock.core.limits import MOST_PER_CALL
from penstock.core.outcomes import Claims
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.memory import MemoryStore
from tests.conformance.stores import Place
from tests.kit.intercepted import InterceptedStore
from tests.stores.remote.kit import opened

QUEUE = QueueRef("acme", "q")
FIELDS = ClaimLimits.__struct_fields__


class Listening(InterceptedStore):
    """A store that remembers the limits of its claims."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[ClaimLimits | None] = []

    async def claim(self, *args: Any, **given: Any) -> Claims:
        self.limits.append(given.get("limits"))
        return await self.real.moves.claim(*args, **given)


async def test_the_limits_of_a_claim_reach_the_store_of_the_service(where: Place) -> None:
    behind = Listening()
    limits = ClaimLimits(claim_scan=7, promote_limit=8, recover_limit=9)
    async with opened(where.service(lambda: behind)) as store:
        await store.queues.open_queue(QUEUE)
        await store.moves.claim(QUEUE, worker="w", limit=1, lease_ms=1_000, limits=limits)
        await store.moves.claim(QUEUE, worker="w", limit=1, lease_ms=1_000)

    assert behind.limits == [limits, ClaimLimits()]


@pytest.mark.parametrize("found", [0, MOST_PER_CALL + 1])
@pytest.mark.parametrize("field", FIELDS)
async def test_limits_beyond_those_of_the_service_are_refused_and_named(
    where: Place, field: str, found: int
) -> None:
    async with opened(where.service(MemoryStore)) as store:
        await store.queues.open_queue(QUEUE)
        limits = ClaimLimits(**{field: found})
        with pytest.raises(InvalidError, match=rf"{field}.*found {found}, .*from 1 to {MOST_PER_CALL}"):
            await store.moves.claim(QUEUE, worker="w", limit=1, lease_ms=1_000, limits=limits)
