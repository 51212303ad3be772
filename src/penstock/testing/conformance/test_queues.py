"""Queues and tenants, looking into them, their clock and their health."""

from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Fail, Retry
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Pause, Query
from penstock.testing.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim,
    claim_one,
    enqueue,
    new_job,
    record_of,
    settle,
    states_of,
)
from penstock.testing.conformance.parts import Part, needs


async def test_a_queue_has_one_number_within_its_tenant(store: Store, queue: QueueRef) -> None:
    """It stands in the ids of its jobs, so it stays."""
    names = ["b", "a", "c.d-e_f"]
    opened = [await store.queues.open_queue(QueueRef(queue.tenant, name)) for name in names]
    again = [await store.queues.open_queue(QueueRef(queue.tenant, name)) for name in names]
    listed = await store.queues.list_queues(queue.tenant)

    assert again == opened
    assert len({info.number for info in opened}) == 3
    assert all(info.number > 0 for info in opened)
    assert [info.queue.name for info in listed] == ["a", "b", "c.d-e_f"]
    assert sorted(listed, key=lambda info: info.number) == sorted(opened, key=lambda info: info.number)


@needs(Part.HEALTH)
async def test_an_unknown_queue_is_empty_and_stays_unknown(store: Store, queue: QueueRef) -> None:
    """Looking does not make it."""
    assert await store.reads.get(queue, ["a"]) == [None]
    assert (await store.reads.find(queue, Query())).jobs == []
    assert await store.reads.counts(queue) == dict.fromkeys(State, 0)
    assert await store.reads.leases(queue) == []
    assert await store.events.read_events(queue) == []
    assert await store.health.check(queue) == []
    assert await store.queues.find_queue(queue) is None
    assert await store.queues.list_queues(queue.tenant) == []


async def test_enqueueing_opens_the_queue(store: Store, queue: QueueRef) -> None:
    """Nothing has to be declared first."""
    await enqueue(store, queue, [new_job()])
    info = await store.queues.find_queue(queue)

    assert info is not None
    assert (info.queue, info.pause) == (queue, None)
    assert await store.queues.list_queues(queue.tenant) == [info]


async def test_nothing_crosses_tenants(store: Store, queue: QueueRef) -> None:
    """The same queue name, job id and idempotency key in two tenants are two of each."""
    other = QueueRef(f"{queue.tenant}-2", queue.name)
    for ref in (queue, other):
        answers = await store.moves.enqueue(
            ref, [new_job("a", idempotency_key="k", payload=ref.tenant.encode())]
        )
        assert answers[0].state is State.PENDING
    held = await claim_one(store, queue)
    crossed = await store.moves.settle(other, [Complete("a", held.token)])
    await store.queues.pause_queue(queue, Pause(0))
    await settle(store, queue, Complete("a", held.token))
    theirs = await claim_one(store, other)

    assert crossed[0].state is State.PENDING
    assert held.payload == queue.tenant.encode()
    assert theirs.payload == other.tenant.encode()
    assert [info.queue for info in await store.queues.list_queues(other.tenant)] == [other]
    assert await states_of(store, queue, ["a"]) == [State.COMPLETED]
    assert set(await store.queues.list_tenants()) >= {queue.tenant, other.tenant}


async def test_nothing_crosses_queues(store: Store, queue: QueueRef) -> None:
    """Of one tenant, either."""
    other = QueueRef(queue.tenant, "other")
    await enqueue(store, queue, [new_job("a", idempotency_key="k")])
    await enqueue(store, other, [new_job("a", idempotency_key="k"), new_job("b")])
    claimed = await claim(store, queue)

    assert [job.id for job in claimed] == ["a"]
    assert (await store.reads.counts(other))[State.PENDING] == 2
    assert await store.reads.leases(other) == []
    assert await store.events.event_range(other) == (1, 2)


async def test_a_paused_queue_gives_no_jobs_until_resumed(store: Store, queue: QueueRef) -> None:
    """It takes jobs in, and what runs goes on."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)
    before = await store.clock.now()
    await store.queues.pause_queue(queue, Pause(0, "deploy", "ops"))
    info = await store.queues.find_queue(queue)
    await enqueue(store, queue, [new_job("b")])
    paused = await claim(store, queue)
    settled = await settle(store, queue, Complete("a", held.token))
    await store.clock.advance_clock(3_600_000)
    still = await claim(store, queue)
    await store.queues.pause_queue(queue, None)
    resumed = await claim(store, queue)

    assert info is not None
    assert info.pause is not None
    assert (info.pause.reason, info.pause.by, info.pause.until) == ("deploy", "ops", None)
    assert before <= info.pause.at <= before + 60_000
    assert (paused, settled, still) == ([], State.COMPLETED, [])
    assert [job.id for job in resumed] == ["b"]


async def test_a_pause_ends_by_the_clock(store: Store, queue: QueueRef) -> None:
    """When it was given a time."""
    await enqueue(store, queue, [new_job("a")])
    await store.queues.pause_queue(queue, Pause(0, "an hour"), for_ms=3_600_000)
    info = await store.queues.find_queue(queue)
    paused = await claim(store, queue)
    await store.clock.advance_clock(3_600_000)
    after = await claim(store, queue)

    assert info is not None
    assert info.pause is not None
    assert info.pause.until == info.pause.at + 3_600_000
    assert paused == []
    assert [job.id for job in after] == ["a"]


async def test_counts_name_every_state(store: Store, queue: QueueRef) -> None:
    """Zeros included, and they add up."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(6)])
    await enqueue(store, queue, [new_job("later", delay_ms=60_000)])
    a, b, c, _ = await claim(store, queue, 4)
    await store.moves.settle(
        queue,
        [Complete(a.id, a.token), Fail(b.id, b.token, FAULT), Retry(c.id, c.token, 60_000, FAULT)],
    )
    await store.moves.cancel(queue, ["j5"])

    assert await store.reads.counts(queue) == {
        State.BLOCKED: 0,
        State.PENDING: 1,
        State.DELAYED: 2,
        State.ACTIVE: 1,
        State.COMPLETED: 1,
        State.FAILED: 1,
        State.DEAD: 0,
        State.CANCELLED: 1,
    }


async def test_jobs_are_found_newest_first_page_by_page(store: Store, queue: QueueRef) -> None:
    """Jobs that come in between do not shift the pages."""
    for n in range(5):
        await enqueue(store, queue, [new_job(f"j{n}", task="even" if n % 2 == 0 else "odd")])
        await store.clock.advance_clock(10)
    first = await store.reads.find(queue, Query(limit=2))
    await enqueue(store, queue, [new_job("new")])
    second = await store.reads.find(queue, Query(limit=2, after=first.next))
    third = await store.reads.find(queue, Query(limit=2, after=second.next))
    even = await store.reads.find(queue, Query(task="even"))

    assert [job.id for job in first.jobs] == ["j4", "j3"]
    assert [job.id for job in second.jobs] == ["j2", "j1"]
    assert [job.id for job in third.jobs] == ["j0"]
    assert third.next is None
    assert [job.id for job in even.jobs] == ["j4", "j2", "j0"]
    assert even.next is None
    assert first.jobs[0] == await record_of(store, queue, "j4")


async def test_payloads_and_results_are_left_out_of_a_page_on_request(store: Store, queue: QueueRef) -> None:
    """All else is as it was."""
    await enqueue(store, queue, [new_job("a", payload=b'{"large":1}')])
    held = await claim_one(store, queue)
    await store.moves.settle(queue, [Complete(held.id, held.token, b'"large"')])
    whole = await record_of(store, queue, "a")
    queries = [Query(), Query(payloads=False), Query(results=False), Query(payloads=False, results=False)]
    found = [(await store.reads.find(queue, query)).jobs for query in queries]

    assert (whole.payload, whole.result) == (b'{"large":1}', b'"large"')
    assert found == [
        [whole],
        [replace(whole, payload=b"")],
        [replace(whole, result=None)],
        [replace(whole, payload=b"", result=None)],
    ]


async def test_ended_jobs_are_found_by_their_ending(store: Store, queue: QueueRef) -> None:
    """The last to end comes first; with live states in the question it is the last to come."""
    ids = await enqueue(store, queue, [new_job(f"j{n}") for n in range(4)])
    for name in (ids[2], ids[0], ids[3]):
        await store.clock.advance_clock(10)
        await store.moves.cancel(queue, [name])
    ended = frozenset({State.CANCELLED, State.COMPLETED})
    page = await store.reads.find(queue, Query(states=ended, limit=2))
    rest = await store.reads.find(queue, Query(states=ended, limit=2, after=page.next))
    waiting = await store.reads.find(queue, Query(states=frozenset({State.PENDING})))

    assert [job.id for job in page.jobs] == ["j3", "j0"]
    assert [job.id for job in rest.jobs] == ["j2"]
    assert [job.id for job in waiting.jobs] == ["j1"]


async def test_jobs_of_one_instant_are_all_found(store: Store, queue: QueueRef) -> None:
    """None twice, none left out, however the pages fall."""
    ids = await enqueue(store, queue, [new_job() for _ in range(25)])
    found: list[str] = []
    after: str | None = None
    while True:
        page = await store.reads.find(queue, Query(limit=4, after=after))
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break

    assert sorted(found) == sorted(ids)


async def test_jobs_are_found_by_key_and_time_in_either_order(store: Store, queue: QueueRef) -> None:
    """The time is that of the order: of endings where only ended jobs are asked for."""
    for n in range(6):
        await enqueue(store, queue, [new_job(f"j{n}", key="a\\b" if n % 2 else "even")])
        await store.clock.advance_clock(10)
    third = (await record_of(store, queue, "j3")).enqueued_at
    for name in ("j4", "j5", "j1", "j3"):
        await store.clock.advance_clock(10)
        await store.moves.cancel(queue, [name])
    ended = (await record_of(store, queue, "j1")).ended_at
    cancelled = frozenset({State.CANCELLED})
    queries = [
        Query(key="even"),
        Query(key="a\\b", oldest_first=True),
        Query(since=third),
        Query(since=third, oldest_first=True),
        Query(states=cancelled, since=ended),
        Query(states=cancelled, oldest_first=True),
        Query(states=cancelled, key="a\\b", since=ended, oldest_first=True),
    ]
    found = [[job.id for job in (await store.reads.find(queue, query)).jobs] for query in queries]

    assert found == [
        ["j4", "j2", "j0"],
        ["j1", "j3", "j5"],
        ["j5", "j4", "j3"],
        ["j3", "j4", "j5"],
        ["j3", "j1"],
        ["j4", "j5", "j1", "j3"],
        ["j1", "j3"],
    ]


async def test_pages_from_the_oldest_on_leave_none_out(store: Store, queue: QueueRef) -> None:
    """Also where many are of one instant."""
    ids = await enqueue(store, queue, [new_job() for _ in range(25)])
    found: list[str] = []
    after: str | None = None
    while True:
        page = await store.reads.find(queue, Query(limit=4, after=after, oldest_first=True))
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break

    assert found == sorted(ids)


async def test_jobs_are_got_in_the_order_asked_for(store: Store, queue: QueueRef) -> None:
    """With gaps for those that are not there."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    found = await store.reads.get(queue, ["b", "nobody", "a", "b"])

    assert [job.id if job else None for job in found] == ["b", None, "a", "b"]


@needs(Part.HEALTH, Part.HANDLES)
async def test_turning_the_clock_is_seen_by_all_and_reported(store: Store, queue: QueueRef) -> None:
    """A clone sees it too; the offset stands in the store's word on itself."""
    clone = store.clone()
    await clone.open()
    before, offset = await store.clock.now(), (await store.health.info()).clock_offset_ms
    await store.clock.advance_clock(3_600_000)
    after, theirs, turned = (
        await store.clock.now(),
        await clone.clock.now(),
        (await clone.health.info()).clock_offset_ms,
    )
    await clone.close()

    assert 3_600_000 <= after - before < 3_660_000
    assert 0 <= theirs - after < 60_000
    assert turned - offset == 3_600_000


@needs(Part.HANDLES)
async def test_a_closed_clone_leaves_the_store_open(store: Store, queue: QueueRef) -> None:
    """Handles end on their own."""
    clone = store.clone()
    await clone.open()
    await enqueue(clone, queue, [new_job("a")])
    await clone.close()
    held = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)

    assert [job.id for job in held.jobs] == ["a"]
