"""Flows and schedules when two do the same at once; and that the tests would notice if nobody waited."""

import pytest

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Complete
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.flows import PostgresFlows
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.sources import load_sources
from penstock.stores.values import Adoption, Firing, Spawn, StoredSchedule
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job, states_of
from tests.conformance.stores import opened
from tests.stores.postgres.waiting import until_it_waits

QUEUE = QueueRef("default", "q")
X, Y = JobRef("children", "x"), JobRef("children", "y")
PARENT = JobRef("parents", "p")


def _flows(store: PostgresStore) -> PostgresFlows:
    """The part itself, for its steps."""
    return PostgresFlows(store.backend, PostgresQuarantine(store.backend, Counting(store.backend)))


def _unlocked() -> dict[str, str]:
    """The SQL files where no call waits for others that bring endings to the same parent."""
    sources = load_sources()
    return sources | {"shared/lock_jobs.sql": sources["shared/lock_jobs.sql"].replace("FOR UPDATE", "")}


async def _last_two_at_once(url: str, sources: dict[str, str] | None = None) -> list[Applied | Refused]:
    """The answers to two calls that bring the last two endings, the second before the first is through."""
    store = PostgresStore(url, sources=sources)
    async with opened(store):
        await store.moves.enqueue(QUEUE, [new_job("p", awaits=[X, Y])])
        async with store.backend.queue_transaction(
            await store.backend.open_number(QUEUE), holds=False
        ) as transaction:
            first = await _flows(store).unblock(transaction, [ChildEnding("p", X, State.COMPLETED)])
            other = store.flows.child_ended(QUEUE, [ChildEnding("p", Y, State.COMPLETED)])
            _, task = await until_it_waits(url, other)
        return [*(first or []), *await task]


async def test_of_two_who_bring_the_last_two_endings_one_unblocks(url: str) -> None:
    """The second waits, and then sees the ending that the first one brought."""
    assert await _last_two_at_once(url) == [Applied(State.BLOCKED), Applied(State.PENDING)]


async def test_without_the_lock_on_the_parent_nobody_would(url: str) -> None:
    """So that the test above, and the races, are about that lock."""
    assert await _last_two_at_once(url, _unlocked()) == [Applied(State.BLOCKED)] * 2


async def test_a_parent_that_just_got_another_child_is_not_unblocked(url: str) -> None:
    """The call that brings the last known ending waits for the adoption."""
    store = PostgresStore(url)
    async with opened(store):
        number = await store.backend.open_number(QUEUE)
        await store.moves.enqueue(QUEUE, [new_job("p", awaits=[X])])
        async with store.backend.engine.transaction() as first:
            await _flows(store).lock(number, ["p"], first)
            await store.backend.run_shared("adopt", number, ["p"], [Y.queue], [Y.id], on=first)
            other = store.flows.child_ended(QUEUE, [ChildEnding("p", X, State.COMPLETED)])
            waited, task = await until_it_waits(url, other)
        answers = await task
        late = await store.flows.adopt(QUEUE, [Adoption("p", (Y,))])

    assert waited
    assert answers == late == [Applied(State.BLOCKED)]


async def test_word_of_an_ending_comes_after_the_children_that_were_added_before_it(url: str) -> None:
    """The job's completion waits for its spawn, and takes a later number."""
    store = PostgresStore(url)
    async with opened(store):
        number = await store.backend.open_number(QUEUE)
        await enqueue(store, QUEUE, [new_job("c", parents=[PARENT])])
        held = await claim_one(store, QUEUE)
        async with store.backend.engine.transaction() as first:
            spawn = (held.id, held.token, '[["children","x"]]', ["children"], ["{}"])
            await store.backend.run_shared("spawn", number, *spawn, on=first)
            waited, task = await until_it_waits(url, store.moves.settle(QUEUE, [Complete("c", held.token)]))
        await task
        rows = await store.backend.query("SELECT what FROM penstock.relay ORDER BY number")
        stale = await store.flows.spawn(QUEUE, Beat("c", held.token), [Spawn("children", new_job("y"))])

    assert waited
    assert [what for (what,) in rows] == ["adopt", "spawn", "ended"]
    assert isinstance(stale, Refused)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_of_two_who_fire_an_instant_one_makes_its_job(url: str, ends: str) -> None:
    """The second waits: it finds another instant next, or fires itself when the first could not."""
    store = PostgresStore(url)
    firing = Firing("nightly", 1_000, (new_job("nightly-1000"),), 2_000, 1_000)
    async with opened(store):
        await store.schedules.put_schedule(StoredSchedule(QUEUE, "nightly", b"{}", 1_000))
        number = await store.backend.open_number(QUEUE)
        async with store.backend.engine.connection() as first:
            await first.execute("BEGIN")
            instant = "UPDATE penstock.schedule SET next_at = 2000 WHERE queue = $1 AND next_at = 1000"
            await store.backend.query(instant, number, on=first)
            waited, task = await until_it_waits(url, store.schedules.fire(QUEUE, firing))
            await first.execute(ends.upper().encode())
        fired = await task
        states = await states_of(store, QUEUE, ["nightly-1000"])

    assert waited
    assert fired is (ends == "rollback")
    assert states == [State.PENDING if fired else None]
