"""Random walks beside the reference.

A walk that failed is walked again with PENSTOCK_TEST_WALK=<seed>, and further ones are found with
PENSTOCK_TEST_WALKS=<how many>.
"""

import os
from collections.abc import Sequence

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import Part, needs
from penstock.testing.conformance.walking import Walk, World, walk_together
from penstock.testing.conformance.walking_wide import wide_walks

STEPS = 250
WIDE_STEPS = 400
WALKS = 10
WALKS_ON_A_SECOND_SERVER = 3


async def test_a_store_walks_beside_the_reference(
    store: Store, parts: frozenset[Part], is_brief: bool, queue: QueueRef
) -> None:
    """Every answer, record and event is the same, whatever is done in whatever order."""
    for seed in _seeds(is_brief):
        try:
            world = World(store, seed, is_checked=Part.HEALTH in parts)
            await Walk(world, QueueRef(queue.tenant, f"walk-{seed}")).run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error


@needs(*Part)
async def test_a_store_walks_beside_the_reference_with_all_there_is(
    store: Store, is_brief: bool, queue: QueueRef
) -> None:
    """Keys, limits, unique jobs, flows and schedules, over two queues."""
    for seed in _seeds(is_brief):
        walks = wide_walks(World(store, seed), queue.tenant, seed)
        try:
            for walk in walks:
                await walk.declare_first()
            await walk_together(walks, WIDE_STEPS)
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error


def _seeds(is_brief: bool) -> Sequence[int]:
    one = os.environ.get("PENSTOCK_TEST_WALK")
    many = WALKS_ON_A_SECOND_SERVER if is_brief else WALKS
    return [int(one)] if one else range(int(os.environ.get("PENSTOCK_TEST_WALKS", many)))
