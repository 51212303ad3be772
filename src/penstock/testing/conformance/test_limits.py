"""Limits of a whole queue: how many run at once, how fast they start, and how many may wait."""

from bisect import bisect_right

import pytest
from msgspec.structs import replace

from penstock.core.flows import JobRef
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.moves import Complete, Expire, Release, Retry
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, Spawn
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, enqueue, new_job, settle, states_of
from penstock.testing.conformance.parts import Part, needs
from penstock.testing.conformance.readiness import CHILD

pytestmark = needs(Part.FLOWS, Part.KEYS, Part.LIMITS)

FULL = Refused(Refusal.FULL)
MODES = [Mode.GLOBAL, Mode.KEYED]


def jobs(count: int, *, start: int = 0) -> list[str]:
    """Names of jobs, each of which is its own key where there are keys."""
    return [f"j{n}" for n in range(start, start + count)]


async def fill(store: Store, queue: QueueRef, count: int, *, start: int = 0) -> None:
    """Enqueue so many."""
    await enqueue(store, queue, [new_job(name, key=name) for name in jobs(count, start=start)])


# At once


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_no_more_than_max_active_run_over_all_workers(
    store: Store, queue: QueueRef, mode: Mode
) -> None:
    """For every claimer, and every size of a claim."""
    await store.queues.declare(queue, Declaration(mode=mode, max_active=5))
    await fill(store, queue, 12)
    held = await claim(store, queue, 3, worker="one")
    held += await claim(store, queue, 10, worker="two")
    more = await claim(store, queue, 10, worker="three")

    assert [job.id for job in held] == jobs(5)
    assert more == []


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_what_ends_makes_space_for_as_many(store: Store, queue: QueueRef, mode: Mode) -> None:
    """By every way out of running."""
    await store.queues.declare(queue, Declaration(mode=mode, max_active=4))
    await fill(store, queue, 20)
    a, b, c, d = await claim(store, queue)
    await store.clock.advance_clock(LEASE_MS)
    before = await claim(store, queue)
    await store.moves.settle(
        queue,
        [Complete(a.id, a.token), Retry(b.id, b.token, 99_000, FAULT), Release(c.id, c.token)],
    )
    await store.moves.expire(queue, [Expire(d.id, d.token, State.DEAD, FAULT)])
    after = await claim(store, queue)

    assert before == [], "a lease that ran out holds its place until it is recovered"
    assert len(after) == 4
    assert await claim(store, queue) == []


async def test_a_cancel_of_what_runs_makes_no_space(store: Store, queue: QueueRef) -> None:
    """It runs until its worker says otherwise."""
    await store.queues.declare(queue, Declaration(max_active=1))
    await fill(store, queue, 2)
    [held] = await claim(store, queue)
    await store.moves.cancel(queue, [held.id])
    full = await claim(store, queue)
    await settle(store, queue, Release(held.id, held.token))

    assert full == []
    assert [job.id for job in await claim(store, queue)] == ["j1"]


async def test_a_lower_limit_lets_what_runs_go_on(store: Store, queue: QueueRef) -> None:
    """And starts nothing before enough has ended; a higher one starts more at once."""
    await store.queues.declare(queue, Declaration(max_active=4))
    await fill(store, queue, 20)
    held = await claim(store, queue)
    await store.queues.declare(queue, Declaration(version=2, max_active=2))
    started: list[int] = []
    for job in held:
        await settle(store, queue, Complete(job.id, job.token))
        started.append(len(await claim(store, queue)))
    await store.queues.declare(queue, Declaration(version=3, max_active=7))

    assert started == [0, 0, 1, 1]
    assert len(await claim(store, queue)) == 5


# How fast


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(
    "rate",
    [Rate(1, 1_000), Rate(1, 1_000, burst=5), Rate(3, 1_000, burst=2), Rate(7, 2_000, burst=10)],
    ids=lambda rate: f"{rate.count} in {rate.per_ms} ms, {rate.burst} at once",
)
async def test_no_window_has_more_than_the_rate_and_the_burst(
    store: Store, queue: QueueRef, mode: Mode, rate: Rate
) -> None:
    """Of whatever length, wherever it begins, however the claims come."""
    await store.queues.declare(queue, Declaration(mode=mode, rate=rate))
    await fill(store, queue, 150)
    started: list[int] = []
    for n in range(60):
        got = await claim(store, queue, 1 + n % 4, lease_ms=3_000_000)
        started += [job.fence for job in got]
        await store.clock.advance_clock((0, 50, 330, 1_000, 20, 4_000)[n % 6])

    assert len(started) >= 20
    check_windows(started, rate)


def check_windows(started_us: list[int], rate: Rate) -> None:
    """Every window that begins with a start holds at most rate · length + burst."""
    per_us = rate.count / (rate.per_ms * 1000)
    for first, begin in enumerate(started_us):
        for last in range(first, len(started_us)):
            count = bisect_right(started_us, started_us[last]) - first
            assert count <= per_us * (started_us[last] - begin) + rate.burst + 1e-6, (
                f"{count} within {(started_us[last] - begin) / 1000} ms"
            )


async def test_a_claim_held_back_by_the_rate_says_when_to_come_back(store: Store, queue: QueueRef) -> None:
    """Then there is one, and not before."""
    await store.queues.declare(queue, Declaration(rate=Rate(1, 600_000)))
    await fill(store, queue, 5)
    order: list[str] = []
    for _ in range(4):
        order += [job.id for job in await claim(store, queue, lease_ms=3_600_000)]
        empty = await store.moves.claim(queue, worker="w", limit=9, lease_ms=LEASE_MS)
        assert empty.jobs == []
        assert empty.wait_ms is not None
        assert 540_000 < empty.wait_ms <= 600_001
        await store.clock.advance_clock(empty.wait_ms - 60_000)
        assert await claim(store, queue) == []
        await store.clock.advance_clock(60_000)

    assert order == jobs(4)


async def test_a_queue_says_until_when_its_rate_holds_jobs_back(store: Store, queue: QueueRef) -> None:
    """Whether or not any wait."""
    declared = await store.queues.declare(queue, Declaration(rate=Rate(1, 60_000, 2)))
    await fill(store, queue, 2)
    infos = (declared, await claimed_info(store, queue), await claimed_info(store, queue))
    now = await store.clock.now()
    held = [info.held_until(now) for info in infos]
    [listed], opened = await store.queues.list_queues(queue.tenant), await store.queues.open_queue(queue)
    until = held[-1]

    assert held[:2] == [None, None]
    assert until is not None
    assert 0 < until - now <= 60_001
    assert listed == opened == await store.queues.find_queue(queue)
    await store.clock.advance_clock(60_001)
    assert opened.held_until(await store.clock.now()) is None


async def claimed_info(store: Store, queue: QueueRef) -> QueueInfo:
    """The queue after one more claim."""
    await claim(store, queue, 1)
    info = await store.queues.find_queue(queue)
    assert info is not None
    return info


async def test_an_idle_queue_gathers_its_burst_and_no_more(store: Store, queue: QueueRef) -> None:
    """However long it was idle."""
    await store.queues.declare(queue, Declaration(rate=Rate(1, 10_000, burst=4)))
    await store.clock.advance_clock(10_000_000)
    await fill(store, queue, 30)
    counts = []
    for pause_ms in (0, 10_001, 20_001, 3_000_000):
        await store.clock.advance_clock(pause_ms)
        counts.append(len(await claim(store, queue, lease_ms=3_000_000)))

    assert counts == [4, 1, 2, 4]


async def test_an_empty_claim_uses_nothing_of_the_rate(store: Store, queue: QueueRef) -> None:
    """Workers that wait for work cost the queue nothing."""
    await store.queues.declare(queue, Declaration(rate=Rate(1, 60_000, burst=2)))
    for _ in range(10):
        assert await claim(store, queue) == []
    await fill(store, queue, 5)

    assert len(await claim(store, queue)) == 2


async def test_a_rate_declared_later_holds_for_what_waits(store: Store, queue: QueueRef) -> None:
    """And one taken back holds no longer."""
    await fill(store, queue, 9)
    await store.queues.declare(queue, Declaration(rate=Rate(1, 3_600_000)))
    slow = [*await claim(store, queue), *await claim(store, queue)]
    await store.queues.declare(queue, Declaration(version=2))
    rest = await claim(store, queue)

    assert [job.id for job in slow + rest] == jobs(9)
    assert len(slow) == 1


async def test_all_limits_of_a_queue_hold_together(store: Store, queue: QueueRef) -> None:
    """The narrowest decides."""
    declared = Declaration(mode=Mode.KEYED, key_limit=2, max_active=3, rate=Rate(1, 60_000, burst=4))
    await store.queues.declare(queue, declared)
    await enqueue(store, queue, [new_job(f"a{n}", key="a") for n in range(5)])
    by_key = await claim(store, queue)
    await enqueue(store, queue, [new_job(f"b{n}", key="b") for n in range(5)])
    by_max_active = await claim(store, queue)
    await store.moves.settle(queue, [Complete(job.id, job.token) for job in by_key])
    by_rate = await claim(store, queue)

    assert [len(by_key), len(by_max_active), len(by_rate)] == [2, 1, 1]
    assert await claim(store, queue) == []


# How many


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_full_queue_refuses_job_by_job_in_order(store: Store, queue: QueueRef, mode: Mode) -> None:
    """What fits of a batch is taken in, and nothing is dropped to make room."""
    await store.queues.declare(queue, Declaration(mode=mode, max_length=3))
    await fill(store, queue, 1)
    answers = await store.moves.enqueue(queue, [new_job(name, key="k") for name in ("a", "b", "c", "d")])

    assert answers == [
        Enqueued("a", True, State.PENDING),
        Enqueued("b", True, State.PENDING),
        FULL,
        FULL,
    ]
    assert await states_of(store, queue, ["j0", "a", "b", "c"]) == [State.PENDING] * 3 + [None]
    assert await store.events.event_range(queue) == (1, 3)


async def test_repeats_are_not_refused_by_a_full_queue(store: Store, queue: QueueRef) -> None:
    """They take no room: the same job, the same idempotency key, the same kind."""
    await store.queues.declare(queue, Declaration(max_length=1))
    first = new_job("a", idempotency_key="i")
    await store.moves.enqueue(queue, [first])
    other = new_job("b", idempotency_key="i")
    answers = await store.moves.enqueue(queue, [first, new_job("c"), other, first])

    assert answers == [
        Enqueued("a", True, State.PENDING),
        FULL,
        Enqueued("a", False, State.PENDING),
        Enqueued("a", True, State.PENDING),
    ]


async def test_a_refused_job_leaves_its_idempotency_key_free(store: Store, queue: QueueRef) -> None:
    """It can be handed in again later."""
    await store.queues.declare(queue, Declaration(max_length=1))
    await fill(store, queue, 1)
    refused = new_job("a", idempotency_key="i")
    first = await store.moves.enqueue(queue, [refused])
    await claim(store, queue)
    again = await store.moves.enqueue(queue, [refused])

    assert first == [FULL]
    assert again == [Enqueued("a", True, State.PENDING)]


async def test_what_waits_counts_in_every_state_and_what_runs_does_not(store: Store, queue: QueueRef) -> None:
    """Pending, delayed and blocked jobs take room."""
    await store.queues.declare(queue, Declaration(max_length=3))
    waiting = [new_job("p"), new_job("d", delay_ms=9_000), new_job("b", awaits=[CHILD])]
    await store.moves.enqueue(queue, waiting)
    full = await store.moves.enqueue(queue, [new_job("x")])
    await claim(store, queue)
    one = await store.moves.enqueue(queue, [new_job("x"), new_job("y")])

    assert full == [FULL]
    assert one == [Enqueued("x", True, State.PENDING), FULL]


async def test_jobs_that_come_back_are_never_refused(store: Store, queue: QueueRef) -> None:
    """A retry, a release or a redrive may bring more than the length; only new jobs are refused."""
    await store.queues.declare(queue, Declaration(max_length=2))
    await fill(store, queue, 2)
    a, b = await claim(store, queue)
    await fill(store, queue, 2, start=2)
    await store.moves.settle(queue, [Release(a.id, a.token), Retry(b.id, b.token, 0, FAULT)])
    await store.moves.cancel(queue, ["j3"])
    await store.moves.redrive(queue, ["j3"])
    answers = await store.moves.enqueue(queue, [new_job("x")])

    assert answers == [FULL]
    assert sorted(job.id for job in await claim(store, queue)) == jobs(4)


async def test_a_flow_is_let_in_by_its_first_job_and_then_whole(store: Store, queue: QueueRef) -> None:
    """Parents take room while they wait: children that found none would keep them waiting for ever."""
    await store.queues.declare(queue, Declaration(max_length=1))
    root, child = new_job("root", awaits=[JobRef("q", "child")]), JobRef("q", "root")
    spawns = [Spawn("q", new_job("child", parents=[child]))]
    first = await store.moves.enqueue(queue, [root], spawns)
    second = await store.moves.enqueue(queue, [new_job("other-root", awaits=[CHILD])], spawns)
    carried = await store.moves.enqueue(
        queue, [spawns[0].job, new_job("inner", awaits=[CHILD], parents=[child])]
    )
    plain = await store.moves.enqueue(queue, [new_job("plain")])

    assert first == [Enqueued("root", True, State.BLOCKED)]
    assert second == plain == [FULL]
    assert carried == [Enqueued("child", True, State.PENDING), Enqueued("inner", True, State.BLOCKED)]
    assert len(await store.flows.list_relay_entries(queue)) == 1


async def test_a_length_declared_later_holds_for_new_jobs_only(store: Store, queue: QueueRef) -> None:
    """Nothing is dropped of what waits already."""
    await fill(store, queue, 5)
    await store.queues.declare(queue, Declaration(max_length=2))
    full = await store.moves.enqueue(queue, [new_job("x")])

    assert full == [FULL]
    assert [job.id for job in await claim(store, queue)] == jobs(5)
    assert await store.moves.enqueue(queue, [new_job("x")]) == [Enqueued("x", True, State.PENDING)]


async def test_a_key_whose_job_is_gone_does_not_stand_for_a_newer_job_of_its_id(
    store: Store, queue: QueueRef
) -> None:
    """Not even for one that came in the same call."""
    await store.queues.declare(queue, Declaration(max_length=9))
    await enqueue(store, queue, [new_job("a", idempotency_key="k")])
    await store.moves.delete(queue, ["a"])
    answers = await store.moves.enqueue(queue, [new_job("a"), new_job("b", idempotency_key="k")])

    assert answers == [Enqueued("a", True, State.PENDING), Enqueued("a", False, None)]


@pytest.mark.parametrize("what", ["rate", "key_rate"])
async def test_a_faster_rate_holds_from_the_next_claim_on(store: Store, queue: QueueRef, what: str) -> None:
    """What a slower one made it wait for is not waited for."""
    plain = Declaration(mode=Mode.KEYED, key_limit=9)
    await store.queues.declare(queue, replace(plain, **{what: Rate(1, 3_600_000)}))
    await enqueue(store, queue, [new_job(name, key="k") for name in "abc"])
    assert [job.id for job in await claim(store, queue)] == ["a"]

    await store.queues.declare(queue, replace(plain, version=2, **{what: Rate(1, 1_000)}))
    assert await claim(store, queue) == []
    await store.clock.advance_clock(1_001)
    assert [job.id for job in await claim(store, queue)] == ["b"]

    await store.queues.declare(queue, replace(plain, version=3))
    assert [job.id for job in await claim(store, queue)] == ["c"]
