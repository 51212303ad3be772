"""How many jobs a worker asks for at once: half of its slots, or all where the server works for others."""

import asyncio
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.worker.appetite import Appetite
from penstock.worker.clock import boottime
from tests.worker.kit import Desk

SLOTS = 8
HALF = 4
ANSWER_SECONDS = 1_000.0
"""More than a machine under load stalls between two calls."""


class Busy(MemoryStore):
    """A server that answers one call after the other, and claims late; others claim there, or not."""

    is_server: ClassVar[bool] = True

    def __init__(self, *, is_contended: bool) -> None:
        super().__init__()
        self.is_contended = is_contended
        self.seconds = 0.0
        self._line = asyncio.Lock()
        self.asked: list[int] = []

    async def claim(self, *args: Any, **kwargs: Any) -> Claims:
        self.asked.append(kwargs["limit"])
        async with self._line:
            claims = await super().claim(*args, **kwargs)
            await self._work()
            self.seconds += ANSWER_SECONDS
            return replace(claims, is_contended=self.is_contended)

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        async with self._line:
            await self._work()
            return await super().settle(*args, **kwargs)

    async def _work(self) -> None:
        """Long enough for what was claimed before to end."""
        for _ in range(10):
            await asyncio.sleep(0)


def desk_at(store: Busy, queue: QueueRef, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("penstock.worker.claim.boottime", lambda: boottime() + store.seconds)
    return Desk(queue, store)


@pytest.mark.parametrize(
    ("is_contended", "asked"),
    [
        pytest.param(True, [HALF, HALF, SLOTS, SLOTS], id="with others"),
        pytest.param(False, [HALF] * 6, id="alone"),
    ],
)
async def test_a_worker_asks_for_all_slots_where_the_server_works_for_others(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch, is_contended: bool, asked: list[int]
) -> None:
    store = Busy(is_contended=is_contended)
    desk = desk_at(store, queue, monkeypatch)

    async def work() -> None: ...

    jobs = [await desk.enqueue("work") for _ in range(3 * SLOTS)]
    await desk.burst(work, concurrency=SLOTS)

    assert store.asked[: len(asked)] == asked
    assert {(await desk.job(job)).state for job in jobs} == {State.COMPLETED}


async def test_a_worker_whose_jobs_take_longer_than_the_answers_asks_for_half(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next are on their way while these run."""
    store = Busy(is_contended=True)
    desk = desk_at(store, queue, monkeypatch)

    async def work() -> None:
        store.seconds += ANSWER_SECONDS

    for _ in range(3 * SLOTS):
        await desk.enqueue("work")
    await desk.burst(work, concurrency=SLOTS)

    assert store.asked[:5] == [HALF, HALF, SLOTS, HALF, HALF]


async def test_a_job_that_lasts_does_not_keep_others_waiting(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Busy(is_contended=True)
    desk = desk_at(store, queue, monkeypatch)
    gate = asyncio.Event()

    async def work() -> None: ...

    async def hold() -> None:
        await gate.wait()

    for _ in range(SLOTS):
        await desk.enqueue("work")
    held = await desk.enqueue("hold")
    jobs = [await desk.enqueue("work") for _ in range(3 * SLOTS)]
    async with desk.working(work, hold, concurrency=SLOTS):
        ended = [await desk.ended(job) for job in jobs]
        last = await desk.ended(await desk.enqueue("work"))
        still = (await desk.job(held)).state
        gate.set()

    # With the third it begins; from the fifth on the worker knows that it is not idle.
    assert store.asked[:4] == [HALF, HALF, SLOTS, SLOTS - 1]
    assert max(store.asked[4:]) <= HALF
    assert {job.state for job in [*ended, last]} == {State.COMPLETED}
    assert still is State.ACTIVE


@pytest.mark.parametrize("is_kept_waiting", [False, True])
def test_an_appetite_never_ends_and_never_grows_beyond_its_bound(is_kept_waiting: bool) -> None:
    appetite = Appetite(6, is_server=True)
    appetite.is_kept_waiting = is_kept_waiting
    appetite.shrink(1)
    least = appetite.limit
    for _ in range(10):
        appetite.grow(appetite.limit)

    assert (least, appetite.limit) == (1, 6 if is_kept_waiting else 3)


def test_an_appetite_does_not_grow_beyond_what_was_tried() -> None:
    appetite = Appetite(6, is_server=True)
    appetite.shrink(6)
    for _ in range(10):
        appetite.grow(appetite.limit)
    appetite.is_kept_waiting = True

    assert appetite.limit == 4


@pytest.mark.parametrize("uptime", [0.0, 1_000_000.0])
def test_the_first_answer_keeps_nobody_waiting_however_long_the_machine_is_up(uptime: float) -> None:
    appetite = Appetite(6, is_server=True)
    appetite.answered(uptime, uptime + ANSWER_SECONDS, waits_for_others=True)

    assert not appetite.is_kept_waiting
