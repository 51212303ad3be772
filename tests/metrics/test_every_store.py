"""What a worker counts, on every store."""

import asyncio

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.metrics import Metrics
from penstock.metrics.exposition import Exposition
from penstock.metrics.families import FAMILIES
from penstock.metrics.sampler import Sampler
from penstock.stores.observed import observe
from penstock.stores.protocol import Store
from penstock.tasks.signals import Cancel, Fail, Snooze
from tests.metrics.kit import Parsed
from tests.worker.kit import Desk


def exposed(store: Store, queue: QueueRef) -> tuple[Metrics, Exposition]:
    """The store, observed, and what a scrape gets."""
    metrics = Metrics()
    observe(store, metrics)

    async def queues() -> list[QueueRef]:
        return [queue]

    return metrics, Exposition(metrics, Sampler(store, queues, metrics, fresh=0))


async def test_every_ending_is_counted_once_under_tenant_queue_and_task(
    store: Store, queue: QueueRef
) -> None:
    metrics, exposition = exposed(store, queue)
    desk = Desk(queue, store)

    async def good() -> None: ...

    async def bad() -> None:
        raise ValueError("no")

    async def final() -> None:
        raise Fail("never")

    async def later() -> None:
        raise Snooze(3600)

    async def withdrawn() -> None:
        raise Cancel

    for task, count in {"good": 5, "final": 1, "later": 1, "withdrawn": 1}.items():
        for _ in range(count):
            await desk.enqueue(task)
    await desk.enqueue("bad", max_attempts=2)
    await desk.burst(good, bad, final, later, withdrawn, observer=metrics, concurrency=3)
    found = Parsed(await exposition.text())

    def executed(task: str, outcome: str) -> float:
        labels = {"tenant": queue.tenant, "queue": queue.name, "task": task, "outcome": outcome}
        return found.value("penstock_executions_total", **labels)

    assert executed("good", "completed") == 5
    assert (executed("bad", "retried"), executed("bad", "dead")) == (1, 1)
    assert (executed("final", "failed"), executed("later", "snoozed")) == (1, 1)
    assert executed("withdrawn", "cancelled") == 1
    assert found.value("penstock_executions_total") == 10
    assert found.value("penstock_wait_seconds_count", task="good") == 5
    assert found.value("penstock_run_seconds_count", task="bad") == 2
    assert found.value("penstock_moves_total", move="claim", result="applied") == 10
    assert found.value("penstock_moves_total", move="enqueue", result="applied") == 9
    assert found.value("penstock_claim_jobs_sum") == 10
    assert found.value("penstock_running_jobs") == 0
    assert found.labels("penstock_wait_recent_seconds", "quantile") == {"0.5", "0.95", "0.99"}
    assert found.value("penstock_store_call_seconds_count", part="moves", call="settle") > 0


async def test_depth_age_and_lag_are_what_the_store_says(store: Store, queue: QueueRef) -> None:
    _, exposition = exposed(store, queue)
    desk = Desk(queue, store)
    for _ in range(3):
        await desk.enqueue("some")
    await desk.enqueue("some", delay_ms=3_600_000)
    await store.readers.register_reader(queue, "audit", 0)
    await store.clock.advance_clock(90_000)
    found = Parsed(await exposition.text())
    counts = await store.reads.counts(queue)

    assert {
        state: found.value("penstock_jobs", state=state, queue=queue.name) for state in map(str, State)
    } == {str(state): count for state, count in counts.items()}
    assert (counts[State.PENDING], counts[State.DELAYED]) == (3, 1)
    assert found.value("penstock_oldest_pending_seconds") >= 90
    assert found.value("penstock_reader_lag_events", reader="audit") == 4
    assert found.value("penstock_workers") == 0
    assert (found.value("penstock_sample_stale"), found.value("penstock_sample_failures_total")) == (0, 0)


async def test_an_expired_lease_is_counted_with_what_became_of_the_job(store: Store, queue: QueueRef) -> None:
    metrics, exposition = exposed(store, queue)
    desk = Desk(queue, store)
    await desk.enqueue("some", max_attempts=1)
    await store.moves.claim(queue, worker="gone", limit=1, lease_ms=1_000)
    await store.clock.advance_clock(2_000)

    async def some() -> None: ...

    await desk.burst(some, observer=metrics)
    found = Parsed(await exposition.text())

    assert found.value("penstock_leases_expired_total", state="dead") == 1
    assert found.value("penstock_jobs", state="dead") == 1


async def test_what_a_worker_shows_is_in_the_table_of_metrics(store: Store, queue: QueueRef) -> None:
    metrics, exposition = exposed(store, queue)
    desk = Desk(queue, store)

    async def some() -> None:
        await asyncio.sleep(0)

    await desk.enqueue("some")
    await desk.burst(some, observer=metrics)
    found = Parsed(await exposition.text())
    known = {name.removesuffix("_total") for name in FAMILIES}

    assert found.families.keys() <= known
    assert {family.documentation for family in found.families.values()} <= {
        each.help for each in FAMILIES.values()
    }
