"""Schedules as a store keeps them: with their queue, and each instant fired once."""

import asyncio
import threading

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Firing, StoredSchedule
from penstock.testing.conformance.arrange import claim, enqueue, new_job, schedule_body
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.SCHEDULES, Part.LIMITS)

THREADS = 4


def schedule(queue: QueueRef, name: str = "nightly", next_at: int | None = 1_000) -> StoredSchedule:
    """A schedule that is due since long."""
    return StoredSchedule(queue, name, schedule_body(name), next_at)


def firing(at: int = 1_000, next_at: int | None = 2_000, *jobs: NewJob, name: str = "nightly") -> Firing:
    """The instant's firing, with one job unless others are given."""
    return Firing(name, at, jobs or (made_at(at),), next_at, at)


def made_at(at: int) -> NewJob:
    """The job of an instant: the same id and nonce in every process that makes it."""
    return NewJob(id=f"nightly-{at}", nonce="n", task="task", payload=b"{}", schedule="nightly", instant=at)


async def only(store: Store, queue: QueueRef) -> StoredSchedule:
    """The one schedule of the tenant."""
    [found] = await store.schedules.list_schedules(queue.tenant)
    return found


async def test_a_schedule_is_kept_as_it_is(store: Store, queue: QueueRef) -> None:
    """Its body byte for byte."""
    kept = StoredSchedule(
        queue, "nightly", b" " + schedule_body("nightly", "é") + b"\t\n", 123, None, paused=True
    )
    await store.schedules.put_schedule(kept)

    assert await only(store, queue) == kept
    assert await store.schedules.list_schedules("somebody-else") == []


async def test_schedules_are_listed_by_queue_and_name(store: Store, queue: QueueRef) -> None:
    """Names are a queue's own."""
    other = QueueRef(queue.tenant, "a-queue")
    for where, name in ((queue, "b"), (other, "z"), (queue, "a"), (other, "b")):
        await store.schedules.put_schedule(schedule(where, name))
    found = await store.schedules.list_schedules(queue.tenant)

    assert [(each.queue.name, each.name) for each in found] == [
        ("a-queue", "b"),
        ("a-queue", "z"),
        ("q", "a"),
        ("q", "b"),
    ]


async def test_a_schedule_put_again_keeps_what_it_fired_last(store: Store, queue: QueueRef) -> None:
    """All else is the newer's, whatever that says of its last instant."""
    new = schedule_body("nightly", "new")
    await store.schedules.put_schedule(schedule(queue))
    await store.schedules.fire(queue, firing(1_000, 2_000))
    await store.schedules.put_schedule(StoredSchedule(queue, "nightly", new, 5_000, 77, paused=True))

    assert await only(store, queue) == StoredSchedule(queue, "nightly", new, 5_000, 1_000, paused=True)


async def test_a_new_schedule_has_fired_nothing(store: Store, queue: QueueRef) -> None:
    """Nor has one that was removed and put again."""
    await store.schedules.put_schedule(StoredSchedule(queue, "nightly", schedule_body("nightly"), 1_000, 77))
    first = await only(store, queue)
    await store.schedules.fire(queue, firing())
    await store.schedules.remove_schedule(queue, "nightly")
    await store.schedules.put_schedule(schedule(queue))

    assert first.last_at is None
    assert (await only(store, queue)).last_at is None


async def test_firing_takes_in_the_job_and_moves_the_schedule_on(store: Store, queue: QueueRef) -> None:
    """In one operation; the event names both."""
    await store.schedules.put_schedule(schedule(queue))
    fired = await store.schedules.fire(queue, firing(1_000, 2_000))
    [event] = await store.events.read_events(queue)
    [record] = await store.reads.get(queue, ["nightly-1000"])

    assert fired is True
    assert await only(store, queue) == StoredSchedule(
        queue, "nightly", schedule_body("nightly"), 2_000, 1_000
    )
    assert (event.schedule, event.instant) == ("nightly", 1_000)
    assert record is not None
    assert (record.schedule, record.instant, record.state) == ("nightly", 1_000, State.PENDING)
    assert [job.id for job in await claim(store, queue)] == ["nightly-1000"]


async def test_an_instant_is_fired_once(store: Store, queue: QueueRef) -> None:
    """The second who tries is told that someone else did; also long after its job is gone."""
    await store.schedules.put_schedule(schedule(queue))
    first = await store.schedules.fire(queue, firing(1_000, 2_000))
    again = await store.schedules.fire(queue, firing(1_000, 2_000))
    await store.moves.delete(queue, ["nightly-1000"])
    late = await store.schedules.fire(queue, firing(1_000, 2_000))

    assert [first, again, late] == [True, False, False]
    assert await store.reads.get(queue, ["nightly-1000"]) == [None]
    assert (await only(store, queue)).next_at == 2_000


@needs(Part.HANDLES)
async def test_many_who_tick_at_once_fire_each_instant_once(store: Store, queue: QueueRef) -> None:
    """No leader is needed."""
    await store.schedules.put_schedule(schedule(queue, next_at=0))
    start = threading.Barrier(THREADS)
    won: list[int] = []

    async def tick() -> None:
        clone = store.clone()
        await clone.open()
        try:
            await asyncio.to_thread(start.wait, 30)
            instants = range(0, 25_000, 1_000)
            won.extend(
                [
                    at
                    for at in instants
                    if await clone.schedules.fire(queue, firing(at, at + 1_000, new_job()))
                ]
            )
        finally:
            await clone.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, tick()) for _ in range(THREADS)))

    assert sorted(won) == list(range(0, 25_000, 1_000))
    assert (await store.reads.counts(queue))[State.PENDING] == 25
    assert (await only(store, queue)).next_at == 25_000


async def test_an_instant_may_make_many_jobs_or_none(store: Store, queue: QueueRef) -> None:
    """One may be caught up, another skipped."""
    await store.schedules.put_schedule(schedule(queue))
    many = await store.schedules.fire(
        queue, firing(1_000, 4_000, made_at(1_000), made_at(2_000), made_at(3_000))
    )
    none = await store.schedules.fire(queue, Firing("nightly", 4_000, (), 9_000, 8_000))
    found = await only(store, queue)

    assert (many, none) == (True, True)
    assert (found.next_at, found.last_at) == (9_000, 8_000)
    assert [job.id for job in await claim(store, queue)] == [f"nightly-{at}" for at in (1_000, 2_000, 3_000)]


async def test_a_schedule_that_never_fires_again_is_not_due(store: Store, queue: QueueRef) -> None:
    """It stays until someone removes it."""
    await store.schedules.put_schedule(schedule(queue))
    await store.schedules.fire(queue, firing(1_000, None))

    assert await store.schedules.due_schedules(queue) == []
    assert (await only(store, queue)).next_at is None


async def test_a_paused_schedule_neither_is_due_nor_fires(store: Store, queue: QueueRef) -> None:
    """Until it goes on; its next instant is where it was."""
    await store.schedules.put_schedule(schedule(queue))
    paused = await store.schedules.pause_schedule(queue, "nightly", True)
    due = await store.schedules.due_schedules(queue)
    fired = await store.schedules.fire(queue, firing())
    resumed = await store.schedules.pause_schedule(queue, "nightly", False)

    assert (paused, resumed) == (True, True)
    assert due == []
    assert fired is False
    assert await store.schedules.due_schedules(queue) == [schedule(queue)]
    assert await store.schedules.fire(queue, firing()) is True


async def test_a_removed_schedule_does_not_fire(store: Store, queue: QueueRef) -> None:
    """Who removes or pauses one that is not there is told so."""
    await store.schedules.put_schedule(schedule(queue))
    removed = [
        await store.schedules.remove_schedule(queue, "nightly"),
        await store.schedules.remove_schedule(queue, "nightly"),
    ]

    assert removed == [True, False]
    assert await store.schedules.pause_schedule(queue, "nightly", True) is False
    assert await store.schedules.fire(queue, firing()) is False
    assert await store.schedules.list_schedules(queue.tenant) == []
    assert (await store.reads.counts(queue))[State.PENDING] == 0


async def test_a_queue_without_space_for_all_refuses_the_firing_whole(store: Store, queue: QueueRef) -> None:
    """The instant stays due and is fired when there is room."""
    await store.queues.declare(queue, Declaration(max_length=2))
    await enqueue(store, queue, [new_job("a")])
    await store.schedules.put_schedule(schedule(queue))
    two = firing(1_000, 3_000, made_at(1_000), made_at(2_000))
    full = await store.schedules.fire(queue, two)
    due = await store.schedules.due_schedules(queue)
    newest = await store.events.event_range(queue)
    await claim(store, queue)
    fired = await store.schedules.fire(queue, two)

    assert full is False
    assert due == [schedule(queue)]
    assert newest == (1, 1)
    assert fired is True
    assert (await store.reads.counts(queue))[State.PENDING] == 2


async def test_an_instant_that_is_passed_over_needs_no_space(store: Store, queue: QueueRef) -> None:
    """Also where more wait than the queue has room for by now."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await store.queues.declare(queue, Declaration(max_length=1))
    await store.schedules.put_schedule(schedule(queue))

    assert await store.schedules.fire(queue, Firing("nightly", 1_000, (), 3_000, 1_000)) is True


async def test_a_firing_without_a_key_stays_due_where_keys_take_turns(store: Store, queue: QueueRef) -> None:
    """Its job would be refused, and the instant lost."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await store.schedules.put_schedule(schedule(queue))
    fired = await store.schedules.fire(queue, firing(1_000, 3_000, made_at(1_000)))

    assert fired is False
    assert await store.schedules.due_schedules(queue) == [schedule(queue)]


async def test_due_schedules_come_oldest_first(store: Store, queue: QueueRef) -> None:
    """Then by name, up to a limit; not those of the future, nor those of other queues."""
    now = await store.clock.now()
    for name, at in {"d": 5, "b": 7, "c": 5, "a": 9, "now": now, "later": now + 60_000}.items():
        await store.schedules.put_schedule(schedule(queue, name, at))
    await store.schedules.put_schedule(schedule(QueueRef(queue.tenant, "other"), "e", 1))
    await store.schedules.put_schedule(schedule(queue, "never", None))
    names = [each.name for each in await store.schedules.due_schedules(queue)]
    few = [each.name for each in await store.schedules.due_schedules(queue, 2)]
    await store.clock.advance_clock(60_000)
    later = [each.name for each in await store.schedules.due_schedules(queue)]

    assert names == ["c", "d", "b", "a", "now"]
    assert few == ["c", "d"]
    assert later == [*names, "later"]
    assert await store.schedules.due_schedules(QueueRef(queue.tenant, "nowhere")) == []


async def test_schedules_are_found_by_their_names(store: Store, queue: QueueRef) -> None:
    other = QueueRef(queue.tenant, "other")
    for kept in (
        schedule(queue, "b"),
        schedule(queue, "a"),
        schedule(other, "a"),
        schedule(QueueRef("else", "q"), "a"),
    ):
        await store.schedules.put_schedule(kept)

    both = await store.schedules.list_schedules(queue.tenant, ["a", "none", "a"])

    assert [(each.queue, each.name) for each in both] == sorted(
        [(queue, "a"), (other, "a")], key=lambda each: each[0].name
    )
    assert both[0].body == schedule_body("a")
    assert await store.schedules.list_schedules(queue.tenant, ["none"]) == []
    assert await store.schedules.list_schedules(queue.tenant, []) == []
