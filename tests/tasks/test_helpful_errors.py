"""Mistakes of people who come from other job queues, and what they are told."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import ConfigError, OptionError, Penstock, ResultTimeoutError


@pytest.fixture
def app() -> Penstock:
    return Penstock("memory://")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("delay", r"await send\.enqueue\(…\), or with app\.blocking as queue: queue\.enqueue\(send, …\)"),
        ("apply_async", r"send\.options\(delay=60\)\.enqueue"),
        ("s", r"send\.call\(…\)"),
        ("anything", "a task has no 'anything'"),
    ],
)
def test_what_other_queues_call_it_is_told_as_what_it_is_here(app: Penstock, name: str, told: str) -> None:
    @app.task
    def send() -> None: ...

    assert not hasattr(send, name)
    with pytest.raises(AttributeError, match=told):
        getattr(send, name)


def test_the_blocking_face_has_to_be_entered(app: Penstock) -> None:
    with pytest.raises(AttributeError, match=r"with app\.blocking as queue: queue\.enqueue\(…\)"):
        app.blocking.enqueue  # type: ignore[attr-defined]  # noqa: B018


def test_a_handler_that_takes_self_is_told_of_its_context(app: Penstock) -> None:
    with pytest.raises(ConfigError, match=r"send\(self, …\) cannot be a task: .* ctx: JobContext"):

        @app.task
        def send(self, to: str) -> None: ...  # type: ignore[no-untyped-def]


def test_an_interval_that_is_a_number_is_told_what_it_lacks(app: Penstock) -> None:
    with pytest.raises(
        OptionError, match=r"interval: found 1, wanted a timedelta, or seconds=.*every\(seconds=30\)"
    ):
        app.every(1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"), [("id", "a"), ("idempotency_key", "k"), ("run_at", datetime(2030, 1, 1, tzinfo=UTC))]
)
def test_what_one_call_can_say_is_refused_of_all(app: Penstock, option: str, value: object) -> None:
    wanted = rf"{option}: found .*, wanted none here: it is of one call, as in task\.options\({option}=…\)"
    with pytest.raises(OptionError, match=wanted):
        app.queue("mail", **{option: value})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=wanted):
        app.task(**{option: value})  # type: ignore[call-overload]


def test_an_unknown_option_is_told_those_that_can_be_given_there(app: Penstock) -> None:
    with pytest.raises(OptionError, match=r"wanted one of .*mode.*max_active") as caught:
        app.queue("mail", rat=5)  # type: ignore[call-arg]
    assert "run_at" not in str(caught.value)
    with pytest.raises(OptionError, match=r"wanted one of .*executor.*permissions") as caught:
        app.task(rat=5)  # type: ignore[call-overload]
    assert "max_active" not in str(caught.value)


def test_an_app_without_a_store_obeys_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "memory://")
    assert Penstock().url == "memory://"
    assert Penstock("sqlite:///other.db").url == "sqlite:///other.db"
    monkeypatch.delenv("PENSTOCK_URL")
    assert Penstock().url == "sqlite:///penstock.db"


async def test_a_blocking_wait_in_the_loop_of_the_open_app_is_told_to_await(app: Penstock) -> None:
    @app.task
    def send() -> None: ...

    async with app:
        with app.blocking as queue:
            sent = queue.enqueue(send)
            with pytest.raises(ConfigError, match=r"await handle\.result\(\) there, or .*asyncio\.to_thread"):
                queue.result(sent)
            with pytest.raises(ResultTimeoutError):
                await asyncio.to_thread(queue.result, sent, 0.01)


async def test_a_task_of_another_app_is_not_accepted() -> None:
    """Though this app has a queue of that name."""
    app, other = Penstock("memory://"), Penstock("memory://")
    app.queue("default")

    @other.task
    def send() -> None: ...

    told = r"task 'send' is one of another app: .* app\.by_name\('send', queue='default'\)"
    with app.blocking as queue:
        with pytest.raises(ConfigError, match=told):
            queue.enqueue(send)
        with pytest.raises(ConfigError, match=told):
            queue.enqueue_many(send, [()])
    async with app:
        await app.by_name("send").enqueue()


def test_tasks_and_queues_are_registered_from_many_threads(app: Penstock) -> None:
    """Each queue is one, and of two tasks with one name one is refused."""
    ready = threading.Barrier(8)
    queues: list[Any] = []
    refused: list[str] = []

    def declare(number: int) -> None:
        def work() -> None: ...

        ready.wait()
        for each in range(50):
            queue = app.queue(f"q{each}")
            queues.append((each, queue))
            queue.task(name=f"t{each}-{number}")(work)
            try:
                queue.task(name=f"same{each}")(work)
            except ConfigError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=declare, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(queue) for _, queue in queues}) == 50
    assert len(app.registry.names()) == 50 * 8 + 50
    assert len(refused) == 50 * 7
