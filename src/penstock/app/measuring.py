"""The metrics of an app's workers: what they count, and samples of the queues that they serve."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.job import QueueRef
from penstock.metrics.sampler import Sampler

if TYPE_CHECKING:
    from penstock.app.app import Penstock
    from penstock.metrics.exposition import Exposition


def exposition_of(app: "Penstock", names: Sequence[str]) -> "Exposition | None":
    """What a scrape of these queues' workers gets; None where the app is not instrumented."""
    if app.metrics is None:
        return None
    from penstock.metrics.exposition import Exposition

    refs = [app.handles[name].ref for name in names]

    async def queues() -> Sequence[QueueRef]:
        return refs

    return Exposition(app.metrics, Sampler(app.store, queues, app.metrics))
