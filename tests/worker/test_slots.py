"""Slots are taken and given back exactly once, in whatever order things end."""

import asyncio

from penstock.core.decide import Returned
from penstock.core.job import Claimed
from penstock.core.states import State
from penstock.worker.clock import boottime
from penstock.worker.slots import Slots
from penstock.worker.worker import _Run
from tests.kit.waiting import PATIENCE
from tests.worker.kit import Desk


async def test_waiting_for_a_slot_ends_when_one_is_given_back() -> None:
    slots = Slots(2)
    slots.take(2)
    waiting = asyncio.create_task(slots.free())
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.give_back(1)
    await waiting

    assert slots.spare == 1


async def test_idle_is_told_when_the_last_one_is_given_back() -> None:
    slots = Slots(3)
    told: list[int] = []
    slots.when_idle = lambda: told.append(slots.taken)
    slots.take(3)
    slots.give_back(2)
    assert told == []
    slots.give_back(1)
    async with asyncio.timeout(PATIENCE):
        await slots.idle()

    assert told == [0]


async def test_a_job_that_is_stopped_before_its_task_had_a_turn_is_given_back(desk: Desk) -> None:
    async def never() -> None:
        raise AssertionError

    job, claimed = await _claimed(desk, "never")
    run = _Run(desk.worker(never))
    run._executions.start(claimed, [boottime() + 30])
    run._executions.stop_all()
    await asyncio.sleep(0)
    await run._settler.flush()

    assert (await desk.job(job)).state is State.PENDING
    assert run._slots.taken == 0


async def test_a_handler_that_ends_between_its_early_settlement_and_the_call_gives_one_slot_back(
    desk: Desk,
) -> None:
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    job, claimed = await _claimed(desk, "work")
    run = _Run(desk.worker(work, concurrency=2))
    executions = run._executions
    executions.start(claimed, [boottime() + 30])
    await asyncio.sleep(0)
    (delivery,) = executions._executing
    executions._give_up(delivery)
    executions._end(delivery, Returned())
    await run._settler.flush()

    assert run._slots.taken == 0
    assert (await desk.job(job)).reason == "TIMEOUT"


async def test_a_claim_whose_answer_came_too_late_is_given_back_unrun(desk: Desk) -> None:
    async def never() -> None:
        raise AssertionError

    job, claimed = await _claimed(desk, "never")
    run = _Run(desk.worker(never))
    run._executions.start(claimed, [boottime() - 1])
    await run._settler.flush()

    found = await desk.job(job)
    assert (found.state, found.attempts) == (State.PENDING, 0)
    assert run._slots.taken == 0


async def _claimed(desk: Desk, task: str) -> tuple[str, list[Claimed]]:
    job = await desk.enqueue(task)
    claims = await desk.store.moves.claim(desk.queue, worker="w", limit=1, lease_ms=30_000)
    return job, claims.jobs
