"""Webhooks are kept on every store, tenant by tenant, and changed one at a time."""

import asyncio

import pytest

from penstock.core.errors import InvalidNameError, OptionError
from penstock.core.job import QueueRef
from penstock.service.egress.egress import Egress
from penstock.service.webhooks import repository as books
from penstock.service.webhooks.endpoint import TYPES, Endpoint
from penstock.service.webhooks.errors import WebhookNotFoundError
from penstock.service.webhooks.repository import WebhookRepository
from penstock.service.webhooks.signing import new_secret
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from tests.kit.intercepted import InterceptedStore
from tests.service.webhooks.kit import URL


def book_of(store: Store) -> WebhookRepository:
    return WebhookRepository(store, Egress())


async def test_a_webhook_is_kept_changed_and_removed(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store), queue.tenant
    made = await repository.add(
        tenant, URL, types=["job.dead", "batch.completed"], queues=["mail-*"], note="n"
    )

    assert made == await repository.get(tenant, made.id) == (await repository.all(tenant))[0]
    assert (made.types, made.queues, made.note) == (("job.dead", "batch.completed"), ("mail-*",), "n")
    changed = await repository.change(tenant, made.id, url=f"{URL}2", types=["job.failed"], note=None)
    assert (changed.url, changed.types, changed.queues) == (f"{URL}2", ("job.failed",), ("mail-*",))
    await repository.remove(tenant, made.id)
    assert await repository.all(tenant) == []
    with pytest.raises(WebhookNotFoundError):
        await repository.get(tenant, made.id)
    with pytest.raises(WebhookNotFoundError):
        await repository.remove(tenant, made.id)


async def test_a_tenant_sees_none_of_another(store: Store, queue: QueueRef) -> None:
    repository, other = book_of(store), f"{queue.tenant}-other"
    made = await repository.add(queue.tenant, URL)

    assert await repository.all(other) == []
    for act in (repository.get, repository.remove, repository.rotate, repository.change):
        with pytest.raises(WebhookNotFoundError):
            await act(other, made.id)
    assert await repository.get(queue.tenant, made.id) == made


async def test_tenants_are_listed_until_they_are_forgotten(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store), queue.tenant
    made = await repository.add(tenant, URL)
    version = (await repository.tenants())[tenant]

    await repository.remove(tenant, made.id)
    await repository.add(tenant, URL)
    assert not await repository.forget(tenant, version)
    assert tenant in await repository.tenants()
    assert await repository.forget(tenant, (await repository.tenants())[tenant])
    assert tenant not in await repository.tenants()


async def test_for_a_time_two_secrets_hold(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store), queue.tenant
    made = await repository.add(tenant, URL)
    (old,) = made.keys(await store.clock.now())

    rotated = await repository.rotate(tenant, made.id, overlap=60)
    new = rotated.secrets[0].text
    assert rotated.keys(await store.clock.now()) == [new, old]
    await store.clock.advance_clock(60_000)
    assert (await repository.get(tenant, made.id)).keys(await store.clock.now()) == [new]


async def test_the_oldest_of_three_secrets_is_dropped() -> None:
    store = MemoryStore()
    repository = book_of(store)
    made = await repository.add("t", URL)
    first = await repository.rotate("t", made.id)

    second = await repository.rotate("t", made.id)

    assert len(second.secrets) == 2
    assert second.keys(0)[1] == first.keys(0)[0]


async def test_the_same_secret_again_changes_nothing() -> None:
    repository, secret = book_of(MemoryStore()), new_secret()
    made = await repository.add("t", URL, secret=secret)

    assert await repository.rotate("t", made.id, secret=secret) == made


async def test_changes_at_the_same_time_are_all_made(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store), queue.tenant
    made = await repository.add(tenant, URL)

    await asyncio.gather(
        repository.change(tenant, made.id, note="n"),
        repository.change(tenant, made.id, queues=["a"]),
        repository.change(tenant, made.id, types=["job.dead"]),
        repository.rotate(tenant, made.id),
    )

    now = await repository.get(tenant, made.id)
    assert (now.note, now.queues, now.types, len(now.secrets)) == ("n", ("a",), ("job.dead",), 2)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"url": "http://hooks.example/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": None}, "url"),
        ({"types": []}, "types"),
        ({"types": ["job.started"]}, "types"),
        ({"queues": []}, "queues"),
        ({"queues": ["a/b"]}, "queues"),
        ({"queues": [7]}, "queues"),
        ({"queues": [f"q{number}" for number in range(51)]}, "queues"),
        ({"note": "n" * 501}, "note"),
        ({"secret": "whsec_short"}, "secret"),
    ],
)
async def test_what_cannot_be_a_webhook_names_its_field(said: dict[str, object], field: str) -> None:
    with pytest.raises(OptionError) as refused:
        await book_of(MemoryStore()).add("t", **{"url": URL, **said})  # type: ignore[arg-type]

    assert refused.value.field == field


async def test_a_tenant_has_a_bounded_number_of_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MOST", 2)
    repository = book_of(MemoryStore())
    for _ in range(2):
        await repository.add("t", URL)

    with pytest.raises(OptionError, match="at most 2"):
        await repository.add("t", URL)


async def test_an_id_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        await book_of(MemoryStore()).get("t", "../x")


def test_a_webhook_wants_its_types_of_its_queues() -> None:
    hook = Endpoint(id="h", url=URL, made_at=0, secrets=(), types=("job.dead",), queues=("mail", "sync-*"))

    assert [
        name for name in ("mail", "mails", "sync-", "sync-1", "resync-1") if hook.wants("job.dead", name)
    ] == [
        "mail",
        "sync-",
        "sync-1",
    ]
    assert not hook.wants("job.failed", "mail")
    assert all(Endpoint(id="h", url=URL, made_at=0, secrets=()).wants(each, "any") for each in TYPES)


async def test_many_at_once_do_not_become_more_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MOST", 2)

    class Slow(InterceptedStore):
        async def now(self) -> int:
            await asyncio.sleep(0)
            return await self.real.clock.now()

    repository = book_of(Slow())
    await asyncio.gather(*(repository.add("t", URL) for _ in range(4)), return_exceptions=True)

    assert len(await repository.all("t")) <= 2
