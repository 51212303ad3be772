"""Many workers on one store at once: coroutines, threads and processes."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from penstock.core.errors import DeclarationError
from penstock.core.events import Event
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import Claimed, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate
from penstock.core.moves import Complete, Expire, Move, Release, Retry, Settlement
from penstock.core.outcomes import Applied, Enqueued
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, enqueue, new_job
from penstock.testing.conformance.parts import Part, needs

JOBS = 120
WORKERS = 6
THREADS = 4


async def test_coroutines_share_the_jobs_without_overlap(store: Store, queue: QueueRef) -> None:
    """Every job is claimed once and completed once."""
    await enqueue(store, queue, [new_job() for _ in range(JOBS)])
    taken = await asyncio.gather(*(_work(store, queue, random.Random(n), 0.0) for n in range(WORKERS)))

    await _judge_work(store, queue, [job for jobs in taken for job in jobs])


@needs(Part.HANDLES)
async def test_threads_share_the_jobs_without_overlap(store: Store, queue: QueueRef) -> None:
    """Also when they give jobs back and retry them: one lease per delivery."""
    await enqueue(store, queue, [new_job() for _ in range(JOBS)])
    taken: list[Claimed] = []

    async def work(clone: Store, n: int) -> None:
        taken.extend(await _work(clone, queue, random.Random(n), 0.4))

    await _in_threads(store, work)

    await _judge_work(store, queue, taken)


@needs(Part.HANDLES)
async def test_an_expired_lease_is_recovered_once_however_many_try(store: Store, queue: QueueRef) -> None:
    """One attempt is used, and one event written."""
    await enqueue(store, queue, [new_job() for _ in range(JOBS)])
    held = await claim(store, queue, JOBS)
    await store.clock.advance_clock(LEASE_MS)
    expiries = [Expire(job.id, job.token, State.DELAYED, FAULT, 0) for job in held]
    applied: Counter[str] = Counter()

    async def recover(clone: Store, n: int) -> None:
        mine = random.Random(n).sample(expiries, len(expiries))
        for start in range(0, len(mine), 10):
            part = mine[start : start + 10]
            outcomes = await clone.moves.expire(queue, part)
            applied.update(
                said.id for said, answer in zip(part, outcomes, strict=True) if isinstance(answer, Applied)
            )

    await _in_threads(store, recover)
    records = await store.reads.get(queue, [job.id for job in held])

    assert set(applied.values()) == {1}
    assert len(applied) == JOBS
    assert {record.attempts for record in records if record} == {1}
    assert await store.events.event_range(queue) == (1, 3 * JOBS)


@needs(Part.HANDLES)
async def test_either_the_worker_or_the_recovery_wins(store: Store, queue: QueueRef) -> None:
    """Never both, never neither, when a settlement comes just after the deadline."""
    await enqueue(store, queue, [new_job() for _ in range(JOBS)])
    held = await claim(store, queue, JOBS)
    await store.clock.advance_clock(LEASE_MS)
    won: list[tuple[str, str]] = []

    async def act(clone: Store, n: int) -> None:
        for job in random.Random(n).sample(held, len(held)):
            if n % 2:
                [answer] = await clone.moves.expire(queue, [Expire(job.id, job.token, State.DEAD, FAULT)])
            else:
                [answer] = await clone.moves.settle(queue, [Complete(job.id, job.token)])
            if isinstance(answer, Applied):
                won.append((job.id, answer.state))

    await _in_threads(store, act, 2)
    counts = await store.reads.counts(queue)

    assert sorted(job for job, _ in won) == sorted(job.id for job in held)
    assert counts[State.DEAD] == sum(state == State.DEAD for _, state in won)
    assert counts[State.DEAD] + counts[State.COMPLETED] == JOBS


@needs(Part.HANDLES)
async def test_one_of_many_equal_keys_makes_the_job(store: Store, queue: QueueRef) -> None:
    """All others get it, from whichever thread they come."""
    numbers = count()
    answers: list[Enqueued] = []

    async def ask(clone: Store, _: int) -> None:
        for n in range(20):
            jobs = [new_job(f"j{next(numbers)}", idempotency_key=f"k{n}")]
            answers.extend(
                each for each in await clone.moves.enqueue(queue, jobs) if isinstance(each, Enqueued)
            )

    await _in_threads(store, ask)

    assert len(answers) == 20 * THREADS
    assert sum(answer.created for answer in answers) == 20
    assert len({answer.id for answer in answers}) == 20
    assert await store.events.event_range(queue) == (1, 20)


@needs(Part.HANDLES)
async def test_due_jobs_are_promoted_once(store: Store, queue: QueueRef) -> None:
    """However many tick."""
    await enqueue(store, queue, [new_job(delay_ms=1_000) for _ in range(JOBS)])
    await store.clock.advance_clock(1_000)
    moved: list[int] = []

    async def tick(clone: Store, _: int) -> None:
        while some := await clone.moves.promote(queue, 7):
            moved.append(some)

    await _in_threads(store, tick)

    assert sum(moved) == JOBS
    assert await store.events.event_range(queue) == (1, 2 * JOBS)


@needs(Part.HANDLES)
async def test_queues_opened_at_once_get_numbers_of_their_own(store: Store, queue: QueueRef) -> None:
    """Within a tenant no number is given twice."""
    numbers: list[tuple[str, int]] = []

    async def work(clone: Store, n: int) -> None:
        for name in random.Random(n).sample([f"q{each}" for each in range(10)], 10):
            info = await clone.queues.open_queue(QueueRef(queue.tenant, name))
            numbers.append((name, info.number))

    await _in_threads(store, work)

    assert len(set(numbers)) == 10
    assert len({number for _, number in numbers}) == 10


@needs(Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_threads_never_run_more_of_a_key_than_it_has_slots(store: Store, queue: QueueRef) -> None:
    """Every slot counted at every moment; jobs are given back, retried and completed meanwhile."""
    limits = {"a": 1, "b": 2, "c": 3}
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC))
    for key, limit in limits.items():
        await store.queues.set_key_rule(queue, key, KeyRule(limit=limit, weight=limit))
    await enqueue(store, queue, [new_job(key=key) for key in limits for _ in range(JOBS // 3)])
    taken: list[Claimed] = []

    async def work(clone: Store, n: int) -> None:
        taken.extend(await _work(clone, queue, random.Random(n), 0.3))

    await _in_threads(store, work)

    await _judge_work(store, queue, taken)
    most = most_at_once(await all_events(store, queue))
    assert {key: most[key] for key in limits if most[key] > limits[key]} == {}
    assert [(info.key, info.active) for info in await store.queues.list_keys(queue)] == [
        (key, 0) for key in limits
    ]


@needs(Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_changes_of_a_rule_lose_none_of_each_other(store: Store, queue: QueueRef) -> None:
    """One changes the limit of a key while others change its weight."""
    keys = [f"k{number:02}" for number in range(20)]
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC))

    async def change(clone: Store, n: int) -> None:
        rule = KeyRule(limit=7) if n % 2 else KeyRule(weight=3)
        await asyncio.gather(*(clone.queues.set_key_rule(queue, key, rule) for key in keys))

    await _in_threads(store, change)

    assert await store.queues.list_keys(queue) == [KeyInfo(key, 0, 0, 7, 3) for key in keys]


@needs(Part.HANDLES, Part.LIMITS)
async def test_threads_never_run_more_than_max_active(store: Store, queue: QueueRef) -> None:
    """Nor fewer, while jobs wait and workers ask for more."""
    await store.queues.declare(queue, Declaration(max_active=5))
    await enqueue(store, queue, [new_job() for _ in range(JOBS)])
    taken: list[Claimed] = []

    async def work(clone: Store, n: int) -> None:
        taken.extend(await _work(clone, queue, random.Random(n), 0.3))

    await _in_threads(store, work)

    await _judge_work(store, queue, taken)
    assert sum(most_at_once(await all_events(store, queue)).values()) <= 5


@needs(Part.HANDLES, Part.LIMITS)
async def test_threads_together_keep_the_rate(store: Store, queue: QueueRef) -> None:
    """It is the queue's, however many claim."""
    await store.queues.declare(queue, Declaration(rate=Rate(1, 60_000, burst=7)))
    await enqueue(store, queue, [new_job() for _ in range(JOBS)])
    taken: list[Claimed] = []

    async def grab(clone: Store, n: int) -> None:
        for _ in range(10):
            taken.extend(await claim(clone, queue, 1 + n))

    await _in_threads(store, grab)

    assert len(taken) == 7


@needs(Part.HANDLES, Part.LIMITS)
async def test_threads_together_fill_a_queue_to_its_length(store: Store, queue: QueueRef) -> None:
    """Not one job more, and not one less."""
    await store.queues.declare(queue, Declaration(max_length=50))
    accepted: list[str] = []

    async def fill(clone: Store, _: int) -> None:
        for _ in range(8):
            answers = await clone.moves.enqueue(queue, [new_job() for _ in range(3)])
            accepted.extend(answer.id for answer in answers if isinstance(answer, Enqueued))

    await _in_threads(store, fill)

    assert len(accepted) == 50
    assert (await store.reads.counts(queue))[State.PENDING] == 50


@needs(Part.HANDLES, Part.UNIQUE)
async def test_one_of_many_of_a_kind_is_there(store: Store, queue: QueueRef) -> None:
    """The others get it, from whichever thread they come."""
    unique = [Unique(f"kind-{n}", UniqueRule.LIVE) for n in range(20)]
    answers: list[Enqueued] = []

    async def ask(clone: Store, n: int) -> None:
        for each in random.Random(n).sample(unique, len(unique)):
            said = await clone.moves.enqueue(queue, [new_job(unique=each)])
            answers.extend(answer for answer in said if isinstance(answer, Enqueued))

    await _in_threads(store, ask)

    assert len(answers) == 20 * THREADS
    assert sum(answer.created for answer in answers) == 20
    assert (await store.reads.counts(queue))[State.PENDING] == 20


@needs(Part.FLOWS, Part.HANDLES)
async def test_a_parent_is_unblocked_once_however_many_tell_it(store: Store, queue: QueueRef) -> None:
    """Every ending counts once, in whatever order they come."""
    children = [JobRef("other", f"c{n}") for n in range(30)]
    await store.moves.enqueue(queue, [new_job("p", awaits=children)])
    answers: list[Applied] = []

    async def tell(clone: Store, n: int) -> None:
        for child in random.Random(n).sample(children, len(children)):
            [answer] = await clone.flows.child_ended(queue, [ChildEnding("p", child, State.COMPLETED)])
            if isinstance(answer, Applied):
                answers.append(answer)

    await _in_threads(store, tell)

    assert len(answers) == len(children)
    assert [answer.state for answer in answers].count(State.PENDING) == 1
    assert await store.events.event_range(queue) == (1, 2)


@needs(Part.HANDLES, Part.KEYS, Part.LIMITS)
async def test_one_of_many_declarations_is_written(store: Store, queue: QueueRef) -> None:
    """The others are told that theirs is another."""
    outcomes: list[str] = []

    async def declare(clone: Store, n: int) -> None:
        try:
            await clone.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=1 + n))
            outcomes.append("written")
        except DeclarationError:
            outcomes.append("refused")

    await _in_threads(store, declare)

    assert sorted(outcomes) == ["refused"] * (THREADS - 1) + ["written"]


def most_at_once(events: Sequence[Event]) -> Counter[str]:
    """The most jobs of each key that ran at one time, by the events."""
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for event in events:
        key = event.key or ""
        if event.move is Move.CLAIM:
            now[key] += 1
            most[key] = max(most[key], now[key])
        elif event.source is State.ACTIVE and event.target is not State.ACTIVE:
            now[key] -= 1
    return most


async def all_events(store: Store, queue: QueueRef) -> list[Event]:
    """Every event of the queue."""
    events: list[Event] = []
    while page := await store.events.read_events(queue, after=len(events)):
        events += page
    return events


async def _work(store: Store, queue: QueueRef, chance: random.Random, back: float) -> list[Claimed]:
    """Claim and settle until every job has ended; give back some part of them. All that was claimed."""
    taken: list[Claimed] = []
    while True:
        jobs = await claim(store, queue, chance.randint(1, 4))
        taken += jobs
        said: list[Settlement] = []
        for job in jobs:
            if job.delivery < 4 and chance.random() < back:
                said.append(
                    Release(job.id, job.token)
                    if chance.random() < 0.5
                    else Retry(job.id, job.token, 0, FAULT)
                )
            else:
                said.append(Complete(job.id, job.token))
        answers = await store.moves.settle(queue, said)
        assert all(isinstance(answer, Applied) for answer in answers), f"a held lease was refused: {answers}"
        if not jobs:
            counts = await store.reads.counts(queue)
            if counts[State.COMPLETED] == sum(counts.values()):
                return taken


async def _judge_work(store: Store, queue: QueueRef, taken: Sequence[Claimed]) -> None:
    counts = await store.reads.counts(queue)
    events = await all_events(store, queue)
    claims = [(event.job, event.delivery) for event in events if event.move is Move.CLAIM]
    deliveries: Counter[str] = Counter(job.id for job in taken)

    assert counts[State.COMPLETED] == sum(counts.values()) == JOBS
    assert len(taken) == len({(job.id, job.delivery) for job in taken}), "a delivery was handed out twice"
    assert sorted(claims) == sorted((job.id, job.delivery) for job in taken)
    assert all(max(job.delivery for job in taken if job.id == name) == n for name, n in deliveries.items())
    assert sorted(event.seq for event in events) == list(range(1, len(events) + 1))
    assert len({job.token for job in taken}) == len(taken)


async def _in_threads(
    store: Store, act: Callable[[Store, int], Awaitable[None]], threads: int = THREADS
) -> None:
    """The act on clones of the store in threads, started together."""
    start = threading.Barrier(threads)

    async def each(n: int) -> None:
        clone = store.clone()
        await clone.open()
        try:
            await asyncio.to_thread(start.wait, 30)
            await act(clone, n)
        finally:
            await clone.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, each(n)) for n in range(threads)))
