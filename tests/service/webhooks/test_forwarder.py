"""Every ending becomes a delivery for each webhook that wants it, and only once, whatever crashes."""

import asyncio
import json
from typing import Any

import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Bury, Complete, Fault
from penstock.core.states import State
from penstock.service.egress.egress import Egress
from penstock.service.webhooks import forwarder
from penstock.service.webhooks.forwarder import READER, WebhookForwarder
from penstock.service.webhooks.messages import BACKOFF, QUEUE, TASK
from penstock.service.webhooks.repository import WebhookRepository
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.tasks.batch import send_batch
from penstock.tasks.call import Call
from penstock.tasks.options import JobOptions
from tests.kit.intercepted import InterceptedStore
from tests.service.webhooks.kit import URL, client, deliveries, end

ENDINGS = [State.COMPLETED, State.FAILED, State.DEAD, State.CANCELLED]


def relay_of(store: Store) -> tuple[WebhookRepository, WebhookForwarder]:
    repository = WebhookRepository(store, Egress())
    return repository, WebhookForwarder(store, repository)


def message(job: Job) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.loads(job.payload)["message"]["body"])
    return body


async def test_every_ending_is_told(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    hook = await repository.add(queue.tenant, URL)
    for state in ENDINGS:
        await end(store, queue, f"job-{state}", state)

    await relay.tick()

    told = await deliveries(store, queue.tenant)
    assert {message(each)["type"] for each in told} == {f"job.{state}" for state in ENDINGS}
    assert all((each.key, each.task, each.options.backoff) == (hook.id, TASK, BACKOFF) for each in told)
    dead = next(message(each) for each in told if message(each)["type"] == "job.dead")
    assert (
        dead["data"].items()
        >= {
            "tenant": queue.tenant,
            "queue": "q",
            "job": "job-dead",
            "task": "send",
            "state": "dead",
            "reason": "ERROR",
            "error": "ValueError: no such letter",
        }.items()
    )
    assert dead["timestamp"] == dead["data"]["ended_at"]


async def test_a_webhook_is_served_though_the_relay_looks_while_it_is_added(
    store: Store, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, relay = relay_of(store)
    keep = store.key_value.put_entry

    async def keep_and_look(*arguments: Any, **more: Any) -> Any:
        kept = await keep(*arguments, **more)
        await relay.tick()
        return kept

    with monkeypatch.context() as patched:
        patched.setattr(store.key_value, "put_entry", keep_and_look)
        await repository.add(queue.tenant, URL)
    await end(store, queue, "a")
    await relay.tick()

    assert len(await deliveries(store, queue.tenant)) == 1


async def test_an_ending_is_told_once_however_often_it_is_read(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    await repository.add(queue.tenant, URL)
    await end(store, queue, "a")
    await relay.tick()
    await relay.tick()

    # As after a crash before the reader's place was kept.
    await store.readers.register_reader(queue, READER, 0)
    await relay.tick()

    assert len(await deliveries(store, queue.tenant)) == 1


async def test_relays_side_by_side_double_nothing(store: Store, queue: QueueRef) -> None:
    repository, _ = relay_of(store)
    await repository.add(queue.tenant, URL)
    for number in range(5):
        await end(store, queue, f"job-{number}")

    await asyncio.gather(*(relay_of(store)[1].tick() for _ in range(3)))

    assert len(await deliveries(store, queue.tenant)) == 5


async def test_a_job_that_ends_again_is_told_again(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    await repository.add(queue.tenant, URL)
    await end(store, queue, "a", State.CANCELLED)
    await store.moves.redrive(queue, ["a"])
    await store.moves.cancel(queue, ["a"])

    await relay.tick()

    assert [message(each)["data"]["drive"] for each in await deliveries(store, queue.tenant)] == [1, 2]


async def test_what_ended_before_the_webhook_was_there_is_not_told(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    await end(store, queue, "before")
    await store.clock.advance_clock(1_000)
    await repository.add(queue.tenant, URL)
    await end(store, queue, "after")

    await relay.tick()

    assert [message(each)["data"]["job"] for each in await deliveries(store, queue.tenant)] == ["after"]


async def test_a_second_webhook_does_not_get_what_was_before_it(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    first = await repository.add(queue.tenant, URL)
    await end(store, queue, "a")
    await store.clock.advance_clock(1_000)
    second = await repository.add(queue.tenant, URL)
    await end(store, queue, "b")

    await relay.tick()

    told = sorted(
        (message(each)["data"]["job"], str(each.key)) for each in await deliveries(store, queue.tenant)
    )
    assert told == sorted([("a", first.id), ("b", first.id), ("b", second.id)])


async def test_a_webhook_gets_its_types_and_queues_only(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    other = QueueRef(queue.tenant, "other")
    await repository.add(queue.tenant, URL, types=["job.failed"], queues=["o*"])
    for each in (queue, other):
        await end(store, each, "fine")
        await end(store, each, "bad", State.FAILED)

    await relay.tick()

    (told,) = await deliveries(store, queue.tenant)
    assert (message(told)["data"]["queue"], message(told)["data"]["job"]) == ("other", "bad")


async def test_a_batch_is_told_with_its_numbers(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    await repository.add(queue.tenant, URL, types=["batch.completed"])
    sender = client(store, queue.tenant)
    call: Call[Any] = Call(
        task="send", queue="q", payload=b"{}", options=JobOptions(), decode=lambda _: None, sender=sender
    )
    batch = await send_batch(sender, [call, call, call], None, "all")
    await _work(store, queue, [State.COMPLETED, State.DEAD, State.COMPLETED, State.COMPLETED], sender)

    await relay.tick()

    (told,) = await deliveries(store, queue.tenant)
    said = message(told)
    assert said["type"] == "batch.completed"
    assert said["data"]["batch"] == batch.id == "q/all"
    assert (said["data"]["jobs"], said["data"]["counts"]) == (3, {"completed": 2, "dead": 1})


async def test_deliveries_are_told_to_nobody(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    await repository.add(queue.tenant, URL)
    await end(store, queue, "a")
    await relay.tick()
    (told,) = await deliveries(store, queue.tenant)
    await store.moves.cancel(QueueRef(queue.tenant, QUEUE), [told.id])

    await relay.tick()

    assert len(await deliveries(store, queue.tenant)) == 1


async def test_tenants_get_word_of_their_own_only(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    other = QueueRef(f"{queue.tenant}-other", "q")
    mine = await repository.add(queue.tenant, URL)
    theirs = await repository.add(other.tenant, URL)
    await end(store, queue, "mine")
    await end(store, other, "theirs")

    await relay.tick()

    for tenant, hook, job in ((queue.tenant, mine, "mine"), (other.tenant, theirs, "theirs")):
        (told,) = await deliveries(store, tenant)
        assert (told.key, message(told)["data"]["job"]) == (hook.id, job)


async def test_a_reader_is_kept_while_there_are_webhooks(store: Store, queue: QueueRef) -> None:
    repository, relay = relay_of(store)
    hook = await repository.add(queue.tenant, URL)
    await end(store, queue, "a")
    await relay.tick()
    (reader,) = await store.readers.list_readers(queue)

    assert reader.name == READER
    await store.clock.advance_clock(5 * 24 * 3_600_000)
    await relay.tick()
    (renewed,) = await store.readers.list_readers(queue)
    assert renewed.kept_until > reader.kept_until
    await repository.remove(queue.tenant, hook.id)
    await relay.tick()
    assert await store.readers.list_readers(queue) == []
    assert queue.tenant not in await repository.tenants()


async def test_many_endings_are_followed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "PAGE", 4)
    store, queue = MemoryStore(), QueueRef("t", "q")
    repository, relay = relay_of(store)
    await repository.add("t", URL)
    for number in range(10):
        await end(store, queue, f"job-{number}")

    await relay.tick()

    assert len(await deliveries(store, "t")) == 10


async def test_what_was_trimmed_is_said_and_the_rest_told(caplog: pytest.LogCaptureFixture) -> None:
    store, queue = MemoryStore(), QueueRef("t", "q")
    repository, relay = relay_of(store)
    await repository.add("t", URL)
    await end(store, queue, "a")
    await relay.tick()
    for job in ("b", "c"):
        await end(store, queue, job)
    await store.events.trim(queue, through=6)

    await relay.tick()

    assert "endings may be told to no webhook" in caplog.text
    assert [message(each)["data"]["job"] for each in await deliveries(store, "t")] == ["a", "c"]


class Failing(InterceptedStore):
    """Does not take in deliveries as long as it `fails`."""

    fails = True

    async def enqueue(self, queue: QueueRef, *more: Any, **named: Any) -> Any:
        if queue.name == QUEUE and queue.tenant == "t" and self.fails:
            raise StoreUnavailableError("away")
        return await self.real.moves.enqueue(queue, *more, **named)


async def test_the_reader_waits_for_deliveries_and_no_tenant_for_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarder, "RETRY_SECONDS", 0.0)
    store = Failing()
    repository, relay = relay_of(store)
    for tenant in ("t", "u"):
        await repository.add(tenant, URL)
        await end(store, QueueRef(tenant, "q"), "a")

    await relay.tick()
    assert await store.readers.list_readers(QueueRef("t", "q")) == []
    assert len(await deliveries(store, "u")) == 1
    assert "webhooks wait, will repeat: away" in caplog.text
    store.fails = False
    await relay.tick()
    assert len(await deliveries(store, "t")) == 1


async def _work(store: Store, queue: QueueRef, states: list[State], sender: Any) -> None:
    for state in states:
        (job,) = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=60_000)).jobs
        done = Complete(job.id, job.token, b"1")
        move = done if state is State.COMPLETED else Bury(job.id, job.token, Fault("ERROR"))
        await store.moves.settle(queue, [move])
        await sender.carry(queue.name)


async def test_a_queue_that_is_deleted_and_made_anew_is_followed_from_its_beginning(
    store: Store, queue: QueueRef
) -> None:
    """What the old queue had told is not told again, and nothing of the new one is missed."""
    repository, relay = relay_of(store)
    await repository.add(queue.tenant, URL)
    for name in ("first", "second", "third"):
        await end(store, queue, f"{name}-old")
    await relay.tick()
    for number, name in enumerate(("first", "second", "third"), start=1):
        await store.moves.delete(queue, [f"{name}-old"])
        if number < 3:
            await relay.tick()
    assert (await store.queues.delete_queue(queue)) is not None
    await relay.tick()
    gone = await store.queues.find_queue(queue)
    await end(store, queue, "new")

    await relay.tick()

    told = [message(each)["data"]["job"] for each in await deliveries(store, queue.tenant)]
    assert gone is None
    assert sorted(told) == ["first-old", "new", "second-old", "third-old"]
    assert [each.name for each in await store.readers.list_readers(queue)] == [READER]


async def test_a_queue_that_is_deleted_while_it_is_followed_keeps_no_other_back(
    store: Store, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and is gone when its events are read."""
    repository, relay = relay_of(store)
    await repository.add(queue.tenant, URL)
    other = QueueRef(queue.tenant, "z-other")
    await end(store, queue, "old")
    await relay.tick()
    await store.moves.delete(queue, ["old"])
    await end(store, other, "job")
    listing = store.queues.list_queues

    async def listed(tenant: str) -> Any:
        found = await listing(tenant)
        await store.queues.delete_queue(queue)
        return found

    monkeypatch.setattr(store.queues, "list_queues", listed)

    await relay.tick()

    told = [message(each)["data"]["job"] for each in await deliveries(store, queue.tenant)]
    assert sorted(told) == ["job", "old"]
