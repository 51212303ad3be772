"""Claims that a store leaves standing, as the worker sees them."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.worker.lease import LeaseKeeper
from penstock.worker.outage import Outage
from tests.worker.kit import Desk, eventually

LEASE = 30.0


class Standing(MemoryStore):
    """Leaves a claim standing; what the next one brings has `left_ms` of its lease, from then on."""

    def __init__(self, left_ms: int = round(LEASE * 1000)) -> None:
        super().__init__()
        self.left_ms = left_ms
        self.stood: int | None = None
        self.wishes: list[tuple[int, int]] = []
        self.is_down = False

    async def claim(self, *args: Any, **kwargs: Any) -> Claims:
        self.wishes.append((kwargs["limit"], kwargs["stand_ms"]))
        if self.is_down:
            raise StoreUnavailableError("it is down")
        claims = await super().claim(*args, **kwargs)
        if not claims.jobs and kwargs["stand_ms"]:
            self.stood = await self.now()
            return replace(claims, stands=self.stood)
        if claims.jobs and self.stood is not None:
            deadline = self.stood + self.left_ms
            claims = replace(claims, jobs=[replace(job, deadline=deadline) for job in claims.jobs])
            self.stood = None
        return claims


async def test_a_job_whose_lease_is_nearly_over_when_it_arrives_is_not_begun(queue: QueueRef) -> None:
    """The store leased it while the worker waited: the worker's own clock says since when at the earliest."""
    store = Standing(left_ms=500)
    desk = Desk(queue, store)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1

    async with desk.working(work, lease=LEASE):
        await eventually(lambda: _holds(store.stood is not None))
        job = await desk.enqueue("work")
        done = await desk.ended(job)

    assert done.state is State.COMPLETED
    assert await desk.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.RELEASE, Move.CLAIM, Move.COMPLETE]
    assert begun == 1


async def test_a_worker_stands_again_once_it_has_nothing_to_do(queue: QueueRef) -> None:
    """While jobs run here it does not: they might hold it up."""
    store = Standing()
    desk = Desk(queue, store)
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    async with desk.working(work, lease=LEASE, poll=5.0, concurrency=2):
        await eventually(lambda: _holds(store.stood is not None))
        job = await desk.enqueue("work")
        await desk.reaches(job, State.ACTIVE)
        await desk.enqueue("nothing known by that name")
        await eventually(lambda: _holds(len(store.wishes) >= 3))
        while_running = store.wishes[2:]
        go_on.set()
        await desk.ended(job)
        await eventually(lambda: _holds(store.stood is not None))
    stand_ms = [wish[1] for wish in while_running]

    assert set(stand_ms) == {0}
    assert store.wishes[-1] == (0, 0)


async def test_a_worker_that_shares_its_loop_does_not_stand(queue: QueueRef) -> None:
    """A job that the other one begins may hold up both, after the claim was left standing."""
    store = Standing()
    other, desk = Desk(QueueRef(queue.tenant, "other")), Desk(queue, store)

    async def work() -> None: ...

    async with desk.working(work, lease=LEASE, poll=0.01):
        async with other.working(work, lease=LEASE):
            before = len(store.wishes)
            await desk.ended(await desk.enqueue("work"))
            await eventually(lambda: _holds(len(store.wishes) >= before + 3))
            shared = store.wishes[before + 1 :]
        await eventually(lambda: _holds(store.wishes[-1][1] > 0))

    assert {stand_ms for _, stand_ms in shared} == {0}


async def test_what_is_leased_by_a_claim_that_stands_runs_out_where_the_loop_is_held_up(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper does not renew it: others could have it."""
    keepers: list[LeaseKeeper] = []
    store = Standing()
    desk = Desk(queue, store)
    start = LeaseKeeper.start

    def started(keeper: LeaseKeeper) -> None:
        keepers.append(keeper)
        start(keeper)

    monkeypatch.setattr(LeaseKeeper, "start", started)

    async def work() -> None: ...

    async with desk.working(work, lease=LEASE):
        await eventually(lambda: _holds(store.stood is not None))
        await asyncio.sleep(0)
        [keeper] = keepers

        assert keeper.claim_sent is None


async def test_the_end_of_a_job_does_not_end_the_pause_after_a_failure(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the wait for the bell alone."""
    store = Standing()
    desk = Desk(queue, store)
    go_on = asyncio.Event()
    monkeypatch.setattr(Outage, "failed", lambda *_: 60.0)

    async def work() -> None:
        await go_on.wait()

    async with desk.working(work, lease=LEASE, concurrency=2):
        job = await desk.enqueue("work")
        await desk.reaches(job, State.ACTIVE)
        store.is_down = True
        before = len(store.wishes)
        await desk.enqueue("work")
        await eventually(lambda: _holds(len(store.wishes) > before))
        go_on.set()
        await desk.ended(job)
        await asyncio.sleep(0.05)

        assert len(store.wishes) == before + 1


async def test_a_worker_that_comes_back_late_does_not_stand(queue: QueueRef) -> None:
    """What did not reach it would run out before it asks again."""
    store = Standing()
    desk = Desk(queue, store)

    async def work() -> None: ...

    async with desk.working(work, lease=LEASE, poll=LEASE):
        await desk.ended(await desk.enqueue("work"))
    await desk.enqueue("work")
    await desk.burst(work)

    assert {stand_ms for _, stand_ms in store.wishes} == {0}


async def test_where_claims_do_not_stand_nothing_is_asked_for_in_between(queue: QueueRef) -> None:
    """One look at the end of the first job shows it."""

    class Counting(MemoryStore):
        claims = 0

        async def claim(self, *args: Any, **kwargs: Any) -> Claims:
            self.claims += 1
            return await super().claim(*args, **kwargs)

    store = Counting()
    desk = Desk(queue, store)

    async def work() -> None: ...

    async with desk.working(work):
        await eventually(lambda: _holds(store.claims == 1))
        for done in range(1, 6):
            await desk.ended(await desk.enqueue("work"))
            await eventually(lambda wanted=done + 1: _holds(store.claims >= wanted))  # type: ignore[misc]

    assert store.claims == 6


async def _holds(what: bool) -> bool:
    return what
