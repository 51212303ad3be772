"""Declared queues: what an app says of a queue holds for all who use it, and is compared each time."""

import asyncio
from typing import Any

import pytest

from penstock import (
    ConfigError,
    DeclarationError,
    Mode,
    OptionError,
    Penstock,
    QueueFullError,
    QueueRef,
    Rate,
    ResultTimeoutError,
    State,
)
from penstock.core.limits import Declaration
from penstock.stores.memory import MemoryStore

MAIL = QueueRef("default", "mail")


def make(store: MemoryStore, **options: Any) -> Penstock:
    app = Penstock(store=store)

    @app.queue("mail", **options).task
    async def send(to: str) -> str:
        return to

    return app


async def test_the_first_use_declares_the_queue_and_the_job_defaults_stay_the_apps() -> None:
    store = MemoryStore()
    rate, key_rate = Rate.per_second(5, burst=10), Rate.per_second(1)
    app = make(
        store, mode="keyed", key_limit=2, max_active=10, rate=rate, key_rate=key_rate, timeout=30, version=2
    )
    async with app:
        assert await store.queues.find_queue(MAIL) is None
        handle = await app.task_named("send").options(key="ada").enqueue("ada")

        info = await store.queues.find_queue(MAIL)
        assert info is not None
        assert info.declaration == Declaration(
            version=2, mode=Mode.KEYED, key_limit=2, max_active=10, rate=rate, key_rate=key_rate
        )
        job = await handle.info()
        assert (job.key, job.options.timeout_ms) == ("ada", 30_000)


async def test_a_queue_without_such_options_declares_nothing_and_takes_the_stored_mode() -> None:
    store = MemoryStore()
    await store.queues.declare(MAIL, Declaration(mode=Mode.KEYED))
    app = make(store, max_attempts=2)
    async with app:
        with pytest.raises(OptionError, match=r"key: found None, wanted a key: queue 'mail' is keyed"):
            await app.task_named("send").enqueue("ada")
        await app.task_named("send").options(key="ada").enqueue("ada")

    info = await store.queues.find_queue(MAIL)
    assert info is not None
    assert info.declaration == Declaration(mode=Mode.KEYED)


async def test_a_worker_starts_whatever_is_declared_of_queues_it_does_not_work_on() -> None:
    store = MemoryStore()
    await store.queues.declare(MAIL, Declaration(mode=Mode.KEYED, key_limit=3))
    app = make(store, mode="keyed", key_limit=2)
    app.queue("news", max_length=9)

    await app.worker(["news"], burst=True).run()

    info = await store.queues.find_queue(QueueRef("default", "news"))
    assert info is not None
    assert info.declaration == Declaration(max_length=9)
    with pytest.raises(DeclarationError, match="queue 'mail'"):
        await app.worker(["news", "mail"], burst=True).run()


async def test_other_limits_without_a_new_version_stop_workers_and_warn_producers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    stored = Declaration(mode=Mode.KEYED, key_limit=3, rate=Rate.per_second(10))
    await store.queues.declare(MAIL, stored)
    app = make(store, mode="keyed", key_limit=2, rate=Rate.per_second(0.1, burst=3))
    async with app:
        for _ in range(2):
            job = await app.task_named("send").options(key="ada").enqueue("ada")
            await job.cancel()
        (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert warning == (
            "queue mail: enqueueing with its stored limits: version 1 of the queue's declaration has other "
            "content: key_limit: stored 3, found 2; rate: stored 10/s, found 6/min, 3 at once. Raise the "
            "version to change it"
        )
        # Also in a process that enqueued before.
        with pytest.raises(DeclarationError, match=r"queue 'mail': .*stored 10/s, found 6/min, 3 at once"):
            await app.worker(burst=True).run()
    info = await store.queues.find_queue(MAIL)
    assert info is not None
    assert info.declaration == stored


async def test_another_mode_is_refused_by_name_for_clients_and_workers() -> None:
    store = MemoryStore()
    await store.queues.declare(MAIL, Declaration(mode=Mode.KEYED, key_limit=3))
    app = make(store, mode="dynamic", key_limit=3)
    async with app:
        for _ in range(2):
            with pytest.raises(DeclarationError, match=r"queue 'mail': version 1 .*stored keyed, found dyn"):
                await app.task_named("send").options(key="ada").enqueue("ada")
    with pytest.raises(DeclarationError, match="queue 'mail'"):
        await app.worker(burst=True).run()

    newer = make(store, mode="keyed", key_limit=2, version=2)
    await newer.worker(burst=True).run()
    info = await store.queues.find_queue(MAIL)
    assert info is not None
    assert info.declaration == Declaration(mode=Mode.KEYED, key_limit=2, version=2)


async def test_keyed_queues_take_no_priorities() -> None:
    app = make(MemoryStore(), mode="keyed")
    with pytest.raises(OptionError, match="priority"):
        app.queue("other", mode="keyed", priority="high")
    async with app:
        with pytest.raises(OptionError, match="priority: found 7, wanted none: in queue 'mail'"):
            await app.task_named("send").options(key="ada", priority="high").enqueue("ada")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"mode": "round"}, "mode"),
        ({"key_limit": 2}, "mode"),
        ({"mode": "keyed", "key_limit": 0}, "key_limit"),
        ({"max_active": 0}, "max_active"),
        ({"max_length": -1}, "max_length"),
        ({"rate": 5}, "rate"),
        ({"mode": "keyed", "key_rate": Rate(0)}, "key_rate.count"),
        ({"version": 0}, "version"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_option_that_cannot_be_is_named_at_once(options: Any, field: str) -> None:
    with pytest.raises(OptionError) as caught:
        Penstock("memory://").queue("mail", **options)

    assert caught.value.field == field


def test_a_queue_is_declared_once_in_an_app() -> None:
    app = Penstock("memory://")
    mail = app.queue("mail", mode="keyed", max_active=3)

    assert app.queue("mail") is mail
    assert app.queue("mail", mode=Mode.KEYED, max_active=3) is mail
    with pytest.raises(ConfigError, match="queue 'mail' is declared already"):
        app.queue("mail", mode="keyed", max_active=4)
    with pytest.raises(ConfigError, match="queue 'mail' is declared already"):
        app.queue("mail", timeout=3)


async def test_a_bounded_queue_refuses_what_finds_no_room() -> None:
    app = make(MemoryStore(), max_length=1)
    async with app:
        await app.task_named("send").enqueue("ada")
        with pytest.raises(QueueFullError, match="queue 'mail' is full"):
            await app.task_named("send").enqueue("bob")


async def test_a_mode_that_changed_behind_a_client_is_noticed() -> None:
    store = MemoryStore()
    app = make(store)
    send = app.task_named("send")
    async with app:
        await (await send.enqueue("ada")).cancel()
        await store.queues.declare(MAIL, Declaration(mode=Mode.KEYED))
        with pytest.raises(OptionError, match="jobs of queue 'mail' need one"):
            await send.enqueue("bob")
        with pytest.raises(OptionError, match="queue 'mail' is keyed"):
            await send.enqueue("bob")
        await store.queues.declare(MAIL, Declaration(version=2))
        await send.enqueue("cy")
        await (await send.options(priority="high").enqueue("dot")).cancel()


async def test_a_priority_is_refused_once_keys_take_turns() -> None:
    store = MemoryStore()
    app = make(store)
    send = app.task_named("send")
    async with app:
        await (await send.enqueue("ada")).cancel()
        await store.queues.declare(MAIL, Declaration(mode=Mode.KEYED))
        with pytest.raises(OptionError, match="priority: found 7, wanted none: in queue 'mail'"):
            await send.options(key="ada", priority="high").enqueue("bob")
        await send.options(key="ada").enqueue("bob")

    assert (await store.reads.counts(MAIL))[State.PENDING] == 1


@pytest.mark.parametrize(("before", "after"), [("global", "keyed"), ("keyed", "global")])
async def test_a_client_that_says_the_mode_enqueues_nothing_once_it_is_another(
    before: str, after: str
) -> None:
    store = MemoryStore()
    app = make(store, mode=before, version=1)
    send = app.task_named("send").options(key="ada")
    async with app:
        await (await send.enqueue("ada")).cancel()
        await store.queues.declare(MAIL, Declaration(mode=Mode(after), version=2))
        for _ in range(2):
            with pytest.raises(DeclarationError, match=f"queue 'mail': .* is {after} by version 2"):
                await send.enqueue("bob")
        (many,) = await send.enqueue_many([("bob",)], on_error="return")
        assert isinstance(many, DeclarationError)

    assert (await store.reads.counts(MAIL))[State.PENDING] == 0


async def test_keys_of_a_dynamic_queue_have_limits_and_weights() -> None:
    store = MemoryStore()
    app = make(store, mode="dynamic", key_limit=5)
    mail = app.queue("mail")
    async with app:
        await mail.set_key("ada", limit=1, weight=3)
        for _ in range(4):
            await app.task_named("send").options(key="ada").enqueue("ada")
        claims = await store.moves.claim(MAIL, worker="w", limit=10, lease_ms=30_000)
        assert len(claims.jobs) == 1
        (key,) = await mail.keys()
        assert (key.key, key.limit, key.weight, key.waiting, key.active) == ("ada", 1, 3, 3, 1)
        await mail.reset_key("ada")
        assert len((await store.moves.claim(MAIL, worker="w", limit=10, lease_ms=30_000)).jobs) == 3
        with pytest.raises(OptionError, match="weight"):
            await mail.set_key("ada", weight=0)


async def test_what_is_not_named_of_a_key_stays() -> None:
    store = MemoryStore()
    app = make(store, mode="dynamic", key_limit=5)
    mail = app.queue("mail")

    async def rule() -> tuple[int, int]:
        (key,) = await mail.keys()
        return key.limit, key.weight

    async with app:
        await mail.set_key("ada", weight=3)
        await store.queues.declare(MAIL, Declaration(version=2, mode=Mode.DYNAMIC, key_limit=4))
        assert await rule() == (4, 3)
        await mail.set_key("ada", limit=6)
        assert await rule() == (6, 3)
        await mail.set_key("ada", weight=2)
        assert await rule() == (6, 2)
        with pytest.raises(OptionError, match="a limit or a weight"):
            await mail.set_key("ada")


async def test_a_queue_is_paused_for_a_while_and_resumed() -> None:
    store = MemoryStore()
    app = make(store)
    mail = app.queue("mail")
    async with app:
        await app.task_named("send").enqueue("ada")
        await mail.pause(reason="provider down", by="ada", for_=60)
        info = await store.queues.find_queue(MAIL)
        assert info is not None
        assert info.pause is not None
        assert (info.pause.reason, info.pause.by, info.pause.until) == (
            "provider down",
            "ada",
            info.pause.at + 60_000,
        )
        await app.worker(burst=True).run()
        assert (await mail.counts())[State.PENDING] == 1
        await mail.resume()
        await app.worker(burst=True).run()
        assert (await mail.counts())[State.COMPLETED] == 1


async def test_purge_deletes_what_waits_or_what_is_named() -> None:
    store = MemoryStore()
    app = make(store)
    mail = app.queue("mail")
    async with app:
        send = app.task_named("send")
        await send.enqueue("done")
        await app.worker(burst=True).run()
        await send.enqueue_many([(f"{number}",) for number in range(1_200)])
        await send.options(delay=60).enqueue("later")

        assert await mail.purge(["delayed"]) == 1
        assert await mail.purge() == 1_200
        assert await mail.purge([State.COMPLETED]) == 1
        assert sum((await mail.counts()).values()) == 0
        for states in (["active"], [], ["gone"]):
            with pytest.raises(OptionError, match="states"):
                await mail.purge(states)


async def test_drain_waits_until_nothing_is_live() -> None:
    app = make(MemoryStore())
    mail = app.queue("mail")
    async with app:
        await mail.drain()
        await app.task_named("send").enqueue("ada")
        with pytest.raises(ResultTimeoutError, match=r"queue 'mail' still has 1 live jobs after 0\.01 s"):
            await mail.drain(timeout=0.01)
        draining = asyncio.create_task(mail.drain(timeout=10))
        await app.worker(burst=True).run()
        await draining
