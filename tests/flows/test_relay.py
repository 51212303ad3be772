"""The relayer: bounded runs, in order, past what cannot go over yet."""

from typing import Any

import pytest

from penstock import JobRef, NewJob, QueueRef, State
from penstock.client.relay import relay
from penstock.core.errors import StoreUnavailableError
from penstock.core.limits import Declaration
from penstock.core.moves import Beat, Complete
from penstock.core.outcomes import Applied, Enqueued, Refused
from penstock.maintenance import relayer
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Adoption, Spawn
from tests.kit.intercepted import InterceptedStore

HOME, TIGHT, SUMS = (QueueRef("default", name) for name in ("home", "tight", "sums"))


def new(job: str, **given: Any) -> NewJob:
    return NewJob(id=job, nonce="n", task="t", payload=b"{}", **given)


async def test_what_finds_no_room_stays_and_holds_up_nothing_else() -> None:
    store = MemoryStore()
    await store.queues.declare(TIGHT, Declaration(max_length=1))
    parent, child = JobRef("sums", "parent"), JobRef("home", "child")
    await store.moves.enqueue(SUMS, [new("parent", awaits=(child,))])
    await store.moves.enqueue(
        HOME, [new("first")], [Spawn("tight", new(f"{number}")) for number in range(450)]
    )
    await store.moves.enqueue(HOME, [new("child", parents=(parent,), priority=9)])
    (job,) = (await store.moves.claim(HOME, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.moves.settle(HOME, [Complete(job.id, job.token, b"1")])

    assert await relay(store, HOME) == 2
    (found,) = await store.reads.get(SUMS, ["parent"])
    assert found is not None
    assert found.state is State.PENDING
    assert len(await store.flows.list_relay_entries(HOME, 1_000)) == 449

    await store.moves.cancel(TIGHT, ["0"])
    assert await relay(store, HOME) == 1
    assert await relay(store, HOME) == 0


async def test_a_run_carries_no_more_than_it_was_told() -> None:
    store = MemoryStore()
    await store.moves.enqueue(HOME, [new("first")], [Spawn("sums", new(f"{number}")) for number in range(7)])

    assert [await relay(store, HOME, limit=3) for _ in range(4)] == [3, 3, 1, 0]
    assert [job.id for job in (await store.moves.claim(SUMS, worker="w", limit=9, lease_ms=30_000)).jobs] == [
        f"{number}" for number in range(7)
    ]


async def test_endings_for_parents_that_are_gone_are_dropped() -> None:
    store = MemoryStore()
    await store.moves.enqueue(HOME, [new("child", parents=(JobRef("sums", "gone"),))])
    await store.moves.cancel(HOME, ["child"])

    assert await relay(store, HOME) == 1
    assert await store.flows.list_relay_entries(HOME) == []


class PartlyAway(InterceptedStore):
    """A store of which some queues cannot be reached, as when a node of a cluster is away."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[QueueRef] = set()

    def _reach(self, queue: QueueRef) -> None:
        if queue in self.away:
            raise StoreUnavailableError(f"queue {queue} is away")

    async def enqueue(self, queue: QueueRef, *given: Any) -> list[Enqueued | Refused]:
        self._reach(queue)
        return await self.real.moves.enqueue(queue, *given)

    async def adopt(self, queue: QueueRef, *given: Any) -> list[Applied | Refused]:
        self._reach(queue)
        return await self.real.flows.adopt(queue, *given)

    async def child_ended(self, queue: QueueRef, *given: Any) -> list[Applied | Refused]:
        self._reach(queue)
        return await self.real.flows.child_ended(queue, *given)


async def test_a_queue_that_is_away_holds_up_nothing_for_others() -> None:
    store = PartlyAway()
    await store.queues.open_queue(TIGHT)
    spawns = [Spawn(("tight", "sums")[number % 2], new(f"{number}")) for number in range(450)]
    await store.moves.enqueue(HOME, [new("first")], spawns)
    store.away = {TIGHT}

    carried = [await relay(store, HOME), await relay(store, HOME)]
    with pytest.raises(StoreUnavailableError, match="queue tight is away"):
        await relay(store, HOME)
    reached = (await store.reads.counts(SUMS))[State.PENDING]
    store.away = set()
    while await relay(store, HOME):
        pass

    assert (sum(carried), reached) == (225, 225)
    claimed = (await store.moves.claim(TIGHT, worker="w", limit=500, lease_ms=30_000)).jobs
    assert [job.id for job in claimed] == [f"{number}" for number in range(0, 450, 2)]


async def test_children_wait_for_a_parent_whose_queue_is_away() -> None:
    """A child that ended before its parent knew of it would be waited for for ever."""
    store = PartlyAway()
    parent, child = JobRef("tight", "parent"), JobRef("sums", "child")
    await store.moves.enqueue(TIGHT, [new("parent", awaits=(JobRef("home", "first"),))])
    await store.moves.enqueue(HOME, [new("first", parents=(parent,))])
    (job,) = (await store.moves.claim(HOME, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.flows.spawn(HOME, Beat(job.id, job.token), [Spawn("sums", new("child", parents=(parent,)))])
    kinds = [type(entry.what) for entry in await store.flows.list_relay_entries(HOME)]
    store.away = {TIGHT}

    with pytest.raises(StoreUnavailableError):
        await relay(store, HOME)
    early = await store.reads.get(SUMS, ["child"])
    store.away = set()
    carried = await relay(store, HOME)

    assert kinds == [Adoption, NewJob]
    assert (early, carried) == ([None], 2)
    assert child in [each.ref for each in await store.flows.children(TIGHT, "parent")]


def test_the_duty_is_the_same_function() -> None:
    assert relayer.relay is relay
