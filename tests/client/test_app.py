"""The app: declaring queues and tasks, opening and closing the store, starting workers."""

import asyncio
from typing import Any

import pytest

from penstock import ConfigError, OptionError, Penstock, State, UnknownQueueError, current_job
from penstock.stores.memory import MemoryStore
from penstock.worker.pool import WorkerPool
from penstock.worker.worker import Worker


class Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    async def open(self) -> None:
        self.said.append("open")
        await asyncio.sleep(0)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.said.append("close")


@pytest.mark.parametrize(
    ("of_queue", "of_task"),
    [
        ({}, {"timeout": 5, "soft_timeout": 5}),
        ({"timeout": 5}, {"soft_timeout": 10}),
        ({"soft_timeout": 10}, {"timeout": 5}),
        ({}, {"soft_timeout": 300}),
    ],
)
def test_a_soft_limit_that_would_never_come_is_refused(
    of_queue: dict[str, Any], of_task: dict[str, Any]
) -> None:
    queue = Penstock("memory://").queue("q", **of_queue)

    with pytest.raises(OptionError, match=r"soft_timeout: .* wanted less than the timeout, which is"):
        queue.task(**of_task)(print_it)


def print_it(what: str) -> None:
    """A task."""


async def test_nested_and_concurrent_blocks_open_the_store_once() -> None:
    store = Counting()
    app = Penstock(store=store)

    async def use() -> None:
        async with app, app:
            assert app.is_open

    await asyncio.gather(use(), use(), use())
    assert store.said == ["open", "close"]
    assert not app.is_open
    await use()
    assert store.said == ["open", "close"] * 2


async def test_a_store_that_does_not_open_leaves_the_app_closed() -> None:
    class Shut(Counting):
        async def open(self) -> None:
            await super().open()
            if len(self.said) == 1:
                raise OSError("shut")

    app = Penstock(store=Shut())

    with pytest.raises(OSError, match="shut"):
        async with app:
            pass
    async with app:
        assert app.is_open


def test_an_app_can_be_opened_in_one_event_loop_after_another() -> None:
    app = Penstock("memory://")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    async def use() -> State:
        async with app:
            return await (await add.enqueue(1, 2)).status()

    assert [asyncio.run(use()) for _ in range(2)] == [State.PENDING] * 2


async def test_a_second_event_loop_is_told_to_use_the_blocking_face() -> None:
    app = Penstock("memory://")
    task = app.by_name("x")

    async def use() -> None:
        async with app:
            pass

    app.queue("default")
    async with app:
        for work in (use, lambda: task.enqueue(a=1)):
            with pytest.raises(ConfigError, match=r"another event loop: .* app\.blocking"):
                await asyncio.to_thread(lambda work=work: asyncio.run(_call(work)))  # type: ignore[misc]


async def _call(work: Any) -> None:
    await work()


def test_a_queue_is_declared_once() -> None:
    app = Penstock("memory://")
    mail = app.queue("mail", priority="high")

    assert app.queue("mail") is mail
    assert app.queue("mail", priority=7) is mail
    assert app.queues == ["mail"]
    with pytest.raises(ConfigError, match="queue 'mail' is declared already"):
        app.queue("mail", priority="low")


def test_a_task_is_named_for_its_function_unless_named_otherwise() -> None:
    app = Penstock("memory://")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.queue("mail").task(name="mail.send", max_attempts=2)
    async def send() -> None: ...

    assert app.registry.names() == ["add", "mail.send"]
    assert (add.queue, send.queue, send.defaults.max_attempts) == ("default", "mail", 2)
    assert (add.is_async, send.is_async) == (False, True)
    with pytest.raises(ConfigError, match="two tasks are named 'add'"):
        app.task(add.function)


def test_what_is_no_function_cannot_be_a_task() -> None:
    with pytest.raises(ConfigError, match="not a function"):
        Penstock("memory://").task(3)  # type: ignore[call-overload]


def test_an_app_has_a_url_or_a_store() -> None:
    assert Penstock().url == "sqlite:///penstock.db"
    assert Penstock(store=MemoryStore()).url is None
    with pytest.raises(ConfigError, match="not both"):
        Penstock("memory://", store=MemoryStore())
    with pytest.raises(ConfigError, match="found mysql://"):
        Penstock("mysql://localhost")


async def test_the_store_is_not_changed_under_an_open_app() -> None:
    app = Penstock("memory://")
    async with app:
        with pytest.raises(ConfigError, match="the app is open"), app.using(MemoryStore()):
            pass


async def test_workers_run_the_tasks_of_all_queues_and_handlers_can_enqueue() -> None:
    app = Penstock("memory://")
    seen: list[str] = []

    @app.queue("first").task
    async def start() -> None:
        await finish.enqueue(current_job().id)

    @app.queue("second").task
    def finish(by: str) -> None:
        seen.append(by)

    async def around(ctx: Any, call_next: Any) -> Any:
        seen.append(f"{ctx.task}:")
        return await call_next()

    app.middleware(execution=around)
    async with app:
        handle = await start.enqueue()
    await app.worker(["first"], burst=True).run()
    await app.worker({"second": 2, "first": 0}, concurrency=3, burst=True).run()

    assert seen == ["start:", "finish:", handle.id]


def test_a_worker_for_a_queue_that_is_not_declared_is_refused() -> None:
    app = Penstock("memory://")
    with pytest.raises(ConfigError, match="declares no queue"):
        app.worker()
    app.queue("mail")

    with pytest.raises(UnknownQueueError, match=r"'mial': did you mean 'mail'\?"):
        app.worker({"mial": 3})


def test_a_queue_can_say_how_long_its_leases_are() -> None:
    """What is said to the workers themselves comes first."""
    app = Penstock("memory://")
    app.queue("slow", lease=90)
    app.queue("quick")

    def leases(pool: WorkerPool) -> dict[str, float]:
        return {each.queue.name: each.lease for each in pool._workers if isinstance(each, Worker)}

    assert leases(app.worker()) == {"slow": 90, "quick": 30}
    assert leases(app.worker(lease=5)) == {"slow": 5, "quick": 5}
    with pytest.raises(ConfigError, match="other options"):
        app.queue("slow", lease=10)


def test_tasks_come_too_late_once_there_is_a_worker() -> None:
    app = Penstock("memory://")
    app.queue("mail")
    app.worker()

    with pytest.raises(ConfigError, match="too late"):
        app.task(test_an_app_has_a_url_or_a_store)
