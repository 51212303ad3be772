"""The relayer: bounded runs, in order, past what cannot go over yet."""

from typing import Any

from penstock import JobRef, NewJob, QueueRef, State
from penstock.client.relay import relay
from penstock.core.limits import Declaration
from penstock.core.moves import Complete
from penstock.scheduler import relayer
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Spawn

HOME, TIGHT, SUMS = (QueueRef("default", name) for name in ("home", "tight", "sums"))


def new(job: str, **given: Any) -> NewJob:
    return NewJob(id=job, nonce="n", task="t", payload=b"{}", **given)


async def test_what_finds_no_room_stays_and_holds_up_nothing_else() -> None:
    store = MemoryStore()
    await store.declare(TIGHT, Declaration(max_length=1))
    parent, child = JobRef("sums", "parent"), JobRef("home", "child")
    await store.enqueue(SUMS, [new("parent", awaits=(child,))])
    await store.enqueue(HOME, [new("first")], [Spawn("tight", new(f"{number}")) for number in range(450)])
    await store.enqueue(HOME, [new("child", parents=(parent,), priority=9)])
    (job,) = (await store.claim(HOME, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.settle(HOME, [Complete(job.id, job.token, b"1")])

    assert await relay(store, HOME) == 2
    (found,) = await store.get(SUMS, ["parent"])
    assert found is not None
    assert found.state is State.PENDING
    assert len(await store.relays(HOME, 1_000)) == 449

    await store.cancel(TIGHT, ["0"])
    assert await relay(store, HOME) == 1
    assert await relay(store, HOME) == 0


async def test_a_run_carries_no_more_than_it_was_told() -> None:
    store = MemoryStore()
    await store.enqueue(HOME, [new("first")], [Spawn("sums", new(f"{number}")) for number in range(7)])

    assert [await relay(store, HOME, limit=3) for _ in range(4)] == [3, 3, 1, 0]
    assert [job.id for job in (await store.claim(SUMS, worker="w", limit=9, lease_ms=30_000)).jobs] == [
        f"{number}" for number in range(7)
    ]


async def test_endings_for_parents_that_are_gone_are_dropped() -> None:
    store = MemoryStore()
    await store.enqueue(HOME, [new("child", parents=(JobRef("sums", "gone"),))])
    await store.cancel(HOME, ["child"])

    assert await relay(store, HOME) == 1
    assert await store.relays(HOME) == []


def test_the_duty_is_the_same_function() -> None:
    assert relayer.relay is relay
