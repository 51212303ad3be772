"""Claims that stand: the next job is leased to a worker that waits, by the enqueue that brings it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from penstock.core.job import Claimed, NewJob, QueueRef
from penstock.core.limits import Declaration
from penstock.core.moves import Complete, Move, Release
from penstock.core.outcomes import Claims, Enqueued
from penstock.core.states import State
from penstock.stores.protocol import Bell, Store
from penstock.stores.redis import RedisStore
from penstock.stores.redis.inbox import Inbox
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import loaded_sources
from penstock.stores.values import Pause, Topic
from tests.conformance.arrange import claim, enqueue, new_job, record_of, settle, states_of
from tests.conformance.stores import opened
from tests.kit import aio
from tests.stores.redis.operating import tell
from tests.worker.kit import Desk, eventually

SECONDS = 10.0
STAND_MS = 5_000
LEASE_MS = 30_000
LARGE = 65_537
JOBS = 200


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent to workers gets lost."""
    monkeypatch.setattr(Inbox, "heard", lambda *_: None)


@pytest.fixture
def other(url: str) -> aio.InLoop:
    """Another process, as far as the server can tell."""
    return aio.InLoop(opened(RedisStore(url)))


async def test_a_job_is_leased_to_the_worker_that_waits_as_it_comes(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """It is with the worker when the bell rings: the claim that brings it asks the server nothing."""
    async with waiting(store, queue) as bell:
        await enqueue(other, queue, [new_job("a", payload=b"\x00 seven \xff")])
        before = await record_of(other, queue, "a")
        assert await bell.wait(SECONDS)
        [job] = (await stand(store, queue)).jobs
    events = await other.events(queue)

    assert (before.state, before.worker, before.delivery) == (State.ACTIVE, "worker", 1)
    assert (job.id, job.token, job.payload) == ("a", before.token, b"\x00 seven \xff")
    assert [(event.move, event.worker) for event in events] == [
        (Move.ENQUEUE, None),
        (Move.CLAIM, "worker"),
    ]
    assert await settle(store, queue, Complete(job.id, job.token)) is State.COMPLETED
    assert await other.check(queue) == []


async def test_what_was_received_does_not_come_again(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """The next claim says so, and stands again."""
    async with waiting(store, queue) as bell:
        for number in range(3):
            await enqueue(other, queue, [new_job(f"job-{number}")])
            assert await bell.wait(SECONDS)
            received = await stand(store, queue)
            again = await stand(store, queue)

            assert [job.id for job in received.jobs] == [f"job-{number}"]
            assert again.jobs == []
            assert again.stands is not None


@pytest.mark.usefixtures("deaf")
async def test_a_job_that_did_not_arrive_comes_with_the_next_claim(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """Under the same lease, which begins anew."""
    async with waiting(store, queue):
        await enqueue(other, queue, [new_job("a")])
        leased = await record_of(other, queue, "a")
        await other.turn(1_000)
        [job] = await claim(store, queue)
        renewed = await record_of(other, queue, "a")

    assert job.token == leased.token
    assert (job.delivery, renewed.delivery) == (1, 1)
    assert leased.deadline is not None
    assert job.deadline == renewed.deadline
    assert job.deadline >= leased.deadline + 1_000
    assert await claim(store, queue) == []


@pytest.mark.usefixtures("deaf")
async def test_a_job_that_did_not_arrive_is_one_of_those_asked_for(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """A worker never gets more than it has room for."""
    async with waiting(store, queue):
        for name in ("a", "b", "c"):
            await enqueue(other, queue, [new_job(name)])
        jobs = await claim(store, queue, limit=2)

    assert [job.id for job in jobs] == ["a", "b"]


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.usefixtures("deaf")
async def test_a_job_whose_lease_ended_meanwhile_does_not_come(
    store: RedisStore, other: RedisStore, queue: QueueRef, limit: int
) -> None:
    """It is recovered as every other."""
    async with waiting(store, queue):
        await enqueue(other, queue, [new_job("a")])
        await other.turn(LEASE_MS)
        claims = await store.claim(queue, worker="worker", limit=limit, lease_ms=LEASE_MS)

    assert claims.jobs == []
    assert [lease.id for lease in claims.expired] == ["a"]


@pytest.mark.usefixtures("deaf")
async def test_a_job_that_was_given_back_meanwhile_does_not_come_twice(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """Whoever gave it back knew its token."""
    async with waiting(store, queue):
        await enqueue(other, queue, [new_job("a")])
        [lease] = await other.leases(queue, "worker")
        await settle(other, queue, Release(lease.id, lease.token))
        [job] = await claim(store, queue)

    assert job.token != lease.token
    assert job.delivery == 2


async def test_a_worker_that_stands_down_gets_what_was_leased_to_it_and_nothing_more(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """Also where the job has arrived already."""
    async with waiting(store, queue) as bell:
        await enqueue(other, queue, [new_job("a")])
        assert await bell.wait(SECONDS)
        [job] = await claim(store, queue, limit=0)
        await enqueue(other, queue, [new_job("b")])
        none = await claim(store, queue, limit=0)

    assert job.id == "a"
    assert none == []
    assert await states_of(other, queue, ["a", "b"]) == [State.ACTIVE, State.PENDING]


async def test_nothing_is_leased_to_a_worker_that_is_gone(
    other: RedisStore, url: str, queue: QueueRef
) -> None:
    """The server knows that it no longer listens."""
    async with opened(RedisStore(url)) as gone, waiting(gone, queue, "gone"):
        pass
    await enqueue(other, queue, [new_job("a")])

    assert [job.id for job in await claim(other, queue)] == ["a"]


async def test_a_worker_of_the_same_name_is_another_one(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """What the first one received, and may have begun, is not the second one's."""
    async with waiting(store, queue) as bell:
        await enqueue(other, queue, [new_job("a")])
        assert await bell.wait(SECONDS)
        [received] = (await stand(store, queue)).jobs
    again = await claim(other, queue)

    assert received.id == "a"
    assert again == []


async def test_one_claim_stands_in_a_queue(store: RedisStore, other: RedisStore, queue: QueueRef) -> None:
    """For as long as its worker waits."""
    async with waiting(store, queue), other.bell(queue, Topic.READY):
        second = await stand(other, queue, "second")
        await other.turn(STAND_MS)
        later = await stand(other, queue, "second")
        await enqueue(store, queue, [new_job("a")])

    assert second.stands is None
    assert later.stands is not None
    assert (await record_of(other, queue, "a")).worker == "second"


@pytest.mark.usefixtures("deaf")
async def test_a_job_that_was_not_received_yet_keeps_the_next_from_being_handed_over(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """Also when its worker comes back later than it said: it gets its own."""
    async with waiting(store, queue), waiting(other, queue, "second", stands=False):
        await enqueue(other, queue, [new_job("a")])
        await other.turn(STAND_MS + 1_000)
        second = await stand(other, queue, "second")
        await enqueue(other, queue, [new_job("b")])
        states = await states_of(other, queue, ["a", "b"])
        [job] = await claim(store, queue, limit=1)

    assert second.stands is not None
    assert states == [State.ACTIVE, State.PENDING]
    assert (job.id, job.delivery) == ("a", 1)


async def _pause(store: Store, queue: QueueRef) -> None:
    await store.pause(queue, Pause(0))


async def _declare(store: Store, queue: QueueRef) -> None:
    await store.declare(queue, Declaration(max_active=5))


async def _let_time_pass(store: Store, queue: QueueRef) -> None:
    await store.turn(STAND_MS)


async def _ring(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("later", delay_ms=60_000)])


@pytest.mark.parametrize("change", [_pause, _declare, _let_time_pass, _ring])
async def test_no_claim_stands_after(
    store: RedisStore,
    other: RedisStore,
    queue: QueueRef,
    change: Callable[[Store, QueueRef], Awaitable[None]],
) -> None:
    """A pause, limits, the end of the wait, or a ring of the bell, by which the worker asks for itself."""
    async with waiting(store, queue):
        await change(store, queue)
        await enqueue(other, queue, [new_job("a")])

    assert await states_of(other, queue, ["a"]) == [State.PENDING]


@pytest.mark.parametrize("change", [_pause, _declare])
async def test_a_claim_left_standing_by_an_earlier_version_is_not_made(
    store: RedisStore,
    url: str,
    queue: QueueRef,
    change: Callable[[Store, QueueRef], Awaitable[None]],
) -> None:
    """One that does not know of such claims, and pauses or limits the queue."""
    path = "include/outcomes.lua"
    lines = loaded_sources()[path].splitlines()
    earlier = [line for line in lines if "facts.standing" not in line]
    assert len(earlier) == len(lines) - 1
    async with waiting(store, queue), opened(RedisStore(url, sources={path: "\n".join(earlier)})) as old:
        await change(old, queue)
        await enqueue(store, queue, [new_job("a")])

    assert await states_of(store, queue, ["a"]) == [State.PENDING]


@pytest.mark.parametrize("change", [_pause, _declare])
async def test_a_claim_does_not_stand_in_a_queue_with(
    store: RedisStore, queue: QueueRef, change: Callable[[Store, QueueRef], Awaitable[None]]
) -> None:
    """A pause or limits: other things than jobs that do not come keep it waiting."""
    await change(store, queue)

    assert (await stand(store, queue)).stands is None


@pytest.mark.parametrize(
    "jobs",
    [
        [new_job("a", payload=b"x" * LARGE)],
        [new_job("a", delay_ms=60_000)],
        [new_job("a"), new_job("b")],
    ],
    ids=["a large one", "a delayed one", "several"],
)
async def test_other_jobs_wait_to_be_claimed(
    store: RedisStore, other: RedisStore, queue: QueueRef, jobs: list[NewJob]
) -> None:
    """And the bell rings for them."""
    async with waiting(store, queue) as bell:
        await enqueue(other, queue, jobs)
        assert await bell.wait(SECONDS)

    assert State.ACTIVE not in await states_of(other, queue, [job.id for job in jobs])


async def test_a_claim_stands_until_something_else_is_due(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """The worker is awake then."""
    await enqueue(other, queue, [new_job("due", delay_ms=1_000)])
    async with waiting(store, queue):
        await other.turn(1_000)
        await enqueue(other, queue, [new_job("a")])

    assert await states_of(other, queue, ["due", "a"]) == [State.DELAYED, State.PENDING]


async def test_two_jobs_leased_by_one_note_have_tokens_of_their_own(
    store: RedisStore, other: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """A server that took over from another may have it still."""
    meta = keys_of(queue).meta
    async with waiting(store, queue):
        note = await tell(operator, "HGET", meta, "standing")
        await enqueue(other, queue, [new_job("a")])
        await tell(operator, "HSET", meta, "standing", note, "handed", "")
        await enqueue(other, queue, [new_job("b")])
    first, second = [await record_of(other, queue, name) for name in ("a", "b")]

    assert first.state is second.state is State.ACTIVE
    assert first.token != second.token


async def test_a_job_enqueued_twice_is_leased_once(
    store: RedisStore, other: RedisStore, queue: QueueRef
) -> None:
    """The second call finds it."""
    job = new_job("a")
    async with waiting(store, queue) as bell:
        first = await other.enqueue(queue, [job])
        assert await bell.wait(SECONDS)
        await stand(store, queue)
        await stand(store, queue)
        again = await other.enqueue(queue, [job])

    assert first == [Enqueued("a", True, State.PENDING)]
    assert again == [Enqueued("a", True, State.ACTIVE)]
    assert (await record_of(other, queue, "a")).delivery == 1


async def test_a_user_who_may_not_ask_who_listens_enqueues_all_the_same(
    store: RedisStore, other: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """The worker is rung for, as ever."""
    async with waiting(store, queue) as bell:
        await tell(operator, "ACL", "SETUSER", "default", "-pubsub")
        await enqueue(other, queue, [new_job("a")])
        assert await bell.wait(SECONDS)

    assert await states_of(other, queue, ["a"]) == [State.PENDING]


async def test_a_user_who_may_not_send_to_workers_rings_for_them(
    store: RedisStore, url: str, operator: Redis, queue: QueueRef
) -> None:
    """What was leased comes with the claim after that."""
    rights = ["on", ">s", "~*", "+@all", "resetchannels", "&*bell*", "&*turned*"]
    await tell(operator, "ACL", "SETUSER", "sender", *rights)
    sender = RedisStore(url.replace("redis://", "redis://sender:s@"))
    async with waiting(store, queue) as bell, opened(sender) as sending:
        await enqueue(sending, queue, [new_job("a")])
        assert await bell.wait(SECONDS)
        [job] = await claim(store, queue)

    assert (job.id, job.delivery) == ("a", 1)


async def test_a_job_that_comes_right_after_one_that_was_sent_begins_at_once(
    url: str, operator: Redis, queue: QueueRef
) -> None:
    """One ring may be for both."""
    async with opened(RedisStore(url)) as store, opened(RedisStore(url)) as sender:
        desk, sending = Desk(queue, store), Desk(queue, sender)
        both = asyncio.Barrier(2)

        async def work() -> None:
            # Ends only where the two run at the same time.
            await both.wait()

        async with desk.working(work, poll=5.0, concurrency=5):
            for _ in range(5):
                await eventually(lambda: _stands(operator, queue))
                jobs = await asyncio.gather(sending.enqueue("work"), sending.enqueue("work"))
                async with asyncio.timeout(SECONDS):
                    ends = [await desk.ended(job) for job in jobs]

                assert [job.state for job in ends] == [State.COMPLETED] * 2


async def test_workers_that_stand_lose_nothing_and_repeat_nothing(
    store: RedisStore, other: RedisStore, url: str, queue: QueueRef
) -> None:
    """With jobs coming one by one, and faster than they go, from two sides at once."""
    done: list[Claimed] = []

    async def work(side: Store, name: str) -> None:
        async with side.bell(queue, Topic.READY) as bell:
            while len(done) < 2 * JOBS:
                claims = await stand(side, queue, name, limit=3)
                done.extend(claims.jobs)
                await side.settle(queue, [Complete(job.id, job.token) for job in claims.jobs])
                if not claims.jobs:
                    await bell.wait(0.2)

    async def send(side: Store, name: str) -> None:
        for number in range(JOBS):
            await enqueue(side, queue, [new_job(f"{name}-{number}")])
            await asyncio.sleep(0.001 * (number % 4))

    async with opened(RedisStore(url)) as third, asyncio.timeout(60), asyncio.TaskGroup() as group:
        for side, name in ((store, "one"), (other, "two"), (third, "three")):
            group.create_task(work(side, name))
        group.create_task(send(store, "left"))
        group.create_task(send(third, "right"))
    jobs = await other.get(queue, [job.id for job in done])

    assert len({job.id for job in done}) == len(done) == 2 * JOBS
    assert {(job.state, job.delivery) for job in jobs if job is not None} == {(State.COMPLETED, 1)}
    assert await other.check(queue) == []


async def test_a_worker_runs_what_was_leased_to_it_while_it_waited(
    url: str, operator: Redis, queue: QueueRef
) -> None:
    """One after the other, each without a claim of its own in between."""
    async with opened(RedisStore(url)) as store, opened(RedisStore(url)) as sender:
        desk, sending = Desk(queue, store), Desk(queue, sender)

        async def work() -> None: ...

        async with desk.working(work, name="w"):
            for _ in range(5):
                await eventually(lambda: _stands(operator, queue))
                job = await sending.enqueue("work")

                assert (await desk.ended(job)).state is State.COMPLETED
                assert await desk.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.COMPLETE]


@pytest.mark.usefixtures("deaf")
async def test_a_worker_that_stops_gives_back_what_was_leased_to_it_meanwhile(
    url: str, operator: Redis, queue: QueueRef
) -> None:
    """Also when it did not arrive."""
    async with opened(RedisStore(url)) as store:
        desk = Desk(queue, store)

        async def work() -> None: ...

        async with desk.working(work):
            await eventually(lambda: _stands(operator, queue))
            job = await desk.enqueue("work")
            leased = await desk.job(job)

        assert leased.state is State.ACTIVE
        assert (await desk.job(job)).state is State.PENDING
        assert await desk.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.RELEASE]


async def _stands(operator: Redis, queue: QueueRef) -> bool:
    return bool(await tell(operator, "HGET", keys_of(queue).meta, "standing"))


async def stand(store: Store, queue: QueueRef, worker: str = "worker", limit: int = 10) -> Claims:
    """A claim that may stand."""
    return await store.claim(queue, worker=worker, limit=limit, lease_ms=LEASE_MS, stand_ms=STAND_MS)


@asynccontextmanager
async def waiting(
    store: Store, queue: QueueRef, worker: str = "worker", *, stands: bool = True
) -> AsyncIterator[Bell]:
    """A worker whose claim stands, with its bell, which is quiet."""
    async with store.bell(queue, Topic.READY) as bell:
        claims = await stand(store, queue, worker) if stands else None
        while await bell.wait(0.02):
            pass

        assert claims is None or (claims.jobs == [] and claims.stands is not None)
        yield bell
