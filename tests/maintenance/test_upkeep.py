"""One loop for the upkeep of many queues: few tasks, few calls, fair turns, and a sweep behind it all."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import uvloop

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import NewJob, QueueRef
from penstock.core.states import State
from penstock.maintenance.agenda import Agenda
from penstock.maintenance.loop import MaintenanceLoop, MaintenanceOptions
from penstock.maintenance.queue_maintenance import QueueMaintenance
from penstock.maintenance.time_keeper import TimeKeeper
from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.memory import MemoryStore
from penstock.stores.values import DuePage, Duty, QueueInfo
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import eventually, turns
from tests.maintenance.test_rhythm import Counting, at_work
from tests.schedules.kit import made, put

NEVER = 3_600.0


class Blind(Counting):
    """A store whose hints miss everything."""

    async def due_queues(self, tenant: str, *args: Any, **given: Any) -> DuePage:
        page = await self.real.upkeep.due_queues(tenant, *args, **given)
        return DuePage([], page.now, page.next)


class Asked(InterceptedStore):
    """Knows which tenants it was asked about, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.tenants_asked: list[str] = []

    async def due_queues(self, tenant: str, *args: Any, **given: Any) -> DuePage:
        self.tenants_asked.append(tenant)
        return await self.real.upkeep.due_queues(tenant, *args, **given)


async def test_tenants_that_cannot_be_listed_any_more_are_looked_after_as_before() -> None:
    """The list may be on a node of a cluster that is away, and their queues on others."""
    store, lists = Asked(), [["ada"]]

    async def tenants() -> Sequence[str]:
        if not lists:
            raise StoreUnavailableError("the node with the list is away")
        return lists.pop()

    async with at_work(MaintenanceLoop(store, MaintenanceOptions(tick=0.01), tenants=tenants).run):
        await eventually(lambda: _answer(len(store.tenants_asked) >= 5))

    assert not lists
    assert set(store.tenants_asked) == {"ada"}


async def test_a_thousand_idle_queues_hold_few_tasks_and_cost_few_calls(queue: QueueRef) -> None:
    store = Counting()
    await _open(store, queue.tenant, 1_000)
    store.calls.clear()
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05).run):
        await eventually(lambda: _answer(store.calls["due_queues"] >= 60))
        tasks, calls = len(asyncio.all_tasks()), store.calls.copy()

    rounds = calls["due_queues"] / (1_000 / DUE_LIMIT)
    assert tasks <= 20
    # Beside the looks, the sweep visits a few queues; each visit is some eight calls.
    assert calls.total() - calls["due_queues"] <= 100 + rounds


async def test_workers_of_one_process_look_at_their_queues_in_one_call(queue: QueueRef) -> None:
    class Named(InterceptedStore):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[list[str]] = []

        async def due_queues(self, tenant: str, names: Sequence[str] | None = None, **given: Any) -> DuePage:
            self.names.append(sorted(names or []))
            return await self.real.upkeep.due_queues(tenant, names, **given)

    store = Named()
    upkeep = MaintenanceLoop(store)
    before = len(asyncio.all_tasks())
    refs = [QueueRef(queue.tenant, f"q{number}") for number in range(30)]
    runs = [asyncio.create_task(QueueMaintenance(store, ref, tick=0.05, upkeep=upkeep).run()) for ref in refs]
    await eventually(lambda: _answer(sorted(ref.name for ref in refs) in store.names))
    others = len(asyncio.all_tasks()) - before - len(runs)
    for run in runs:
        run.cancel()
    await asyncio.wait(runs)

    # Slots, a look, a sweep, and two for each of a few queues that are listened to.
    assert others <= 1 + 4 + 2 + 2 * 16
    assert len(asyncio.all_tasks()) == before


async def test_one_worker_that_leaves_does_not_end_the_upkeep_of_another(queue: QueueRef) -> None:
    store, other = MemoryStore(), QueueRef(queue.tenant, "other")
    upkeep = MaintenanceLoop(store)
    first = asyncio.create_task(QueueMaintenance(store, queue, tick=0.05, upkeep=upkeep).run())
    second = asyncio.create_task(QueueMaintenance(store, other, tick=0.05, upkeep=upkeep).run())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    await _delay(store, other)
    await store.clock.advance_clock(60_000)
    await eventually(lambda: _has(store, other, State.PENDING, 1))
    second.cancel()
    await asyncio.wait([second])


async def test_a_worker_that_comes_while_the_last_one_leaves_is_served(queue: QueueRef) -> None:
    store, other = MemoryStore(), QueueRef(queue.tenant, "other")
    upkeep = MaintenanceLoop(store)
    first = asyncio.create_task(QueueMaintenance(store, queue, tick=0.05, upkeep=upkeep).run())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    async with at_work(QueueMaintenance(store, other, tick=0.05, upkeep=upkeep).run):
        await asyncio.wait([first])
        await _delay(store, other)
        await store.clock.advance_clock(60_000)
        await eventually(lambda: _has(store, other, State.PENDING, 1))


async def test_tenants_take_turns_whatever_they_have_waiting() -> None:
    agenda = Agenda(asyncio.get_running_loop().time, per_tenant=100)
    for number in range(1_000):
        agenda.put(QueueRef("large", f"q{number}"), [Duty.PROMOTE])
    agenda.put(QueueRef("small", "q"), [Duty.PROMOTE])
    agenda.put(QueueRef("other", "q"), [Duty.PROMOTE])

    visits = [await agenda.take() for _ in range(5)]
    assert [visit.queue.tenant for visit in visits] == ["large", "small", "other", "large", "large"]


async def test_a_queue_is_visited_once_at_a_time_and_again_for_what_came_meanwhile() -> None:
    agenda = Agenda(asyncio.get_running_loop().time, per_tenant=100)
    ref, other = QueueRef("t", "q"), QueueRef("t", "other")
    agenda.put(ref, [Duty.RELAY])
    first = await agenda.take()
    agenda.put(ref, [Duty.RELAY])
    agenda.put(ref, [Duty.FIRE])
    agenda.put(other, [Duty.PRUNE])
    second = await agenda.take()
    agenda.done(first)
    third = await agenda.take()

    assert second.queue == other
    assert (third.queue, third.duties) == (ref, frozenset({Duty.RELAY, Duty.FIRE}))


async def test_a_duty_that_rests_is_planned_for_the_end_of_its_rest() -> None:
    now = asyncio.get_running_loop().time
    agenda = Agenda(now, per_tenant=1)
    ref = QueueRef("t", "q")
    agenda.rest(ref, Duty.PRUNE, now() + 0.05)
    agenda.plan(ref, Duty.PRUNE, now())
    agenda.plan(ref, Duty.FIRE, now())

    first = await agenda.take()
    agenda.done(first)
    second = await agenda.take()
    assert [set(visit.duties) for visit in (first, second)] == [{Duty.FIRE}, {Duty.PRUNE}]


async def test_a_look_gives_each_tenant_one_page_in_turn() -> None:
    store = Asked()
    await _open(store, "large", 4 * DUE_LIMIT)
    await _open(store, "small", 1)
    async with at_work(
        MaintenanceLoop(store, MaintenanceOptions(sweep=NEVER), tenants=store.queues.list_tenants).run
    ):
        await eventually(lambda: _answer(len(store.tenants_asked) >= 5))

    assert store.tenants_asked[:5] == ["large", "small", "large", "large", "large"]


async def test_a_sweep_makes_up_for_what_the_hints_miss(queue: QueueRef) -> None:
    store = Blind()
    await _delay(store, queue)
    await put(store, queue, made(), next_at=1)
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05, sweep=0.05).run):
        await eventually(lambda: _has(store, queue, State.PENDING, 1))
        await store.clock.advance_clock(60_000)
        await eventually(lambda: _has(store, queue, State.DELAYED, 0))


async def test_a_sweep_is_spread_out(queue: QueueRef) -> None:
    store = Blind()
    await _open(store, queue.tenant, 1_000)
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05, sweep=NEVER).run):
        await eventually(lambda: _answer(store.calls["due_queues"] >= 100))

    assert store.calls["list_queues"] == 1
    assert store.calls["promote"] <= 10


async def test_queues_that_cannot_be_reached_keep_no_other_tenant_waiting(queue: QueueRef) -> None:
    class Hanging(InterceptedStore):
        async def promote(self, queue: QueueRef, *args: Any) -> int:
            if queue.name.startswith("bad"):
                await asyncio.Event().wait()
            return await self.real.moves.promote(queue, *args)

    store, other = Hanging(), QueueRef("b", "good")
    for number in range(20):
        await _delay(store, QueueRef("a", f"bad{number}"))
    await _delay(store, other)
    await store.clock.advance_clock(60_000)
    async with at_work(
        MaintenanceLoop(
            store, MaintenanceOptions(tick=0.05, sweep=NEVER), tenants=store.queues.list_tenants
        ).run
    ):
        await eventually(lambda: _has(store, other, State.PENDING, 1))


async def test_a_queue_that_fails_is_logged_once_and_stops_no_other(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(InterceptedStore):
        failures: Counter[str] = Counter()  # noqa: RUF012 (one store)

        async def promote(self, queue: QueueRef, *args: Any) -> int:
            if queue.name == "bad":
                self.failures["promote"] += 1
                raise StoreUnavailableError("down")
            return await self.real.moves.promote(queue, *args)

    store, good = Failing(), QueueRef(queue.tenant, "good")
    for ref in (QueueRef(queue.tenant, "bad"), good):
        await _delay(store, ref)
    await store.clock.advance_clock(60_000)
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05).run):
        await eventually(lambda: _answer(store.failures["promote"] >= 5))
        await eventually(lambda: _has(store, good, State.PENDING, 1))

    assert caplog.text.count("promoting failed, will repeat") == 1


async def test_a_store_that_cannot_say_what_is_due_is_logged_once_and_asked_again(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    store = Counting(["due_queues"])
    await _delay(store, queue)
    await store.clock.advance_clock(60_000)
    caplog.set_level("INFO")
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05, sweep=NEVER).run):
        await eventually(lambda: _answer(store.calls["due_queues"] >= 5))
        store.failing.clear()
        await eventually(lambda: _has(store, queue, State.PENDING, 1))

    assert caplog.text.count("looking for due work failed, will repeat") == 1
    assert caplog.text.count("looking for due work works again") == 1


class PartlyAway(InterceptedStore):
    """Tells that a queue of a cluster cannot be reached, and fails where it is asked for that one alone."""

    asked: Counter[str] = Counter()  # noqa: RUF012 (one store)
    is_back = False

    async def due_queues(self, tenant: str, names: Sequence[str] | None = None, **given: Any) -> DuePage:
        self.asked[",".join(names or ())] += 1
        page = await self.real.upkeep.due_queues(tenant, names, **given)
        if self.is_back or "away" not in (names or ()):
            return page
        if names == ["away"]:
            raise StoreUnavailableError("the node of away is down")
        return DuePage(page.queues, page.now, page.next, ["away"])


async def test_a_look_at_a_few_queues_does_not_say_that_others_can_be_reached_again(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither that what failed works again, nor that all of it fails."""
    store, away = PartlyAway(), QueueRef(queue.tenant, "away")
    options = MaintenanceOptions(tick=0.2, sweep=NEVER)
    upkeep = MaintenanceLoop(store, options)

    async def are_asked_alone() -> bool:
        for ref in (queue, away):
            upkeep.look_at(ref)
            await turns(5)
        return min(store.asked[ref.name] for ref in (queue, away)) > 5

    caplog.set_level("INFO")
    async with at_work(lambda: upkeep.serve_many([(queue, options), (away, options)])):
        await eventually(lambda: _answer("reaching some queues failed" in caplog.text))
        await eventually(are_asked_alone)
        assert "works again" not in caplog.text
        store.is_back = True
        await eventually(lambda: _answer("works again" in caplog.text))

    assert caplog.text.count("reaching some queues failed, will repeat: away") == 1
    assert "looking for due work" not in caplog.text


async def test_a_queue_that_is_gone_drops_out_and_is_not_made_anew(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful(Counting):
        async def list_queues(self, tenant: str) -> list[QueueInfo]:
            return [*await self.real.queues.list_queues(tenant), QueueInfo(QueueRef(tenant, "gone"), 99)]

    store = Forgetful()
    await store.queues.open_queue(queue)
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05, sweep=0.05).run):
        await eventually(lambda: _answer(store.calls["find_queue"] >= 10))

    assert [info.queue for info in await store.real.queues.list_queues(queue.tenant)] == [queue]
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


async def _open(store: MemoryStore, tenant: str, count: int) -> None:
    for number in range(count):
        await store.queues.open_queue(QueueRef(tenant, f"q{number:04}"))


async def _delay(store: MemoryStore, queue: QueueRef) -> None:
    await store.moves.enqueue(queue, [NewJob(id="j", nonce="n", task="t", payload=b"{}", delay_ms=60_000)])


async def _answer(value: bool) -> bool:
    return value


async def _has(store: MemoryStore, queue: QueueRef, state: State, count: int) -> bool:
    return (await store.reads.counts(queue))[state] == count


def test_what_is_planned_for_the_next_moment_stops_no_upkeep_on_a_fast_loop() -> None:
    """There a call within half a millisecond is no timer, and knows no time that it is for."""

    async def taken() -> list[str]:
        agenda = Agenda(asyncio.get_running_loop().time, per_tenant=3)
        soon = asyncio.get_running_loop().time() + 0.0004
        for name in ("a", "b"):
            agenda.plan(QueueRef("ada", name), Duty.FIRE, soon)
        return sorted([(await agenda.take()).queue.name, (await agenda.take()).queue.name])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(taken()) == ["a", "b"]
