"""The store's clock is set forward and back: what follows on every store, and what the checker says of it."""

import pytest

from penstock.core.clocks import FENCE_LIMIT, FLOOR_US, STEP_MS, ClockStep
from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Cron, Every
from penstock.core.history import Checker
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.moves import Complete, Release
from penstock.core.outcomes import Enqueued
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.maintenance.duties import QueueDuties
from penstock.stores.protocol import Store
from penstock.stores.values import StoredSchedule
from penstock.testing.conformance.arrange import claim, claim_one, enqueue, new_job, record_of, settle
from penstock.testing.conformance.parts import Part, needs

MINUTE = 60_000
LEASE_MS = 30_000
STEPS = (50_000, 50 * MINUTE, 60 * MINUTE)


async def breaches(store: Store, queue: QueueRef) -> list[str]:
    """What the checker says of the whole history."""
    checker = Checker(in_order=store.numbers_in_order)
    for event in await store.events.read_events(queue, limit=10_000):
        checker.feed(event)
    return [str(breach) for breach in checker.finish().breaches]


async def put(store: Store, queue: QueueRef, name: str, spec: Every | Cron) -> int:
    """A schedule that waits for its next instant."""
    schedule = Schedule(name=name, spec=spec, task="t", payload=b"{}")
    now = await store.clock.now()
    next_at = schedule.due(now, now).next
    assert next_at is not None
    await store.schedules.put_schedule(StoredSchedule(queue, name, encode_schedule(schedule), next_at))
    return next_at


@needs(Part.HEALTH, Part.UPKEEP, Part.SCHEDULES, Part.FLOWS)
@pytest.mark.parametrize("by_ms", STEPS)
async def test_a_step_back_ends_what_was_measured_by_the_old_time(
    store: Store, queue: QueueRef, by_ms: int
) -> None:
    """By up to a minute it is waited out; then nothing ends."""
    is_followed = by_ms > STEP_MS
    await enqueue(store, queue, [new_job("held"), new_job("late", delay_ms=10_000)])
    held = await claim_one(store, queue, LEASE_MS)
    duties = QueueDuties(store, queue)
    await duties.do_all()
    before = await store.clock.now()
    await store.clock.advance_clock(-by_ms)
    await store.upkeep.due_queues(queue.tenant, [queue.name])
    after = await store.clock.now()
    await duties.do_all()
    found = await record_of(store, queue, "held")
    delayed = await record_of(store, queue, "late")
    await store.upkeep.due_queues(queue.tenant, [queue.name])
    info = await store.queues.find_queue(queue)

    assert after < before or not is_followed
    assert (found.state is State.ACTIVE) is not is_followed
    assert delayed.state is State.DELAYED
    assert info is not None
    if is_followed:
        assert info.clock_step is not None
        assert abs(info.clock_step.back_ms - by_ms) < MINUTE
        assert info.clock_step.holds_back(after)
        again = await claim_one(store, queue, LEASE_MS) if found.state is State.PENDING else None
        assert again is None or again.fence > held.fence
    else:
        assert info.clock_step is None
        await settle(store, queue, Complete("held", held.token))
    await store.clock.advance_clock(by_ms + 11_000)
    await duties.do_all()

    assert (await record_of(store, queue, "late")).state is State.PENDING
    assert await breaches(store, queue) == []
    assert await store.health.check(queue) == []


@needs(Part.SCHEDULES, Part.FLOWS)
@pytest.mark.parametrize("by_ms", STEPS)
async def test_schedules_go_on_after_a_step_forward_and_back(
    store: Store, queue: QueueRef, by_ms: int
) -> None:
    """No instant makes a second job."""
    await put(store, queue, "every", Every.of(20))
    await put(store, queue, "cron", Cron.of("* * * * *"))
    duties = QueueDuties(store, queue)
    for turn in (by_ms, -by_ms):
        await store.clock.advance_clock(turn)
        await duties.do_all()
    now = await store.clock.now()
    waits = {
        each.name: (each.next_at or 0) - now for each in await store.schedules.list_schedules(queue.tenant)
    }
    # A step of up to a minute is waited out first.
    await store.clock.advance_clock(max(waits.values()) + STEP_MS)
    await duties.do_all()
    fired = [
        event for event in await store.events.read_events(queue, limit=10_000) if event.schedule is not None
    ]

    assert waits["every"] <= 20_000 + STEP_MS
    assert waits["cron"] <= 2 * MINUTE
    assert {event.schedule for event in fired} == {"every", "cron"}
    assert len({(event.schedule, event.instant) for event in fired}) == len(fired)
    assert await breaches(store, queue) == []


@needs(Part.UPKEEP, Part.SCHEDULES, Part.FLOWS)
async def test_a_fresh_process_lets_schedules_go_on_after_a_step(store: Store, queue: QueueRef) -> None:
    """It finds the step with the store."""
    await store.clock.advance_clock(60 * MINUTE)
    await put(store, queue, "every", Every.of(20))
    await enqueue(store, queue, [new_job("a")])
    await QueueDuties(store, queue).do_all()
    await store.clock.advance_clock(-60 * MINUTE)
    await enqueue(store, queue, [new_job("b")])
    await store.clock.now()
    await store.upkeep.due_queues(queue.tenant, [queue.name])
    await QueueDuties(store, queue).do_all()
    [schedule] = await store.schedules.list_schedules(queue.tenant)

    assert (schedule.next_at or 0) - await store.clock.now() <= 20_000 + STEP_MS


@needs(Part.UPKEEP, Part.SCHEDULES, Part.FLOWS)
async def test_a_schedule_of_a_queue_without_a_move_goes_on_after_a_step(
    store: Store, queue: QueueRef
) -> None:
    """It was put by the old time, and paused while the clock was set back."""
    await enqueue(store, queue, [new_job("a")])
    await store.clock.advance_clock(60 * MINUTE)
    await put(store, queue, "every", Every.of(20))
    await store.schedules.pause_schedule(queue, "every", True)
    await store.clock.advance_clock(-60 * MINUTE)
    await store.clock.now()
    await store.upkeep.due_queues(queue.tenant, [queue.name])
    await store.schedules.pause_schedule(queue, "every", False)
    await QueueDuties(store, queue).do_all()
    [schedule] = await store.schedules.list_schedules(queue.tenant)

    assert (schedule.next_at or 0) - await store.clock.now() <= 20_000 + STEP_MS


@needs(Part.HEALTH, Part.LIMITS)
@pytest.mark.parametrize(
    "declaration",
    [
        Declaration(rate=Rate(1, 1_000, burst=2)),
        Declaration(mode=Mode.KEYED, key_limit=10, key_rate=Rate(1, 1_000, burst=2)),
    ],
    ids=["queue", "key"],
)
@pytest.mark.parametrize("by_ms", STEPS)
async def test_a_rate_starts_anew_after_a_step_back(
    store: Store, queue: QueueRef, by_ms: int, declaration: Declaration
) -> None:
    """A step of up to a minute is waited out."""
    key = "k" if declaration.mode.has_keys else None
    await store.queues.declare(queue, declaration)
    await enqueue(store, queue, [new_job(key=key) for _ in range(10)])
    await store.clock.advance_clock(by_ms)
    before = await claim(store, queue)
    await store.clock.advance_clock(-by_ms)
    await claim(store, queue)
    await store.clock.advance_clock(STEP_MS + 2_000)
    after = await claim(store, queue)

    assert len(before) == 2
    assert len(after) == 2
    assert await breaches(store, queue) == []
    assert await store.health.check(queue) == []


@needs(Part.HEALTH, Part.UNIQUE)
@pytest.mark.parametrize("is_pruned", [False, True], ids=["there", "pruned"])
async def test_a_throttle_ends_with_the_time_it_was_measured_by(
    store: Store, queue: QueueRef, is_pruned: bool
) -> None:
    """Its window would be longer by the step."""
    kind = Unique("kind", UniqueRule.THROTTLE, 10 * MINUTE)
    await store.clock.advance_clock(60 * MINUTE)
    await enqueue(store, queue, [new_job("a", unique=kind)])
    if is_pruned:
        await store.moves.delete(queue, ["a"])
    [held] = await store.moves.enqueue(queue, [new_job("b", unique=kind)])
    await store.clock.advance_clock(-60 * MINUTE)
    [let_in, held_again] = [
        (await store.moves.enqueue(queue, [new_job(name, unique=kind)]))[0] for name in ("c", "d")
    ]

    answers = [held, let_in, held_again]
    assert [isinstance(each, Enqueued) and each.created for each in answers] == [False, True, False]
    assert await store.health.check(queue) == []


async def test_no_fence_is_lower_than_its_floor(store: Store, queue: QueueRef) -> None:
    """Unless that lies more than an hour above the store's time."""
    await enqueue(store, queue, [new_job("a")])
    now_us = await store.clock.now() * 1000
    high, too_high = now_us + FLOOR_US - 60_000_000, now_us + FLOOR_US + 60_000_000
    fences: list[int] = []
    for floor in (high, 0, too_high):
        claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS, floor_us=floor)
        [job] = claims.jobs
        fences.append(job.fence)
        assert abs(claims.now_us - now_us) < 60_000_000
        await settle(store, queue, Release("a", job.token))

    assert fences == [high, high + 1, high + 2]
    assert max(fences) < FENCE_LIMIT


def test_a_step_holds_back_until_the_old_time_has_come_again() -> None:
    step = ClockStep(at=1_000, back_ms=500)

    assert step.holds_back(1_499)
    assert not step.holds_back(1_500)
