"""What a process knows of a queue may be old: calls find out, and do what the queue's mode asks for."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Beat, Complete
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.testing.conformance.arrange import LEASE_MS, claim, claim_one, enqueue, new_job, settle
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")
CHILD = JobRef("other", "child")
Act = Callable[[PostgresStore, PostgresStore], Awaitable[object]]


@pytest.fixture
def stores(url: str) -> tuple[PostgresStore, PostgresStore]:
    """Two processes' handles, to be opened."""
    return PostgresStore(url), PostgresStore(url)


async def _claim(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a"), new_job("a2", key="a")])
    return [job.id for job in await claim(old, QUEUE)] == ["a1"]


async def _promote(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a", delay_ms=1_000)])
    await new.clock.advance_clock(1_000)
    return await old.moves.promote(QUEUE) == 1


async def _complete(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a"), new_job("a2", key="a")])
    held = await claim_one(new, QUEUE)
    [beat] = await old.moves.heartbeat(QUEUE, [Beat(held.id, held.token)], LEASE_MS)
    await settle(old, QUEUE, Complete(held.id, held.token))
    return isinstance(beat, Applied)


async def _cancel(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a")])
    return await old.moves.cancel(QUEUE, ["a1"]) == [Applied(State.CANCELLED)]


async def _delete(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a")])
    return await old.moves.delete(QUEUE, ["a1"]) == [Applied(State.PENDING)]


async def _redrive(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a")])
    await new.moves.cancel(QUEUE, ["a1"])
    return await old.moves.redrive(QUEUE, ["a1"]) == [Applied(State.PENDING)]


async def _unblock(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a", awaits=[CHILD])])
    ending = ChildEnding("a1", CHILD, State.COMPLETED)
    return await old.flows.child_ended(QUEUE, [ending]) == [Applied(State.PENDING)]


async def _enqueue(old: PostgresStore, _: PostgresStore) -> object:
    answers = await old.moves.enqueue(
        QUEUE, [new_job("a1", key="a"), new_job("none"), new_job("b1", key="b")]
    )
    return answers[1] == Refused(Refusal.KEYLESS)


async def _expired(old: PostgresStore, new: PostgresStore) -> object:
    await enqueue(new, QUEUE, [new_job("a1", key="a")])
    await claim(new, QUEUE)
    await new.clock.advance_clock(LEASE_MS)
    return [lease.key for lease in await old.reads.expired(QUEUE)] == ["a"]


ACTS: list[Act] = [_enqueue, _claim, _promote, _complete, _cancel, _delete, _redrive, _unblock, _expired]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__.strip("_"))
async def test_a_queue_that_others_gave_keys_to(
    stores: tuple[PostgresStore, PostgresStore], act: Act
) -> None:
    """Its first call as the process still thinks that nobody takes turns there."""
    old, new = stores
    async with opened(old), opened(new):
        await old.queues.open_queue(QUEUE)
        await new.queues.declare(QUEUE, Declaration(mode=Mode.KEYED))
        is_right = await act(old, new)
        wrong = await new.health.check(QUEUE)

    assert is_right
    assert wrong == []


async def test_a_queue_that_others_took_the_keys_from(stores: tuple[PostgresStore, PostgresStore]) -> None:
    """Jobs without a key go through it again."""
    old, new = stores
    async with opened(old), opened(new):
        await old.queues.declare(QUEUE, Declaration(mode=Mode.KEYED, max_active=1))
        await new.queues.declare(QUEUE, Declaration(version=2))
        await enqueue(old, QUEUE, [new_job("a"), new_job("b")])
        held = await claim(old, QUEUE)
        answers = await old.moves.settle(QUEUE, [Complete(job.id, job.token) for job in held])
        wrong = await new.health.check(QUEUE)

    assert answers == [Applied(State.COMPLETED)] * 2
    assert wrong == []


async def test_a_settlement_waits_for_nobody_on_a_queue_without_keys(url: str) -> None:
    """Only claims and arrivals hold the row there: an ending takes up nobody's room."""
    store = PostgresStore(url)
    async with opened(store):
        await store.queues.declare(QUEUE, Declaration(max_active=1))
        await enqueue(store, QUEUE, [new_job("a")])
        held = await claim_one(store, QUEUE)
        async with store.backend.queue_transaction(await store.backend.open_number(QUEUE)):
            answers = await store.moves.settle(QUEUE, [Complete(held.id, held.token)])

    assert answers == [Applied(State.COMPLETED)]
