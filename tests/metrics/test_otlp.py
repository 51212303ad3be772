"""The same numbers by OpenTelemetry's own SDK."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from penstock.core.job import QueueRef
from penstock.metrics import Metrics
from penstock.metrics.otlp import export
from penstock.stores.memory import MemoryStore
from penstock.stores.observed import observe
from tests.metrics.test_every_store import exposed
from tests.worker.kit import Desk


async def test_opentelemetry_collects_what_prometheus_would_read(queue: QueueRef) -> None:
    store = MemoryStore()
    metrics, exposition = exposed(store, queue)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    export(metrics, provider, exposition.sampler)
    desk = Desk(queue, store)

    async def some() -> None: ...

    for _ in range(7):
        await desk.enqueue("some")
    await desk.burst(some, observer=metrics)
    await exposition.sampler.refresh()
    found = collected(reader)
    provider.shutdown()

    own = {"tenant": queue.tenant, "queue": queue.name}
    assert value(found, "penstock_executions_total", own | {"task": "some", "outcome": "completed"}) == 7
    assert value(found, "penstock_run_seconds_count", own | {"task": "some"}) == 7
    assert value(found, "penstock_jobs", own | {"state": "completed"}) == 7
    assert value(found, "penstock_sample_stale", {}) == 0


async def test_a_store_without_a_sampler_is_collected_as_well() -> None:
    metrics, reader = Metrics(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    export(metrics, provider)
    store = observe(MemoryStore(), metrics)
    await store.reads.counts(QueueRef("t", "q"))
    found = collected(reader)
    provider.shutdown()

    assert value(found, "penstock_store_call_seconds_count", {"part": "reads", "call": "counts"}) == 1


def collected(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """The data points by the names of their metrics."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def value(found: dict[str, list[Any]], name: str, attributes: dict[str, str]) -> float:
    """The one value under these attributes."""
    (only,) = [each.value for each in found[name] if dict(each.attributes) == attributes]
    return float(only)
