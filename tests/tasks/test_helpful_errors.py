"""Mistakes of people who come from other job queues, and what they are told."""

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import ConfigError, JobContext, OptionError, Penstock, ResultTimeoutError, group


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
    with pytest.raises(OptionError, match=r"interval: found None, wanted a timedelta"):
        app.every()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"minutes": "5"}, "minutes: found '5', wanted a number of minutes"),
        ({"seconds": True}, "seconds: found True, wanted a number of seconds"),
        ({"hours": float("nan")}, "hours: found nan, wanted a number of hours"),
        ({"days": 1}, "days: found 1, wanted one of seconds, minutes, hours, .*name"),
        ({"seconds": 0.1}, "every: found 0.1, wanted seconds from 1 to"),
    ],
)
def test_an_interval_that_cannot_be_names_its_unit(app: Penstock, given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        app.every(**given)


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


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("bind", "ctx: JobContext"),
        ("countdown", "delay="),
        ("time_limit", "timeout="),
        ("rate_limit", r"app\.queue\(…, rate=Rate\.per_second\(5\)\)"),
        ("autoretry_for", "every error is tried again"),
    ],
)
def test_options_of_other_queues_are_told_as_what_they_are_here(
    app: Penstock, option: str, told: str
) -> None:
    with pytest.raises(OptionError, match=f"{option}: found True, wanted .*{told}"):
        app.task(**{option: True})  # type: ignore[call-overload]


@pytest.mark.parametrize("option", ["unique", "sandbox"])
@pytest.mark.parametrize("value", [[], {}, ["live"]])
def test_an_option_that_cannot_be_compared_is_named(app: Penstock, option: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{option}: found "):
        app.task(**{option: value})  # type: ignore[call-overload]


def test_a_limit_per_key_names_the_mode_as_people_write_it(app: Penstock) -> None:
    with pytest.raises(OptionError, match="mode: found 'global', wanted keyed or dynamic"):
        app.queue("mail", key_limit=2)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("payload_limit", value) for value in (None, 0, 1.5, "1MB", True)),
        *(("tries", value) for value in (0, -1, 1.5, "3")),
        *(("retry_timeout", value) for value in (None, -1, "30s", float("nan"))),
    ],
)
def test_an_option_of_an_app_that_cannot_be_is_named(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"{option}: found .*, wanted "):
        Penstock("memory://", **{option: value})


def test_slots_of_a_worker_that_cannot_be_are_named(app: Penstock) -> None:
    app.queue("mail")
    given: list[tuple[str, dict[str, Any]]] = [
        ("concurrency: found 'x'", {"concurrency": "x"}),
        ("concurrency: found -1", {"queues": {"mail": -1}}),
        ("queues: found 5, wanted names of queues", {"queues": 5}),
    ]
    for told, options in given:
        with pytest.raises(OptionError, match=told):
            app.worker(**options)


async def test_a_queue_is_given_the_name_of_a_task_and_told_so(app: Penstock) -> None:
    mail = app.queue("mail")

    @mail.task
    def send() -> None: ...

    async with app:
        with pytest.raises(OptionError, match=r"task: found <Task send in mail>, wanted its name.*enqueue"):
            await mail.enqueue(send)  # type: ignore[arg-type]


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


async def test_a_task_of_another_app_is_accepted_by_no_other_way() -> None:
    """In flows, batches, schedules and outboxes, and by what a running job spawns."""
    app, other = Penstock("memory://"), Penstock("memory://")
    told = r"task 'send' is one of another app"

    @other.task
    def send() -> None: ...

    @app.task
    async def parent(ctx: JobContext) -> None:
        await ctx.spawn(send.call())

    with app.blocking as queue:
        with pytest.raises(ConfigError, match=told):
            queue.enqueue_flow(group([send.call()]))
        with pytest.raises(ConfigError, match=told):
            queue.batch([send.call()])
    with pytest.raises(ConfigError, match=told):
        app.every(seconds=5)(send)
    with pytest.raises(ConfigError, match=told):
        app.cron("@daily")(send.call())
    async with app:
        with pytest.raises(ConfigError, match=told):
            await app.batch([send.call()])
        with pytest.raises(ConfigError, match=told):
            await app.schedules.put("often", timedelta(minutes=5), send.call())
        with pytest.raises(ConfigError, match=told):
            app.outbox().blocking.enqueue_in(sqlite3.connect(":memory:"), send)
        spawning = await parent.options(max_attempts=1).enqueue()
        await app.worker(burst=True).run()
        assert "ConfigError: task 'send' is one of another app" in ((await spawning.info()).error or "")


def test_the_blocking_face_is_asked_about_handles(app: Penstock) -> None:
    with (
        app.blocking as queue,
        pytest.raises(ConfigError, match=r"'x' is no handle .* app\.job\(queue, id\)"),
    ):
        queue.status("x")  # type: ignore[arg-type]


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
