"""The metrics of the service: its store observed, and all queues of all tenants sampled."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.core.job import QueueRef
from penstock.metrics.labels import MOST_QUEUES
from penstock.metrics.recorder import Metrics
from penstock.metrics.sampler import Sampler
from penstock.stores.observed import observe
from penstock.stores.protocol import Store

if TYPE_CHECKING:
    from penstock.metrics.exposition import Exposition


def measured(store: Store) -> "Exposition | None":
    """The store observed from now on; None, and nothing is loaded, without the extra `prometheus`."""
    if find_spec("prometheus_client") is None:
        return None
    from penstock.metrics.exposition import Exposition

    metrics = Metrics()
    observe(store, metrics)

    async def queues() -> Sequence[QueueRef]:
        found: list[QueueRef] = []
        for tenant in await store.queues.list_tenants():
            found += [info.queue for info in await store.queues.list_queues(tenant)]
        return found

    return Exposition(metrics, Sampler(store, queues, metrics, most_queues=MOST_QUEUES))
