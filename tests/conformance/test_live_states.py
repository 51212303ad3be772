"""Stores that list the states of live jobs in one pass list what a query finds."""

import pytest

from penstock.core.job import QueueRef
from penstock.core.states import LIVE, State
from penstock.stores.protocol import ListsStates, Store
from penstock.stores.values import Query
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import Kind


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_every_live_job_is_listed_once_with_its_state(
    store: Store, kind: Kind, queue: QueueRef, limit: int
) -> None:
    # Elsewhere a query goes through the jobs in the order of its pages, or a service does it.
    assert isinstance(store, ListsStates) == kind.name.startswith(("sqlite", "postgres"))
    if not isinstance(store, ListsStates):
        return
    await enqueue(store, queue, [new_job("d"), new_job("b"), new_job("é"), new_job("later", delay_ms=60_000)])
    await enqueue(store, queue, [new_job("gone"), new_job("A")])
    await enqueue(store, QueueRef(queue.tenant, "other"), [new_job("elsewhere")])
    await store.moves.cancel(queue, ["gone"])
    await claim(store, queue, limit=1)
    listed: list[tuple[str, State]] = []
    while states := await store.live_states(queue, listed[-1][0] if listed else "", limit):
        assert len(states) <= limit
        listed += states
    found = (await store.reads.find(queue, Query(states=LIVE))).jobs

    assert sorted(listed) == sorted((job.id, job.state) for job in found)
    assert State.ACTIVE in dict(listed).values()


async def test_a_queue_that_is_not_there_has_no_live_jobs(store: Store, queue: QueueRef) -> None:
    if isinstance(store, ListsStates):
        assert await store.live_states(queue, "", 10) == []
