"""How many jobs one call promotes, and how many expired leases it names, is bounded by what it is told."""

import pytest

from penstock.core.job import QueueRef
from penstock.core.limits import MOST_PER_CALL, Declaration, Mode
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.maintenance.promoter import Promoter
from penstock.maintenance.reclaimer import Reclaimer
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import LEASE_MS, enqueue, new_job
from penstock.testing.conformance.parts import Part, needs

DELAY_MS = 1_000
MODES = [Declaration(), Declaration(max_active=100), Declaration(mode=Mode.KEYED, key_limit=100)]


@needs(Part.LIMITS)
@pytest.mark.parametrize("declaration", MODES, ids=["plain", "limited", "keyed"])
async def test_a_claim_promotes_as_many_jobs_as_it_is_told(
    store: Store, queue: QueueRef, declaration: Declaration
) -> None:
    await store.queues.declare(queue, declaration)
    await enqueue(store, queue, [new_job(key="k", delay_ms=DELAY_MS) for _ in range(8)])
    await store.clock.advance_clock(2 * DELAY_MS)
    limits = ClaimLimits(promote_limit=3)
    counts = []
    for _ in range(3):
        seen = (await store.events.event_range(queue))[1]
        await store.moves.claim(queue, worker="w", limit=50, lease_ms=LEASE_MS, limits=limits)
        events = await store.events.read_events(queue, seen)
        counts.append(sum(event.move is Move.PROMOTE for event in events))
    await store.clock.advance_clock(-2 * DELAY_MS)

    assert counts == [3, 3, 2]


@needs(Part.LIMITS)
@pytest.mark.parametrize("declaration", MODES, ids=["plain", "limited", "keyed"])
async def test_a_claim_names_as_many_expired_leases_as_it_is_told(
    store: Store, queue: QueueRef, declaration: Declaration
) -> None:
    await store.queues.declare(queue, declaration)
    await enqueue(store, queue, [new_job(key="k") for _ in range(5)])
    await store.moves.claim(queue, worker="dead", limit=5, lease_ms=LEASE_MS)
    await store.clock.advance_clock(2 * LEASE_MS)
    limits = ClaimLimits(recover_limit=2)
    few = await store.moves.claim(queue, worker="w", limit=5, lease_ms=LEASE_MS, limits=limits)
    all_of_them = await store.moves.claim(queue, worker="w", limit=5, lease_ms=LEASE_MS)
    await store.clock.advance_clock(-2 * LEASE_MS)

    assert (len(few.expired), len(all_of_them.expired)) == (2, 5)


async def test_upkeep_promotes_in_batches_of_the_size_that_is_set(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job(delay_ms=DELAY_MS) for _ in range(4)])
    await store.clock.advance_clock(2 * DELAY_MS)
    promoter = Promoter(store, queue, 3)
    rounds = [await promoter.tick(), await promoter.tick()]
    await store.clock.advance_clock(-2 * DELAY_MS)

    assert rounds == [True, False]
    assert (await store.reads.counts(queue))[State.PENDING] == 4


async def test_upkeep_recovers_in_batches_of_the_size_that_is_set(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job() for _ in range(3)])
    await store.moves.claim(queue, worker="dead", limit=3, lease_ms=LEASE_MS)
    await store.clock.advance_clock(2 * LEASE_MS)
    reclaimer = Reclaimer(store, queue, 2)
    rounds = [await reclaimer.tick(), await reclaimer.tick()]
    await store.clock.advance_clock(-2 * LEASE_MS)

    assert rounds == [True, False]
    assert (await store.reads.counts(queue))[State.ACTIVE] == 0


async def test_the_largest_limits_are_within_what_a_store_can_do(store: Store, queue: QueueRef) -> None:
    """More jobs than a server takes as arguments of one command."""
    many = 9_000
    await enqueue(store, queue, [new_job(delay_ms=DELAY_MS) for _ in range(many)])
    await store.clock.advance_clock(2 * DELAY_MS)
    limits = ClaimLimits(claim_scan=MOST_PER_CALL, promote_limit=MOST_PER_CALL, recover_limit=MOST_PER_CALL)
    await store.moves.claim(queue, worker="w", limit=0, lease_ms=LEASE_MS, limits=limits)
    promoted = (await store.reads.counts(queue))[State.PENDING]
    while (await store.moves.claim(queue, worker="dead", limit=1_000, lease_ms=LEASE_MS)).jobs:
        pass
    await store.clock.advance_clock(2 * LEASE_MS)
    claims = await store.moves.claim(queue, worker="w", limit=0, lease_ms=LEASE_MS, limits=limits)
    recovered = await Reclaimer(store, queue).recover(claims.expired)
    await store.clock.advance_clock(-2 * LEASE_MS - 2 * DELAY_MS)

    assert (promoted, recovered) == (many, many)
