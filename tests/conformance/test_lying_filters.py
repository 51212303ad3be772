"""With Bloom filters that lie, every store does what it does without any."""

import inspect
import secrets
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from penstock.client.queue_administration import QueueAdministration
from penstock.client.retrying import RetryingCaller
from penstock.core.ids import IdMaker
from penstock.core.job import QueueRef
from penstock.core.outcomes import Enqueued
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.testing.conformance import (
    aio,
    test_batches,
    test_enqueue,
    test_order,
    test_removal,
    test_unique,
)
from penstock.testing.conformance.arrange import claim, new_job
from tests.conformance.stores import Kind, Place
from tests.kit.lying import LIES, Filtering, LyingBloom

MODULES = (test_enqueue, test_batches, test_order, test_removal, test_unique)


def _plain(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """The tests that need a store and a queue and nothing else."""
    for name, function in vars(module).items():
        is_test = name.startswith("test_") and inspect.iscoroutinefunction(function)
        if is_test and set(inspect.signature(function).parameters) == {"store", "queue"}:
            yield function


PLAIN = [function for module in MODULES for function in _plain(module)]


def _filters_of(kind: Kind, lie: str) -> dict[str, Any]:
    return {"ghosts": LyingBloom(lie)} if kind.name.startswith(("redis", "valkey")) else {}


@pytest.mark.parametrize("function", PLAIN, ids=lambda function: function.__name__.removeprefix("test_"))
def test_what_holds_without_filters_holds_with_lying_ones(
    kind: Kind, where: Place, queue: QueueRef, function: Callable[..., Any]
) -> None:
    """The filter that says "maybe" of every key has each of them looked up; the others ask for less."""

    async def body() -> None:
        async with kind.open(where, **_filters_of(kind, "always")) as store:
            await function(store=Filtering(store, LyingBloom("always")), queue=queue)
            assert await store.health.check(queue) == []

    aio.run(body, {})


async def test_an_idempotency_key_is_held_by_its_job(store: Store, queue: QueueRef) -> None:
    made = new_job("a", idempotency_key="k\0 1")
    assert await store.reads.key_holders(queue, ["k\0 1"]) == [None]
    await store.moves.enqueue(queue, [made])
    found = await store.reads.key_holders(queue, ["other", "k\0 1", "k\0 1"])
    assert found[0] is None
    assert found[1] == found[2]
    assert found[1] is not None
    assert (found[1].id, found[1].state, found[1].digest) == ("a", State.PENDING, made.digest)
    await store.moves.delete(queue, ["a"])
    (gone,) = await store.reads.key_holders(queue, ["k\0 1"])
    assert gone is not None
    assert (gone.id, gone.state) == ("a", None)
    await store.clock.advance_clock(made.options.key_held_ms + 1)
    assert await store.reads.key_holders(queue, ["k\0 1"]) == [None]
    assert await store.moves.enqueue(queue, [new_job("b", idempotency_key="k\0 1")]) == [
        Enqueued("b", True, State.PENDING)
    ]


@pytest.mark.parametrize("lie", LIES)
async def test_no_job_is_doubled_or_lost_by_its_key(store: Store, queue: QueueRef, lie: str) -> None:
    filtering = Filtering(store, LyingBloom(lie))
    made = IdMaker(lambda: 1, secrets.randbits)
    for _ in range(3):
        jobs = [new_job(made.make(1), idempotency_key=f"k{n % 20}") for n in range(50)]
        answers = await filtering.enqueue(queue, jobs)
        assert all(isinstance(answer, Enqueued) for answer in answers)
        by_key: dict[str | None, set[str]] = {}
        for new, answer in zip(jobs, answers, strict=True):
            assert isinstance(answer, Enqueued)
            by_key.setdefault(new.idempotency_key, set()).add(answer.id)
        assert all(len(ids) == 1 for ids in by_key.values())
    assert (await store.reads.counts(queue))[State.PENDING] == 20


@pytest.mark.parametrize("lie", LIES)
async def test_a_purge_leaves_no_job_behind(store: Store, queue: QueueRef, lie: str) -> None:
    await store.moves.enqueue(queue, [new_job(f"j{n}") for n in range(1_200)])
    upkeep = QueueAdministration(store, queue, RetryingCaller(), LyingBloom(lie))
    assert await upkeep.purge(None) == 1_200
    assert sum((await store.reads.counts(queue)).values()) == 0


@pytest.mark.parametrize("lie", LIES)
def test_claims_pass_over_ghosts_and_over_no_job(kind: Kind, where: Place, queue: QueueRef, lie: str) -> None:
    async def body() -> None:
        async with kind.open(where, **_filters_of(kind, lie)) as store:
            ids = [f"j{n:04}" for n in range(1_500)]
            await store.moves.enqueue(queue, [new_job(each) for each in ids])
            gone = set(ids[:700]) | set(ids[900:1_400:2])
            await store.moves.delete(queue, [each for each in ids if each in gone])
            found: list[str] = []
            for _ in range(200):
                got = await claim(store, queue, limit=50)
                found += [job.id for job in got]
                if len(found) == len(ids) - len(gone):
                    break
            assert found == [each for each in ids if each not in gone]
            assert await store.health.check(queue) == []

    aio.run(body, {})
