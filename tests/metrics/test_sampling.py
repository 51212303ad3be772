"""A scrape comes back whatever the store and the event loop do, and says when its values are old."""

import asyncio
import threading
from typing import Any

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.metrics import Metrics
from penstock.metrics.exposition import Exposition
from penstock.metrics.sampler import MOST_READERS, Sampler
from penstock.stores.protocol import Store
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, block_until
from tests.metrics.kit import Parsed

QUEUE = QueueRef("acme", "mail")


class Moody(InterceptedStore):
    """A store that can be away, or silent."""

    is_away = False

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        self.asked += 1
        if self.is_away:
            raise StoreUnavailableError("the store is away")
        await self.answers.wait()
        return await self.real.reads.counts(queue)


def exposed(store: Store, *queues: QueueRef, **options: Any) -> Exposition:
    """What a scrape gets of these queues."""

    async def named() -> list[QueueRef]:
        return list(queues or [QUEUE])

    metrics = Metrics()
    return Exposition(metrics, Sampler(store, named, metrics, **{"fresh": 0, "wait": 0.05, **options}))


async def test_the_values_of_before_are_marked_as_stale_while_the_store_is_away() -> None:
    store = Moody()
    await store.queues.open_queue(QUEUE)
    shown = exposed(store, wait=PATIENCE)
    before = Parsed(await shown.text())
    store.is_away = True
    away = Parsed(await shown.text())
    store.is_away = False
    after = Parsed(await shown.text())

    stale = [each.value("penstock_sample_stale") for each in (before, away, after)]
    assert stale == [0, 1, 0]
    assert away.value("penstock_jobs", state="pending") == 0
    assert away.value("penstock_sample_failures_total") == 1


async def test_a_store_that_does_not_answer_holds_up_no_scrape_and_is_asked_once() -> None:
    store = Moody()
    await store.queues.open_queue(QUEUE)
    store.answers.clear()
    shown = exposed(store)
    silent = [Parsed(await shown.text()) for _ in range(3)]
    asked = store.asked
    store.answers.set()
    shown.sampler._wait = PATIENCE
    after = Parsed(await shown.text())

    assert [each.value("penstock_sample_stale") for each in silent] == [1, 1, 1]
    assert asked == 1
    assert after.value("penstock_sample_stale") == 0


async def test_a_scrape_from_a_thread_is_answered_while_a_handler_blocks_the_event_loop() -> None:
    shown = exposed(Moody())
    shown.loop_wait = 0.05
    running = asyncio.create_task(shown.run())
    await asyncio.sleep(0)
    texts: list[bytes] = []
    thread = threading.Thread(target=lambda: texts.append(shown.text_from_thread()))
    thread.start()
    block_until(lambda: bool(texts))
    thread.join()
    running.cancel()

    assert Parsed(texts[0]).value("penstock_sample_stale") == 1


async def test_a_scrape_from_a_thread_has_a_new_sample_where_the_event_loop_is_free() -> None:
    store = Moody()
    await store.queues.open_queue(QUEUE)
    shown = exposed(store, wait=PATIENCE)
    shown.loop_wait = PATIENCE
    running = asyncio.create_task(shown.run())
    await asyncio.sleep(0)
    found = Parsed(await asyncio.to_thread(shown.text_from_thread))
    running.cancel()

    assert found.value("penstock_sample_stale") == 0
    assert found.value("penstock_jobs", state="pending") == 0


async def test_a_fresh_sample_is_shown_again_without_asking_the_store() -> None:
    store = Moody()
    await store.queues.open_queue(QUEUE)
    shown = exposed(store, fresh=3_600, wait=PATIENCE)
    for _ in range(3):
        await shown.text()

    assert store.asked == 1


async def test_throughput_is_what_was_completed_between_two_samples() -> None:
    now = [100.0]
    shown = exposed(Moody(), wait=PATIENCE, clock=lambda: now[0])
    stats = shown.metrics.queue(QUEUE)
    rates = []
    for completed in (50, 80, 80):
        stats.task("a").outcomes["completed"] = completed
        now[0] += 10
        found = Parsed(await shown.text())
        rates.append(found.value("penstock_throughput", queue="mail"))

    assert rates == [5.0, 3.0, 0.0]


async def test_queues_and_readers_beyond_the_bounds_are_left_out_and_said_so() -> None:
    store = Moody()
    names = [QueueRef("acme", f"q{n}") for n in range(5)]
    await store.queues.open_queue(names[0])
    for n in range(MOST_READERS + 10):
        await store.readers.register_reader(names[0], f"reader-{n}", 0)
    found = Parsed(await exposed(store, *names, most_queues=3, wait=PATIENCE).text())

    assert found.labels("penstock_jobs", "queue") == {"q0", "q1", "q2"}
    assert found.value("penstock_sample_queues_left_out") == 2
    assert len(found.labels("penstock_reader_lag_events", "reader")) == MOST_READERS + 1
