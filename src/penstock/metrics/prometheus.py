"""The numbers as Prometheus reads them, written by its own client. Needs the extra `prometheus`."""

from collections.abc import Iterable, Iterator

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.metrics.families import Family, Kind, Sample
from penstock.metrics.latency import Histogram

try:
    from prometheus_client import CollectorRegistry, generate_latest
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

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """Each metric with all its values."""
        families: dict[Family, Metric] = {}
        for family, labels, value in self._samples:
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
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(samples)))
    return generate_latest(registry)


def _empty(family: Family) -> Metric:
    match family.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=family.labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(family.name, family.help, labels=family.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(family.name, family.help, labels=family.labels)
