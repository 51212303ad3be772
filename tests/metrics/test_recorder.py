"""Numbers of a process: bounded, and what plain Python makes of the same values."""

import random
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import Penstock
from penstock.core.errors import ConfigError
from penstock.core.job import Claimed, Options, QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.metrics import Metrics
from penstock.metrics.latency import RECENT, Histogram, RecentValues
from penstock.metrics.prometheus import exposition
from penstock.metrics.snapshot import samples
from penstock.stores.memory import MemoryStore
from penstock.stores.observed import PARTS, ObservedPart, observe
from penstock.stores.protocol import Store

QUEUE = QueueRef("acme", "mail")


def job(task: str) -> Claimed:
    """A claimed job."""
    return Claimed(
        id="j", task=task, payload=b"{}", priority=5, options=Options(), enqueued_at=0, drive=1, delivery=1,
        attempts=0, token="t", fence=1, deadline=31_000,
    )  # fmt: skip


def test_percentiles_are_those_of_the_newest_thousand() -> None:
    recent = RecentValues()
    values = [random.random() for _ in range(3 * RECENT + 17)]
    for value in values:
        recent.add(value)
    newest = sorted(values[-RECENT:])

    assert recent.quantiles((0.5, 0.95, 0.99)) == [newest[499], newest[949], newest[989]]
    assert RecentValues().quantiles() == []


def test_a_histogram_counts_each_value_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.add(value)

    assert (histogram.cumulative, histogram.total) == ([2, 4, 5], 14.0)


def test_a_label_explosion_ends_in_other() -> None:
    metrics = Metrics(most_queues=3, most_series=10)
    for tenant in range(50):
        queue = QueueRef(f"t{tenant}", "q")
        for task in range(100):
            metrics.claimed(queue, [job(f"task-{task}")], 30_000)
            metrics.settled(queue, job(f"task-{task}"), Complete("j", "t"), Applied(State.COMPLETED))
    text = exposition(samples(metrics, None)).decode()
    found = [each for family in text_string_to_metric_families(text) for each in family.samples]
    executed = [each for each in found if each.name == "penstock_executions_total"]

    assert sum(each.value for each in executed) == 50 * 100
    assert {each.labels["tenant"] for each in executed} == {"t0", "t1", "t2", "other"}
    assert len({tuple(each.labels.values()) for each in executed}) <= 10 + 4
    assert "other" in {each.labels["task"] for each in executed}


def test_hostile_names_are_read_back_as_they_were() -> None:
    metrics = Metrics()
    task = 'a"b\\c\nd{e="f"} 1'
    metrics.claimed(QUEUE, [job(task)], 30_000)
    text = exposition(samples(metrics, None)).decode()
    (found,) = {
        each.labels["task"]
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == "penstock_wait_seconds_sum"
    }

    assert found == task


def test_a_cancel_that_was_requested_counts_as_cancelled_whatever_the_handler_said() -> None:
    metrics = Metrics()
    metrics.settled(QUEUE, job("a"), Complete("j", "t"), Applied(State.COMPLETED))
    metrics.settled(QUEUE, job("a"), Complete("j", "t"), Applied(State.CANCELLED))
    (stats,) = metrics.queues[0].tasks

    assert stats.outcomes == {"completed": 1, "cancelled": 1}


def test_every_part_of_a_store_is_observed_but_those_that_only_wait_or_tell_the_time() -> None:
    parts = {
        name
        for base in Store.__mro__
        if base.__name__.startswith("Has")
        for name, value in vars(base).items()
        if isinstance(value, property)
    }

    assert PARTS.keys() == parts - {"notifier", "clock"}


async def test_a_store_is_observed_once_and_its_clone_too() -> None:
    store, metrics = MemoryStore(), Metrics()
    observe(store, metrics)
    observe(store, metrics)
    assert store.clone() is store
    await store.reads.counts(QUEUE)

    assert isinstance(store.reads, ObservedPart)
    assert not isinstance(store.reads._real, ObservedPart)
    assert [(each.part, each.call, sum(each.seconds.counts)) for each in metrics.calls] == [
        ("reads", "counts", 1)
    ]


async def test_an_app_that_is_not_instrumented_has_the_store_itself_and_an_open_one_refuses() -> None:
    store = MemoryStore()
    async with Penstock(store=store) as app:
        assert not isinstance(app.store.moves, ObservedPart)
        with pytest.raises(ConfigError, match="instrument it before"):
            app.instrument(Metrics())


def test_neither_an_app_nor_a_worker_loads_what_exports_metrics_or_traces() -> None:
    code = (
        "import sys, penstock, penstock.app.working, penstock.service.app\n"
        "found = {'prometheus_client', 'opentelemetry'} & {name.split('.')[0] for name in sys.modules}\n"
        "sys.exit(', '.join(found) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
