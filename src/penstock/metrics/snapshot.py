"""All numbers of a process as samples of the metrics, for those who may see them."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version

from penstock.core.job import QueueRef
from penstock.metrics import families as f
from penstock.metrics.families import Sample
from penstock.metrics.latency import QUANTILES, RecentValues
from penstock.metrics.recorder import Metrics, QueueStats
from penstock.metrics.sampler import Sampler

Sees = Callable[[QueueRef], bool]


def samples(metrics: Metrics, sampler: Sampler | None, sees: Sees | None = None) -> Iterator[Sample]:
    """Everything, or without `sees` left out: what is about the queues that it is true for."""
    yield Sample(f.INFO, (_version(),), 1)
    for stats in metrics.queues:
        if sees is None or sees(stats.queue):
            yield from _of_queue(stats)
    if sees is None:
        for call in metrics.calls:
            labels = (call.part, call.call)
            yield Sample(f.STORE_CALL, labels, call.seconds)
            yield Sample(f.STORE_ERRORS, labels, call.errors)
    if sampler is not None:
        yield from _sampled(sampler, sees)


def _of_queue(stats: QueueStats) -> Iterator[Sample]:
    queue = (stats.queue.tenant, stats.queue.name)
    for task in stats.tasks:
        for outcome, count in task.outcomes.copy().items():
            yield Sample(f.EXECUTIONS, (*queue, task.task, outcome), count)
        yield Sample(f.WAIT, (*queue, task.task), task.wait)
        yield Sample(f.RUN, (*queue, task.task), task.run)
    yield from _quantiles(f.WAIT_RECENT, queue, stats.recent_wait)
    yield from _quantiles(f.RUN_RECENT, queue, stats.recent_run)
    yield Sample(f.RUNNING, queue, stats.running)
    for (move, result), count in stats.moves.copy().items():
        yield Sample(f.MOVES, (*queue, move, result), count)
    for state, count in stats.expired.copy().items():
        yield Sample(f.EXPIRED, (*queue, state), count)
    yield Sample(f.CLAIM_JOBS, queue, stats.claims)


def _quantiles(family: f.Family, queue: tuple[str, str], recent: RecentValues) -> Iterator[Sample]:
    for quantile, value in zip(QUANTILES, recent.quantiles(), strict=False):
        yield Sample(family, (*queue, f"{quantile:g}"), value)


def _sampled(sampler: Sampler, sees: Sees | None) -> Iterator[Sample]:
    for each in sampler.samples:
        if sees is not None and not sees(each.queue):
            continue
        queue = (each.queue.tenant, each.queue.name)
        for state, count in each.counts.items():
            yield Sample(f.JOBS, (*queue, state.value), count)
        yield Sample(f.OLDEST, queue, each.oldest_seconds)
        for reader, lag in each.lags.items():
            yield Sample(f.READER_LAG, (*queue, reader), lag)
        yield Sample(f.WORKERS, queue, each.workers)
    for ref, rate in sampler.throughput.items():
        if sees is None or sees(ref):
            yield Sample(f.THROUGHPUT, (ref.tenant, ref.name), rate)
    yield Sample(f.SAMPLE_AGE, (), sampler.age)
    yield Sample(f.SAMPLE_STALE, (), int(sampler.is_stale))
    if sees is None:
        yield Sample(f.LOOP_LAG, (), sampler.lag_seconds)
        yield Sample(f.SAMPLE_FAILURES, (), sampler.failures)
        yield Sample(f.SAMPLE_LEFT_OUT, (), sampler.left_out)


@cache
def _version() -> str:
    return version("penstock")
