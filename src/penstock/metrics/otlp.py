"""The numbers as OpenTelemetry's SDK collects them, for OTLP and other exporters. Needs the extra `otel`."""

from collections.abc import Callable, Iterable
from functools import partial

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.metrics.families import FAMILIES, Family, Kind
from penstock.metrics.latency import Histogram
from penstock.metrics.recorder import Metrics
from penstock.metrics.sampler import Sampler
from penstock.metrics.snapshot import samples

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
except ModuleNotFoundError as error:
    raise ConfigError(
        f"metrics for OpenTelemetry need the extra `otel`: {install_command('otel')}"
    ) from error


def export(metrics: Metrics, provider: MeterProvider, sampler: Sampler | None = None) -> None:
    """Have the provider collect these numbers whenever its readers do.

    With a `sampler`, also what it last read from the store; `sampler.refresh()` takes a new sample.
    """
    meter = provider.get_meter("penstock")

    def observed(
        family: Family, number: Callable[[float | Histogram], float], _: CallbackOptions
    ) -> Iterable[Observation]:
        return [
            Observation(number(value), dict(zip(found.labels, labels, strict=True)))
            for found, labels, value in samples(metrics, sampler)
            if found is family
        ]

    for name, family in FAMILIES.items():
        match family.kind:
            case Kind.COUNTER:
                meter.create_observable_counter(name, [partial(observed, family, _plain)], "", family.help)
            case Kind.GAUGE:
                meter.create_observable_gauge(name, [partial(observed, family, _plain)], "", family.help)
            case Kind.HISTOGRAM:
                meter.create_observable_counter(
                    f"{name}_count", [partial(observed, family, _count)], "", family.help
                )
                meter.create_observable_counter(
                    f"{name}_sum", [partial(observed, family, _sum)], "", family.help
                )


def _plain(value: float | Histogram) -> float:
    return 0.0 if isinstance(value, Histogram) else value


def _count(value: float | Histogram) -> float:
    return value.cumulative[-1] if isinstance(value, Histogram) else 0.0


def _sum(value: float | Histogram) -> float:
    return value.total if isinstance(value, Histogram) else 0.0
