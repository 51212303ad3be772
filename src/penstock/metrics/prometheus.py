"""The numbers as Prometheus reads them, written by its own client. Needs the extra `prometheus`."""

import threading
from collections.abc import Callable, Iterable, Iterator
from wsgiref.simple_server import WSGIServer

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.metrics.families import Family, Kind, Sample
from penstock.metrics.latency import Histogram

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ConfigError(
        f"metrics for Prometheus need the extra `prometheus`: {install_command('prometheus')}"
    ) from error


class _Collected(Collector):
    """Samples, as families of the client."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """Each metric with all its values."""
        families: dict[Family, Metric] = {}
        for family, labels, value in self._samples():
            if family not in families:
                families[family] = _empty(family)
            metric = families[family]
            if isinstance(value, Histogram):
                counts = value.cumulative
                bounds = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]
                buckets = [(bound, float(count)) for bound, count in zip(bounds, counts, strict=True)]
                metric.add_metric(labels, buckets=buckets, sum_value=value.total)  # type: ignore[attr-defined]
            else:
                metric.add_metric(labels, value)  # type: ignore[attr-defined]
        yield from families.values()


def exposition(samples: Iterable[Sample]) -> bytes:
    """The text that a scrape gets."""
    return generate_latest(_registry(lambda: samples))


def start_listening(
    samples: Callable[[], Iterable[Sample]], host: str, port: int
) -> tuple[WSGIServer, threading.Thread]:
    """Answer scrapes in threads; OSError where the port is in use."""
    return start_http_server(port, host, _registry(samples))


def _registry(samples: Callable[[], Iterable[Sample]]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    collected = _Collected(samples)
    # Registering collects once, for the names: nothing else is in this registry.
    collected.describe = list  # type: ignore[attr-defined]
    registry.register(collected)
    return registry


def _empty(family: Family) -> Metric:
    match family.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=family.labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(family.name, family.help, labels=family.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(family.name, family.help, labels=family.labels)
