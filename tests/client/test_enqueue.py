"""Enqueue: what comes into the store, what is refused, and what happens when answers are lost."""

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import (
    BatchRefusedError,
    Call,
    ConfigError,
    DuplicateJobError,
    Enqueued,
    IdempotencyConflictError,
    InvalidNameError,
    Job,
    JobHandle,
    NewJob,
    OptionError,
    PayloadError,
    Penstock,
    PenstockError,
    QueueFullError,
    QueueRef,
    Refused,
    SendNext,
    State,
    Store,
    StoreUnavailableError,
    Task,
    UnknownQueueError,
    UnknownTaskError,
)
from penstock.core.ids import queue_number
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Query
from tests.client.stores import Full, LostReplies, Recording, Unreachable

MAIL = QueueRef("default", "mail")


def make(store: Store, tries: int | None = None) -> tuple[Penstock, Task[..., [str, Any], str]]:
    app = Penstock(store=store, tries=tries)
    mail = app.queue("mail", priority="high", max_attempts=5)

    @mail.task(timeout=30)
    async def send(to: str, body: Any = None) -> str:
        return to

    return app, send


async def stored(store: Store) -> list[Job]:
    return [
        job
        for info in await store.queues.list_queues("default")
        for job in (await store.reads.find(info.queue, Query())).jobs
    ]


async def test_a_job_carries_the_call_and_the_options_of_every_layer() -> None:
    store = MemoryStore()
    app, send = make(store)
    async with app:
        handle = await send.options(delay=60, key="ada", idempotency_key="order-7").enqueue("ada", [1])

    (job,) = await stored(store)
    assert (job.id, job.task, job.payload) == (handle.id, "send", b'{"to":"ada","body":[1]}')
    assert (job.priority, job.options.max_attempts, job.options.timeout_ms) == (7, 5, 30_000)
    assert (job.state, job.key, job.idempotency_key) == (State.DELAYED, "ada", "order-7")
    assert (handle.queue, handle.created, handle.same_payload) == ("mail", True, True)


async def test_a_generated_id_carries_the_queues_number() -> None:
    store = MemoryStore()
    app, send = make(store)
    async with app:
        handle = await send.enqueue("ada", None)

    info = await store.queues.find_queue(MAIL)
    assert info is not None
    assert queue_number(handle.id) == info.number


async def test_a_job_can_wait_for_an_instant() -> None:
    store = MemoryStore()
    app, send = make(store)
    async with app:
        await send.options(run_at=datetime(2199, 1, 1, tzinfo=UTC)).enqueue("ada", None)

    (job,) = await stored(store)
    assert (job.state, job.visible_at) == (State.DELAYED, 7_226_582_400_000)


BAD: list[tuple[type[PenstockError], str, Callable[[Penstock, Any], Any]]] = [
    (PayloadError, "to: found 3, wanted str", lambda app, send: send.enqueue(3)),
    (PayloadError, "body: found nan", lambda app, send: send.enqueue("a", math.nan)),
    (PayloadError, r"body\[0\]: found b'x'", lambda app, send: send.enqueue("a", [b"x"])),
    (PayloadError, "payload: found .* at most", lambda app, send: send.enqueue("a", "x" * (1 << 20))),
    (PayloadError, "64 levels", lambda app, send: send.enqueue("a", nested(65))),
    (PayloadError, "to: found nothing, wanted a value", lambda app, send: send.enqueue()),
    (PayloadError, r"calls\[1\]\.to: found 3", lambda app, send: send.enqueue_many([("a",), (3,)])),
    (PayloadError, r"calls\[0\]: found 'a'", lambda app, send: send.enqueue_many("a")),
    (OptionError, "priority: found 10", lambda app, send: send.options(priority=10)),
    (
        OptionError,
        "either delay or run_at",
        lambda app, send: send.options(delay=1, run_at=datetime.now(UTC)),
    ),
    (InvalidNameError, "id: found", lambda app, send: send.options(id="a}b")),
    (InvalidNameError, "queue: found 'a}b'", lambda app, send: app.queue("a}b")),
    (InvalidNameError, "queue: found", lambda app, send: app.by_name("send", queue="a\0b")),
    (InvalidNameError, "task: found", lambda app, send: app.by_name("a\0b")),
    (UnknownTaskError, "'sned': did you mean 'send'", lambda app, send: app.task_named("sned")),
    (UnknownTaskError, "did you mean 'send'", lambda app, send: app.queue("mail").enqueue("sned")),
    (UnknownQueueError, "did you mean 'mail'", lambda app, send: app.by_name("x", queue="mial").enqueue(a=1)),
    (PayloadError, "a: found", lambda app, send: app.by_name("x", queue="mail").enqueue(a={1})),
    (PayloadError, "arguments: found", lambda app, send: app.by_name("x", queue="mail").enqueue(1)),
]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("kind", "said", "attempt"), BAD)
async def test_bad_input_is_a_clear_error_and_leaves_nothing_behind(
    kind: type[PenstockError], said: str, attempt: Callable[[Penstock, Any], Any]
) -> None:
    store = MemoryStore()
    app, send = make(store)
    async with app:
        with pytest.raises(kind, match=said):
            await attempt(app, send)

        assert await stored(store) == []


async def test_a_taken_id_is_refused_and_the_job_that_has_it_stays() -> None:
    store = MemoryStore()
    app, send = make(store)
    async with app:
        await send.options(id="mine").enqueue("ada", None)

        with pytest.raises(DuplicateJobError, match="the id 'mine' is taken in queue 'mail'"):
            await send.options(id="mine").enqueue("eve", None)

    (job,) = await stored(store)
    assert job.payload == b'{"to":"ada","body":null}'


async def test_a_known_key_gives_the_earlier_job_and_says_whether_it_is_the_same_work() -> None:
    app, send = make(MemoryStore())
    async with app:
        once = send.options(idempotency_key="k")
        first = await once.enqueue("ada", None)
        same = await once.enqueue("ada", None)
        other = await once.enqueue("eve", None)

        assert [each.id for each in (same, other)] == [first.id, first.id]
        assert (first.created, same.created, same.same_payload) == (True, False, True)
        assert (other.created, other.same_payload) == (False, False)
        with pytest.raises(IdempotencyConflictError, match="'k'"):
            await once.options(strict=True).enqueue("eve", None)
        assert (await once.options(strict=True).enqueue("ada", None)).id == first.id


async def test_concurrent_calls_travel_together() -> None:
    store = Recording()
    app, send = make(store)
    async with app:
        await send.enqueue("first", None)
        handles = await asyncio.gather(*(send.enqueue(str(number), None) for number in range(50)))

    assert store.calls == [1, 50]
    assert len({handle.id for handle in handles}) == 50


async def test_many_calls_go_in_chunks_and_keep_their_order() -> None:
    store = Recording()
    app, send = make(store)
    async with app:
        handles = await send.enqueue_many((str(number),) for number in range(2_500))
        large = await send.enqueue_many([("x" * 400_000,) for _ in range(5)])

        assert store.calls == [1_000, 1_000, 500, 2, 2, 1]
        assert len(large) == 5
        jobs = await store.reads.get(MAIL, [handle.id for handle in handles])
        assert [job.payload for job in jobs if job] == [b'{"to":"%d"}' % number for number in range(2_500)]


async def test_a_server_gets_chunks_that_grow_where_there_are_several() -> None:
    class Server(Recording):
        is_server = True

    store = Server()
    app, send = make(store)
    async with app:
        await send.enqueue_many((str(number),) for number in range(1_000))
        await send.enqueue_many((str(number),) for number in range(1_500))

    assert store.calls == [1_000, 125, 250, 500, 625]


async def test_many_calls_take_tuples_dicts_and_calls_with_options_of_their_own() -> None:
    store = MemoryStore()
    app, send = make(store)
    async with app:
        calls: list[Any] = [("ada",), {"to": "eve", "body": 1}, send.options(priority=0).call("bob", None)]
        await send.options(priority=1).enqueue_many(calls)

    jobs = sorted(await stored(store), key=lambda job: job.id)
    assert [(job.payload, job.priority) for job in jobs] == [
        (b'{"to":"ada"}', 1),
        (b'{"to":"eve","body":1}', 1),
        (b'{"to":"bob","body":null}', 0),
    ]


async def test_no_calls_are_no_jobs() -> None:
    store = Recording()
    app, send = make(store)
    async with app:
        assert await send.enqueue_many([]) == []

    assert store.calls == []


async def test_refusals_among_many_are_all_told() -> None:
    app, send = make(Full())
    async with app:
        outcomes = await send.enqueue_many([("a",), ("b",), ("c",)], on_error="return")

        assert [type(each) for each in outcomes] == [JobHandle, QueueFullError, QueueFullError]
        with pytest.raises(
            BatchRefusedError, match="2 of 3 jobs were not enqueued, the first: queue"
        ) as caught:
            await send.enqueue_many([("a",), ("b",), ("c",)])
        assert [type(each) for each in caught.value.outcomes] == [JobHandle, QueueFullError, QueueFullError]


async def test_two_equal_keys_in_one_batch_are_one_job() -> None:
    app, send = make(MemoryStore())
    async with app:
        first, second = await send.options(idempotency_key="k").enqueue_many([("a",), ("a",)])

    assert first.id == second.id
    assert (first.created, second.created) == (True, False)


async def test_a_lost_reply_makes_no_second_job(naps: list[float]) -> None:
    store = LostReplies(lost=1)
    app, send = make(store)
    async with app:
        handle = await send.options(idempotency_key="k").enqueue("ada", None)
        assert [job.id for job in await stored(store)] == [handle.id]
        assert handle.created

    assert store.calls == [1, 1]
    assert naps == [0.2]


async def test_a_lost_reply_for_many_makes_no_second_job_of_any(naps: list[float]) -> None:
    store = LostReplies(lost=2)
    app, send = make(store)
    async with app:
        handles = await send.enqueue_many([(str(number),) for number in range(10)])
        assert {job.id for job in await stored(store)} == {handle.id for handle in handles}
        assert all(handle.created for handle in handles)

    assert store.calls == [10, 10, 10]


async def test_a_store_is_tried_again_until_patience_is_over(naps: list[float]) -> None:
    store = Unreachable()
    app, send = make(store)
    async with app:
        with pytest.raises(StoreUnavailableError, match="nobody there"):
            await send.enqueue("ada", None)

    assert sum(naps) == 30
    assert naps[:5] == [0.2, 0.4, 0.8, 1.6, 3.0]
    assert max(naps) == 3
    assert store.calls == [1] * (len(naps) + 1)


async def test_a_store_that_stays_away_is_an_error_after_so_many_tries(naps: list[float]) -> None:
    store = Unreachable()
    app, send = make(store, tries=5)
    async with app:
        with pytest.raises(StoreUnavailableError, match="nobody there"):
            await send.enqueue("ada", None)
        with pytest.raises(StoreUnavailableError, match="nobody there"):
            await send.enqueue_many([("ada",)])

    assert store.calls == [1] * 10
    assert naps == [0.2, 0.4, 0.8, 1.6] * 2


async def test_a_store_that_goes_away_in_the_middle_leaves_no_doubt_about_any_job(naps: list[float]) -> None:
    app, send = make(Unreachable(answered=1))
    async with app:
        with pytest.raises(BatchRefusedError, match="1500 of 2500 jobs were not enqueued") as caught:
            await send.enqueue_many([("ada",)] * 2_500)

    kinds = [type(each) for each in caught.value.outcomes]
    assert kinds == [JobHandle] * 1_000 + [StoreUnavailableError] * 1_500


async def test_middleware_sees_every_job_on_its_way() -> None:
    store = MemoryStore()
    app, send = make(store)
    seen: list[str] = []

    async def outer(new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        seen.append(f"{queue}/{new.task}")
        return await call_next(new)

    async def inner(new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        if b"eve" in new.payload:
            raise ValueError("not her")
        return await call_next(NewJob(**{**_fields(new), "key": "marked"}))

    app.middleware(enqueue=outer)
    app.middleware(enqueue=inner)
    async with app:
        await send.enqueue("ada", None)
        with pytest.raises(ValueError, match="not her"):
            await send.enqueue("eve", None)
        outcomes = await send.enqueue_many([("ada",), ("eve",)], on_error="return")

    assert seen == ["mail/send"] * 4
    assert [type(each) for each in outcomes] == [JobHandle, PenstockError]
    assert [job.key for job in await stored(store)] == ["marked", "marked"]


def _fields(new: NewJob) -> dict[str, Any]:
    return {name: getattr(new, name) for name in new.__struct_fields__}


async def test_a_task_of_another_program_is_enqueued_by_name_into_a_queue_that_is_there() -> None:
    store = MemoryStore()
    await store.queues.open_queue(QueueRef("default", "theirs"))
    app, _ = make(store)
    async with app:
        await app.by_name("report", queue="theirs").options(priority=1).enqueue(day="monday")

    (job,) = await stored(store)
    assert (job.queue, job.task, job.payload, job.priority) == ("theirs", "report", b'{"day":"monday"}', 1)


async def test_a_call_without_the_key_that_its_queue_needs_keeps_all_others_outside() -> None:
    """Every call is checked before the first is sent, also where they go to several queues."""
    store = MemoryStore()
    app, send = make(store)
    turns = app.queue("turns", mode="keyed")

    @turns.task
    def turn() -> str:
        return ""

    async with app:
        with pytest.raises(OptionError, match="key: found None"):
            await send.enqueue_many([("ada",), turn.call()])

    assert await stored(store) == []


async def test_a_queue_can_take_a_task_that_usually_goes_elsewhere() -> None:
    store = MemoryStore()
    app, _ = make(store)
    slow = app.queue("slow")
    async with app:
        handle = await slow.enqueue("send", "ada")

    (job,) = await stored(store)
    assert (handle.queue, job.queue, job.task) == ("slow", "slow", "send")


async def test_a_tenant_has_queues_of_its_own() -> None:
    store = MemoryStore()
    app = Penstock(store=store, tenant="acme")
    app.queue("mail")
    async with app:
        await app.by_name("send", queue="mail").enqueue(to="ada")

    assert await stored(store) == []
    assert [info.queue.name for info in await store.queues.list_queues("acme")] == ["mail"]


async def test_an_app_that_is_not_open_says_so() -> None:
    _, send = make(MemoryStore())

    with pytest.raises(ConfigError, match="async with app"):
        await send.enqueue("ada", None)


async def test_a_call_knows_what_it_is() -> None:
    _, send = make(MemoryStore())
    call: Call[str] = send.call("ada", None)

    assert repr(call) == "<Call send in mail, 24 bytes>"
