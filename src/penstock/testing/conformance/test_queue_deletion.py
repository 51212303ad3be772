"""Deleting queues: what has to be gone first, what goes with them, and handles that knew them before."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.core.errors import CursorLostError
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.history import Checker
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.moves import Beat, Bury, Complete, Fail, Report
from penstock.core.outcomes import Applied, Claims, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Adoption, Firing, Pause, Query, QueueContents, Spawn, StoredSchedule
from penstock.testing.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim,
    claim_one,
    enqueue,
    new_job,
    record_of,
    schedule_body,
    settle,
)
from penstock.testing.conformance.fixtures import TwoHandles
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.DELETION)

ROUNDS = 12
GONE = QueueContents()


async def empty(store: Store, queue: QueueRef) -> str:
    """Run a job through the queue, so that handles know it and it has events; the last event's cursor."""
    [job] = await enqueue(store, queue, [new_job()])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete(job, held.token))
    cursor = (await store.events.read_events(queue))[-1].cursor
    await store.moves.delete(queue, [job])
    return cursor


@needs(Part.HEALTH)
async def test_an_empty_queue_is_deleted(store: Store, queue: QueueRef) -> None:
    """It is listed no longer, and nothing is found in it."""
    await empty(store, queue)
    other = await store.queues.open_queue(QueueRef(queue.tenant, "other"))

    assert await store.queues.delete_queue(queue) == GONE
    assert await store.queues.find_queue(queue) is None
    assert await store.queues.list_queues(queue.tenant) == [other]
    assert await store.reads.counts(queue) == dict.fromkeys(State, 0)
    assert await store.events.read_events(queue) == []
    assert await store.events.event_range(queue) == (1, 0)
    assert await store.health.check(queue) == []
    assert queue.tenant in await store.queues.list_tenants()
    assert await store.queues.delete_queue(other.queue) == GONE
    assert queue.tenant not in await store.queues.list_tenants()


async def test_a_queue_that_is_not_there_cannot_be_deleted(store: Store, queue: QueueRef) -> None:
    """Nor is it made by that; a second deletion finds nothing."""
    assert await store.queues.delete_queue(queue) is None
    assert await store.queues.find_queue(queue) is None
    await store.queues.open_queue(queue)

    assert await store.queues.delete_queue(queue) == GONE
    assert await store.queues.delete_queue(queue) is None


async def test_jobs_of_every_state_keep_their_queue(store: Store, queue: QueueRef) -> None:
    """The answer counts them, and nothing was changed."""
    await enqueue(store, queue, [new_job("completed"), new_job("failed"), new_job("dead"), new_job("active")])
    held = {job.id: job.token for job in await claim(store, queue)}
    await settle(store, queue, Complete("completed", held["completed"]))
    await settle(store, queue, Fail("failed", held["failed"], FAULT))
    await settle(store, queue, Bury("dead", held["dead"], FAULT))
    await enqueue(store, queue, [new_job("pending"), new_job("delayed", delay_ms=60_000)])
    await enqueue(store, queue, [new_job("blocked", awaits=[JobRef("other", "x")]), new_job("cancelled")])
    await store.moves.cancel(queue, ["cancelled"])
    events = await store.events.read_events(queue)
    every = [state for state in State if state is not State.ACTIVE]

    found = await store.queues.delete_queue(queue)
    assert found == QueueContents(dict.fromkeys(State, 1))
    assert found is not None
    assert str(found).startswith("1 blocked job, 1 pending job, ")
    assert await store.events.read_events(queue) == events
    for state in every:
        await store.moves.delete(queue, [state])
        left = await store.queues.delete_queue(queue)
        assert left is not None
        assert left.jobs.get(state, 0) == 0
        assert left.jobs[State.ACTIVE] == 1
    await settle(store, queue, Complete("active", held["active"]))
    await store.moves.delete(queue, ["active"])
    assert await store.queues.delete_queue(queue) == GONE


@needs(Part.SCHEDULES)
async def test_a_schedule_keeps_its_queue(store: Store, queue: QueueRef) -> None:
    """It would make the queue anew, also a paused one once it goes on."""
    await store.schedules.put_schedule(
        StoredSchedule(queue, "nightly", schedule_body("nightly"), 1_000, paused=True)
    )

    assert await store.queues.delete_queue(queue) == QueueContents(schedules=1)
    assert str(await store.queues.delete_queue(queue)) == "1 schedule"
    await store.schedules.remove_schedule(queue, "nightly")
    assert await store.queues.delete_queue(queue) == GONE
    assert await store.schedules.list_schedules(queue.tenant) == []


@needs(Part.FLOWS)
async def test_relay_entries_keep_their_queue_until_they_are_carried_over(
    store: Store, queue: QueueRef
) -> None:
    """Jobs of other queues wait for them, or are in them."""
    await store.moves.enqueue(queue, [new_job("a")], [Spawn("other", new_job("b"))])
    await store.moves.delete(queue, ["a"])
    [entry] = await store.flows.list_relay_entries(queue)

    assert await store.queues.delete_queue(queue) == QueueContents(relays=1)
    await store.flows.delete_relay_entries(queue, [entry.number])
    assert await store.queues.delete_queue(queue) == GONE
    assert await store.flows.list_relay_entries(queue) == []


@needs(Part.READERS, Part.KEYS, Part.LIMITS)
async def test_what_belongs_to_a_queue_goes_with_it(store: Store, queue: QueueRef) -> None:
    """Declaration, pause, rules of keys, idempotency keys, kinds and readers: the next queue has none."""
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC, max_length=1))
    await store.queues.set_key_rule(queue, "k", KeyRule(limit=3, weight=2))
    await store.moves.enqueue(queue, [new_job("a", key="k", idempotency_key="once")])
    await store.moves.delete(queue, ["a"])
    await store.queues.pause_queue(queue, Pause(0, "for now"))
    await store.readers.register_reader(queue, "reader", (await store.events.read_events(queue))[-1].cursor)
    before = await store.queues.find_queue(queue)

    assert await store.queues.delete_queue(queue) == GONE
    assert await store.readers.list_readers(queue) == []
    after = await store.queues.open_queue(queue)
    answers = await store.moves.enqueue(queue, [new_job("b", idempotency_key="once"), new_job("c")])
    assert before is not None
    assert after.number > before.number
    assert (after.declaration, after.pause, after.made != before.made) == (None, None, True)
    assert [answer.state for answer in answers] == [State.PENDING, State.PENDING]
    assert await store.queues.list_keys(queue) == []
    assert await store.readers.list_readers(queue) == []
    assert len(await claim(store, queue)) == 2


async def test_numbers_of_queues_are_not_given_again(store: Store, queue: QueueRef) -> None:
    """They stand in the ids of jobs: not that of the last queue either."""
    names = [QueueRef(queue.tenant, name) for name in ("a", "b", "c")]
    numbers = [(await store.queues.open_queue(each)).number for each in names]
    for each in (names[2], names[0]):
        assert await store.queues.delete_queue(each) == GONE
        numbers.append((await store.queues.open_queue(each)).number)
    for each in names:
        assert await store.queues.delete_queue(each) == GONE
    numbers.append((await store.queues.open_queue(names[1])).number)

    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers)


@needs(Part.READERS)
async def test_cursors_of_a_deleted_queue_are_lost_in_the_next_one(store: Store, queue: QueueRef) -> None:
    """Whether it has fewer events or more, and also where there is no queue."""
    old = await empty(store, queue)
    await store.queues.delete_queue(queue)
    for jobs in (0, 1, 20):
        if jobs:
            await enqueue(store, queue, [new_job() for _ in range(jobs)])

        with pytest.raises(CursorLostError):
            await store.events.read_events(queue, old)
        with pytest.raises(CursorLostError):
            await store.readers.register_reader(queue, "reader", old)
        with pytest.raises(CursorLostError):
            await store.events.cursor_after(queue, old)
    assert [event.seq for event in await store.events.read_events(queue)] == list(range(1, 22))


async def test_fences_do_not_go_back(store: Store, queue: QueueRef) -> None:
    """A job of the same id in the next queue has a higher one."""
    fences = []
    for _ in range(3):
        await enqueue(store, queue, [new_job("a")])
        held = await claim_one(store, queue)
        fences.append(held.fence)
        await settle(store, queue, Complete("a", held.token))
        await store.moves.delete(queue, ["a"])
        assert await store.queues.delete_queue(queue) == GONE

    assert fences == sorted(set(fences))


ABSENT: dict[str, tuple[Callable[[Store, QueueRef], Awaitable[Any]], Any]] = {
    "claim": (lambda s, q: s.moves.claim(q, worker="w", limit=1, lease_ms=LEASE_MS), Claims()),
    "heartbeat": (lambda s, q: s.moves.heartbeat(q, [Beat("a", "t")], LEASE_MS), [Refused(Refusal.LOST)]),
    "progress": (lambda s, q: s.moves.progress(q, [Report("a", "t", b"1")]), [Refused(Refusal.LOST)]),
    "settle": (lambda s, q: s.moves.settle(q, [Complete("a", "t")]), [Refused(Refusal.LOST)]),
    "spawn": (lambda s, q: s.flows.spawn(q, Beat("a", "t"), []), Refused(Refusal.LOST)),
    "cancel": (lambda s, q: s.moves.cancel(q, ["a"]), [Refused(Refusal.MISSING)]),
    "redrive": (lambda s, q: s.moves.redrive(q, ["a"]), [Refused(Refusal.MISSING)]),
    "delete": (lambda s, q: s.moves.delete(q, ["a"]), [Refused(Refusal.MISSING)]),
    "child_ended": (
        lambda s, q: s.flows.child_ended(q, [ChildEnding("p", JobRef("o", "c"), State.COMPLETED, None)]),
        [Refused(Refusal.MISSING)],
    ),
    "adopt": (lambda s, q: s.flows.adopt(q, [Adoption("p", ())]), [Refused(Refusal.MISSING)]),
    "promote": (lambda s, q: s.moves.promote(q), 0),
    "prune": (lambda s, q: s.moves.prune(q), 0),
    "trim": (lambda s, q: s.events.trim(q, through=5), 0),
    "expired": (lambda s, q: s.reads.expired(q), []),
    "relays": (lambda s, q: s.flows.list_relay_entries(q), []),
    "relayed": (lambda s, q: s.flows.delete_relay_entries(q, [1]), None),
    "due_schedules": (lambda s, q: s.schedules.due_schedules(q), []),
    "fire": (lambda s, q: s.schedules.fire(q, Firing("s", 1, (), None, 1)), False),
    "remove_schedule": (lambda s, q: s.schedules.remove_schedule(q, "s"), False),
    "pause_schedule": (lambda s, q: s.schedules.pause_schedule(q, "s", True), False),
    "unregister_reader": (lambda s, q: s.readers.unregister_reader(q, "r"), False),
    "remove_expired_readers": (lambda s, q: s.readers.remove_expired_readers(q), 0),
    "readers": (lambda s, q: s.readers.list_readers(q), []),
    "quarantined": (lambda s, q: s.quarantine.list_quarantined(q), []),
    "delete_quarantined": (lambda s, q: s.quarantine.delete_quarantined(q, ["a"]), 0),
    "repair": (lambda s, q: s.quarantine.repair(q), 0),
    "damaged_events": (lambda s, q: s.events.damaged_events(q), []),
    "keys": (lambda s, q: s.queues.list_keys(q), []),
    "get": (lambda s, q: s.reads.get(q, ["a"]), [None]),
    "leases": (lambda s, q: s.reads.leases(q), []),
    "ahead": (lambda s, q: s.reads.ahead(q, "a"), 0),
    "oldest": (lambda s, q: s.reads.oldest(q), None),
    "children": (lambda s, q: s.flows.children(q, "a"), []),
    "cursor_at": (lambda s, q: s.events.cursor_at(q, 1), "0"),
}


@needs(Part.HEALTH, Part.READERS, Part.SCHEDULES, Part.FLOWS, Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_what_looks_after_queues_does_not_bring_a_deleted_one_back(
    two_handles: TwoHandles, queue: QueueRef
) -> None:
    """Workers and schedulers that served it go on asking: with a handle that knew it, and with a new one."""
    async with two_handles() as (one, other):
        for mode in (Mode.GLOBAL, Mode.KEYED):
            await other.queues.declare(queue, Declaration(mode=mode))
            await enqueue(other, queue, [new_job("a", key="k")])
            assert len(await claim(other, queue, lease_ms=1)) == 1
            await other.clock.advance_clock(1_000)
            [late] = await other.reads.expired(queue)
            await other.moves.settle(queue, [Complete("a", late.token)])
            await other.moves.delete(queue, ["a"])
            assert await one.queues.delete_queue(queue) == GONE
            for name, (ask, answer) in ABSENT.items():
                for handle in (other, one):
                    assert await ask(handle, queue) == answer, name
                    assert await one.queues.find_queue(queue) is None, f"{name} made the queue"


@needs(Part.HEALTH, Part.READERS, Part.SCHEDULES, Part.FLOWS, Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_a_handle_that_knew_the_queue_finds_the_new_one(
    two_handles: TwoHandles, queue: QueueRef
) -> None:
    """Whatever it does first after another process deleted the queue and made it again."""
    async with two_handles() as (one, other):
        uses: dict[str, Callable[[], Awaitable[Any]]] = {
            "get": lambda: other.reads.get(queue, ["new"]),
            "find": lambda: other.reads.find(queue, Query()),
            "counts": lambda: other.reads.counts(queue),
            "oldest": lambda: other.reads.oldest(queue),
            "claim": lambda: other.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS),
            "cancel": lambda: other.moves.cancel(queue, ["new"]),
            "delete": lambda: other.moves.delete(queue, ["new"]),
            "events": lambda: other.events.read_events(queue),
            "event_range": lambda: other.events.event_range(queue),
            "cursor_after": lambda: other.events.cursor_after(queue),
            "readers": lambda: other.readers.list_readers(queue),
            "relays": lambda: other.flows.list_relay_entries(queue),
            "schedules": lambda: other.schedules.due_schedules(queue),
            "register_reader": lambda: other.readers.register_reader(queue, "mine", 0),
            "pause": lambda: other.queues.pause_queue(queue, Pause(0)),
            "declare": lambda: other.queues.declare(queue, Declaration(max_active=7)),
            "open": lambda: other.queues.open_queue(queue),
            "check": lambda: other.health.check(queue),
            "trim": lambda: other.events.trim(queue, through=1),
        }
        for name, use in uses.items():
            await empty(other, queue)
            assert await one.queues.delete_queue(queue) == GONE, name
            await one.moves.enqueue(queue, [new_job("new")], [Spawn("other", new_job("b"))])
            await one.schedules.put_schedule(StoredSchedule(queue, "s", schedule_body("s"), 1_000))
            await one.readers.register_reader(queue, "reader", 0)
            mine, theirs = await _seen(one, queue), use()
            answer = await theirs

            match name:
                case "get":
                    assert [each and each.id for each in answer] == ["new"]
                case "find":
                    assert [each.id for each in answer.jobs] == ["new"]
                case "counts":
                    assert answer[State.PENDING] == 1
                case "oldest":
                    assert answer is not None
                case "claim":
                    assert [each.id for each in answer.jobs] == ["new"]
                case "cancel" | "delete":
                    assert isinstance(answer[0], Applied)
                case "events" | "readers" | "relays" | "schedules":
                    assert len(answer) == 1, name
                case "event_range":
                    assert answer == (1, 1)
                case "cursor_after":
                    assert answer == (await one.events.read_events(queue))[-1].cursor
                case "register_reader":
                    assert [each.name for each in await one.readers.list_readers(queue)] == ["mine", "reader"]
                case "pause":
                    info = await one.queues.find_queue(queue)
                    assert info is not None
                    assert info.pause is not None
                case "declare":
                    info = await one.queues.find_queue(queue)
                    assert info is not None
                    assert info.declaration == Declaration(max_active=7)
                case "open":
                    assert answer == await one.queues.find_queue(queue)
                case "check":
                    assert answer == []
                case _:
                    assert answer == 1
            assert name in {"claim", "cancel", "delete", "trim"} or await _seen(one, queue) == mine
            assert await one.health.check(queue) == []
            await _clear(one, queue)


async def _seen(store: Store, queue: QueueRef) -> Any:
    return await store.reads.get(queue, ["new"]), await store.events.read_events(queue)


async def _clear(store: Store, queue: QueueRef) -> None:
    """Empty the queue and delete it."""
    held = await store.reads.leases(queue)
    await store.moves.settle(queue, [Complete(each.id, each.token) for each in held])
    await store.moves.delete(queue, ["new"])
    await store.schedules.remove_schedule(queue, "s")
    await store.flows.delete_relay_entries(
        queue, [each.number for each in await store.flows.list_relay_entries(queue)]
    )
    assert await store.queues.delete_queue(queue) == GONE


@needs(Part.HEALTH, Part.READERS, Part.SCHEDULES, Part.FLOWS, Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_a_handle_that_knew_the_queue_opens_it_anew(two_handles: TwoHandles, queue: QueueRef) -> None:
    """What it enqueues after another process deleted the queue is not written into nowhere."""
    async with two_handles() as (one, other):
        writes: list[Callable[[], Awaitable[Any]]] = [
            lambda: other.moves.enqueue(queue, [new_job("a"), new_job("b", idempotency_key="k")]),
            lambda: other.moves.enqueue(queue, [new_job("a")], [Spawn("other", new_job("c"))]),
            lambda: other.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=2)),
            lambda: other.queues.set_key_rule(queue, "k", KeyRule(weight=2)),
            lambda: other.queues.pause_queue(queue, Pause(0)),
            lambda: other.schedules.put_schedule(StoredSchedule(queue, "s", schedule_body("s"), 1_000)),
            lambda: other.readers.register_reader(queue, "reader", 0),
            lambda: other.queues.open_queue(queue),
        ]
        numbers = []
        for write in writes:
            await empty(other, queue)
            assert await one.queues.delete_queue(queue) == GONE
            await write()
            info = await one.queues.find_queue(queue)

            assert info is not None
            assert info in await one.queues.list_queues(queue.tenant)
            numbers.append(info.number)
            for name in ("a", "b"):
                if await one.reads.get(queue, [name]) != [None]:
                    assert (await record_of(other, queue, name)).state is State.PENDING
            assert await one.health.check(queue) == []
            jobs = (await one.reads.find(queue, Query())).jobs
            await one.moves.delete(queue, [job.id for job in jobs])
            await one.schedules.remove_schedule(queue, "s")
            await one.flows.delete_relay_entries(
                queue, [each.number for each in await one.flows.list_relay_entries(queue)]
            )
            assert await one.queues.delete_queue(queue) == GONE
        assert len(set(numbers)) == len(writes)


@needs(Part.HEALTH, Part.READERS, Part.SCHEDULES, Part.FLOWS, Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_a_job_that_is_enqueued_while_its_queue_is_deleted_is_not_lost(
    two_handles: TwoHandles, queue: QueueRef
) -> None:
    """Either the job comes first and keeps the queue, or the queue goes first and the job makes it anew."""
    async with two_handles() as (one, other):
        await empty(other, queue)
        for number in range(ROUNDS):
            jobs = [new_job(f"{number}-{index}") for index in range(4)]
            answers, *found = await asyncio.gather(
                other.moves.enqueue(queue, jobs[:2]),
                one.queues.delete_queue(queue),
                one.moves.enqueue(queue, jobs[2:3]),
                one.queues.delete_queue(queue),
                other.moves.enqueue(queue, jobs[3:], [Spawn("other", new_job())]),
            )

            assert all(answer.state is State.PENDING for answer in answers)
            assert [job and job.id for job in await one.reads.get(queue, [each.id for each in jobs])] == [
                each.id for each in jobs
            ]
            assert sorted(each.id for each in await claim(other, queue)) == sorted(each.id for each in jobs)
            assert await one.health.check(queue) == []
            checker = Checker(in_order=one.numbers_in_order)
            for event in await one.events.read_events(queue):
                checker.feed(event)
            assert checker.finish().is_clean, found
            held = await one.reads.leases(queue)
            await one.moves.settle(queue, [Complete(each.id, each.token) for each in held])
            await one.moves.delete(queue, [each.id for each in jobs])
            await one.flows.delete_relay_entries(
                queue, [each.number for each in await one.flows.list_relay_entries(queue)]
            )
            assert (await one.queues.find_queue(queue)) in await one.queues.list_queues(queue.tenant)


@needs(Part.HEALTH, Part.READERS, Part.SCHEDULES, Part.FLOWS, Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_one_of_many_deletions_deletes(two_handles: TwoHandles, queue: QueueRef) -> None:
    """The others find no queue."""
    async with two_handles() as (one, other):
        for _ in range(4):
            await empty(other, queue)
            found = await asyncio.gather(*(each.queues.delete_queue(queue) for each in (one, other) * 3))

            assert sorted(found, key=lambda each: each is None) == [GONE, *[None] * 5]
            assert await one.queues.list_queues(queue.tenant) == []
