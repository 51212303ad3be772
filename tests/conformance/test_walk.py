"""Random walks beside the reference.

A walk that failed is walked again with PENSTOCK_TEST_WALK=<seed>, and further ones are found with
PENSTOCK_TEST_WALKS=<how many>.
"""

import os

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from tests.conformance.walking import Walk

STEPS = 250
WALKS = 10


async def test_a_store_walks_beside_the_reference(store: Store, queue: QueueRef) -> None:
    """Every answer, record and event is the same, whatever is done in whatever order."""
    one = os.environ.get("PENSTOCK_TEST_WALK")
    seeds = [int(one)] if one else range(int(os.environ.get("PENSTOCK_TEST_WALKS", WALKS)))
    for seed in seeds:
        try:
            await Walk(store, QueueRef(queue.tenant, f"walk-{seed}"), seed).run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error
