"""The metrics of an app's workers: what they count, and samples of the queues that they serve."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.core.job import QueueRef
from penstock.metrics.families import MEDIA_TYPE
from penstock.metrics.recorder import Metrics
from penstock.metrics.sampler import Sampler
from penstock.worker.health_server import HealthAnswer, HealthServer

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


def instrument_if_installed(app: "Penstock") -> None:
    """Count what the app does, where the extra `prometheus` is installed and nobody counts yet."""
    if app.metrics is None and find_spec("prometheus_client") is not None:
        app.instrument(Metrics())


def add_metrics(server: HealthServer, exposition: "Exposition") -> None:
    """Let the health port answer scrapes too, in its own thread."""

    async def scrape() -> HealthAnswer:
        text = await asyncio.to_thread(exposition.text_from_thread)
        return HealthAnswer(HTTPStatus.OK, text, MEDIA_TYPE)

    server.routes["/metrics"] = scrape
