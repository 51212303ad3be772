"""The blocking face: the same jobs without await, also beside a running event loop."""

import asyncio
import threading
from pathlib import Path

import pytest

from penstock import (
    BatchRefusedError,
    ConfigError,
    FlowError,
    JobEndedError,
    PayloadError,
    Penstock,
    ResultTimeoutError,
    State,
    StoreError,
    UnknownQueueError,
    group,
)
from penstock.stores.memory import MemoryStore
from tests.client.stores import Full, Recording
from tests.kit.waiting import PATIENCE

app = Penstock("memory://")


@app.task
def add(a: int, b: int) -> int:
    return a + b


def work_off(app: Penstock) -> None:
    asyncio.run(app.worker(burst=True).run())


def test_a_script_enqueues_and_gets_results_without_await() -> None:
    with app.using(MemoryStore()), app.blocking as queue:
        handle = queue.enqueue(add, 1, b=2)
        later = queue.enqueue(add.options(delay=60), 1, 2)
        assert (queue.status(handle), queue.status(later)) == (State.PENDING, State.DELAYED)

        work_off(app)

        assert queue.result(handle, timeout=PATIENCE) == 3
        assert queue.info(handle).attempts == 0
        assert queue.progress(handle) is None
        assert queue.cancel(later) is State.CANCELLED
        with pytest.raises(JobEndedError):
            queue.result(later)


def test_many_are_enqueued_at_once() -> None:
    store = Recording()
    with app.using(store), app.blocking as queue:
        handles = queue.enqueue_many(add, [(1, 2), {"a": 3, "b": 4}, add.call(5, 6)])
        work_off(app)

        assert [queue.result(handle) for handle in handles] == [3, 7, 11]
    assert store.calls == [3]


def test_errors_are_the_same_as_with_await() -> None:
    with app.using(Full()), app.blocking as queue:
        with pytest.raises(PayloadError, match="a: found '1', wanted int"):
            queue.enqueue(add, "1", 2)  # type: ignore[arg-type]
        with pytest.raises(BatchRefusedError):
            queue.enqueue_many(add, [(1, 2), (3, 4)])
        with pytest.raises(UnknownQueueError, match="no queue is named 'nope'"):
            queue.enqueue(app.by_name("x", queue="nope"), a=1)
        handle = queue.enqueue(add, 1, 2)
        with pytest.raises(ResultTimeoutError):
            queue.result(handle, timeout=0.01)  # real time: nobody works, so any time runs out


def test_what_is_no_task_is_an_error_that_says_what_to_pass() -> None:
    with app.using(MemoryStore()), app.blocking as queue:
        with pytest.raises(ConfigError, match=r"'add' is no task: .* app\.task_named\('add'\)"):
            queue.enqueue("add", 1, 2)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"is no task: .* @app\.task"):
            queue.enqueue_many(print, [(1,)])  # type: ignore[call-overload]

        assert queue.enqueue(app.task_named("add"), 1, 2).created


async def test_it_works_beside_a_running_event_loop_as_in_a_notebook() -> None:
    with app.using(MemoryStore()):
        async with app:
            sent = await add.enqueue(1, 2)
            with app.blocking as queue:
                assert queue.status(sent) is State.PENDING
                handle = queue.enqueue(add, 3, 4)

            await app.worker(burst=True).run()
            assert await app.job("default", handle.id).result() == 7


def test_threads_share_one_connection_and_their_calls() -> None:
    store = Recording()
    ids: list[str] = []

    def produce() -> None:
        with app.blocking as queue:
            ids.extend(queue.enqueue(add, number, 1).id for number in range(20))

    with app.using(store), app.blocking:
        threads = [threading.Thread(target=produce) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(thread.name == "penstock-blocking" for thread in threading.enumerate()) == 1

    assert len(set(ids)) == 160
    assert sum(store.calls) == 160


def test_the_thread_ends_with_the_last_block() -> None:
    with app.using(MemoryStore()):
        with app.blocking as queue:
            handle = queue.enqueue(add, 1, 2)

        assert not any(thread.name == "penstock-blocking" for thread in threading.enumerate())
        with pytest.raises(ConfigError, match=r"app\.blocking is closed"):
            queue.status(handle)


def test_a_store_that_cannot_be_opened_is_an_error_and_leaves_no_thread(tmp_path: Path) -> None:
    nowhere = Penstock(f"sqlite:///{tmp_path}/no/such/dir/jobs.db")

    with pytest.raises(StoreError), nowhere.blocking:
        pass
    assert not any(thread.name == "penstock-blocking" for thread in threading.enumerate())


def test_it_works_on_a_store_with_a_driver(tmp_path: Path) -> None:
    shop = Penstock(f"sqlite:///{tmp_path}/jobs.db")
    shop.queue("mail")
    with shop.blocking as queue:
        handle = queue.enqueue(shop.by_name("send", queue="mail"), to="ada")

        assert queue.status(handle) is State.PENDING


def test_flows_and_batches_are_enqueued_without_await() -> None:
    with app.using(MemoryStore()), app.blocking as queue:
        flow = app.flow()
        first = flow.add(add.call(1, 2))
        last = flow.add(add.call(3, 4), after=[first])
        handle = queue.enqueue_flow(flow)
        batch = queue.batch([add.call(1, 1), add.call(2, 2)])
        assert queue.status(handle[last]) is State.BLOCKED

        work_off(app)

        assert (queue.result(handle[first], 10), queue.result(handle[last], 10)) == (3, 7)
        assert queue.result(app.job(*batch.split("/")), 10) == {"completed": 2}
        with pytest.raises(FlowError, match="another app"):
            queue.enqueue_flow(group([add.call(1, 2), Penstock("memory://").by_name("x").call()]))
