"""Secrets of webhooks are sealed with a key of the settings, and those in clear are still read."""

import base64
import logging

import pytest

from penstock.core.errors import ConfigError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.service.egress.egress import Egress
from penstock.service.sealing import SecretSealer, is_sealed
from penstock.service.webhooks.errors import SealedSecretError
from penstock.service.webhooks.messages import QUEUE
from penstock.service.webhooks.repository import NAMESPACE, WebhookRepository
from penstock.service.webhooks.signing import verify
from penstock.service.webhooks.webhook_service import WebhookService
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.worker.worker import Worker
from tests.service.webhooks.kit import URL, deliveries, end, hooked

IN_CLEAR = (
    b'{"id":"wh_00c0ffee00c0ffee","url":"https://hooks.example/in","made_at":1750000000000,"secrets":'
    b'[{"text":"whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmU="},'
    b'{"text":"whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2w=","until":9000000000000}]}'
)
"""An entry as it was written before secrets were sealed."""
OLD, NEW = (
    "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2w=",
    "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmU=",
)
WEBHOOK = "wh_00c0ffee00c0ffee"


FIRST = base64.b64encode(bytes(range(32))).decode()
SECOND = base64.b64encode(bytes(range(32, 64))).decode()


def book_of(store: Store, keys: str | None = FIRST) -> WebhookRepository:
    return WebhookRepository(store, Egress(), SecretSealer.of(keys))


async def body_of(store: Store, tenant: str, webhook: str) -> str:
    kept = await store.key_value.get_entry(tenant, NAMESPACE, webhook)
    assert kept is not None
    return kept.body.decode()


async def test_a_secret_is_sealed_in_the_store(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store), queue.tenant
    made = await repository.add(tenant, URL)
    first = made.secrets[0].text
    body = await body_of(store, tenant, made.id)

    assert first.startswith("whsec_")
    assert first not in body
    assert first.removeprefix("whsec_") not in body
    found = await repository.get(tenant, made.id)
    assert await repository.signing_keys(tenant, found) == [first]
    rotated = await repository.rotate(tenant, made.id)
    second = rotated.secrets[0].text
    assert second.startswith("whsec_")
    body = await body_of(store, tenant, made.id)
    assert first not in body
    assert second not in body
    assert await repository.signing_keys(tenant, await repository.get(tenant, made.id)) == [second, first]
    assert first not in repr(made)


async def test_an_entry_in_clear_is_read_and_sealed_when_it_is_written(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store), queue.tenant
    await store.key_value.put_entry(tenant, NAMESPACE, WEBHOOK, IN_CLEAR, expected=0)

    assert await repository.signing_keys(tenant, await repository.get(tenant, WEBHOOK)) == [NEW, OLD]
    assert OLD in await body_of(store, tenant, WEBHOOK)
    await repository.change(tenant, WEBHOOK, note="n")
    body = await body_of(store, tenant, WEBHOOK)
    assert "whsec_" not in body
    assert OLD[6:] not in body
    assert await repository.signing_keys(tenant, await repository.get(tenant, WEBHOOK)) == [NEW, OLD]


async def test_without_a_key_all_is_as_it_was(store: Store, queue: QueueRef) -> None:
    repository, tenant = book_of(store, None), queue.tenant
    await store.key_value.put_entry(tenant, NAMESPACE, WEBHOOK, IN_CLEAR, expected=0)

    changed = await repository.change(tenant, WEBHOOK, note="n")

    assert changed.secrets[0].text == NEW
    assert NEW in await body_of(store, tenant, WEBHOOK)


async def test_resealing_brings_all_to_the_first_key(store: Store, queue: QueueRef) -> None:
    tenant = queue.tenant
    clear = await book_of(store, None).add(tenant, URL)
    sealed = await book_of(store, FIRST).add(tenant, URL)
    both = book_of(store, f"{SECOND},{FIRST}")

    assert await both.reseal(tenant) == 2
    assert await both.reseal(tenant) == 0
    only = book_of(store, SECOND)
    for made in (clear, sealed):
        found = await only.get(tenant, made.id)
        assert await only.signing_keys(tenant, found) == [made.secrets[0].text]
    state = await only.sealed_state(tenant)
    assert (state.in_clear, state.sealed, state.unreadable) == (0, 2, [])


async def test_with_another_key_a_webhook_can_be_listed_changed_and_removed_but_not_used(
    store: Store, queue: QueueRef
) -> None:
    tenant = queue.tenant
    made = await book_of(store, FIRST).add(tenant, URL)
    other = book_of(store, SECOND)

    found = await other.get(tenant, made.id)
    with pytest.raises(SealedSecretError, match=f"{tenant}/{made.id} is sealed with the key"):
        await other.signing_keys(tenant, found)
    await other.change(tenant, made.id, paused="by hand")
    assert (await other.sealed_state(tenant)).unreadable == [made.id]
    with pytest.raises(SealedSecretError):
        await other.reseal(tenant)
    back = book_of(store, FIRST)
    assert await back.signing_keys(tenant, await back.get(tenant, made.id)) == [made.secrets[0].text]
    rotated = await other.rotate(tenant, made.id, overlap=0)
    assert await other.signing_keys(tenant, await other.get(tenant, made.id)) == [rotated.secrets[0].text]
    await other.remove(tenant, made.id)


async def test_a_sealed_secret_does_not_open_in_another_entry() -> None:
    store = MemoryStore()
    repository = book_of(store)
    made = await repository.add("one", URL)
    body = await body_of(store, "one", made.id)
    await store.key_value.put_entry("two", NAMESPACE, made.id, body.encode())

    with pytest.raises(SealedSecretError, match="changed in the store, or belongs to another entry"):
        await repository.signing_keys("two", await repository.get("two", made.id))


def test_a_sealed_text_that_was_changed_does_not_open() -> None:
    sealer = SecretSealer.of(FIRST)
    sealed = sealer.seal("whsec_abc", "t", "w")

    assert is_sealed(sealed)
    assert sealer.open(sealed, "t", "w") == "whsec_abc"
    assert sealer.seal("whsec_abc", "t", "w") != sealed
    turned = "A" if sealed[40] != "A" else "B"
    for wrong in (sealed[:40] + turned + sealed[41:], sealed[:40], f"{sealed}!"):
        with pytest.raises(SealedSecretError):
            sealer.open(wrong, "t", "w")


@pytest.mark.parametrize("keys", ["Zq7wKj9vZq7wKj9v", f"{FIRST},short", "=", "ü" * 44, FIRST[:-5]])
def test_a_key_that_is_none_is_refused_and_not_repeated(keys: str) -> None:
    with pytest.raises(ConfigError, match="secret_key") as refused:
        SecretSealer.of(keys)

    assert keys[:6] not in str(refused.value)
    assert FIRST[:6] not in str(refused.value)


async def deliver(office: WebhookService, store: Store, tenant: str) -> None:
    """One burst of a worker: all that is due."""
    queue = QueueRef(tenant, QUEUE)
    await Worker(store, queue, office.sender.registry(), burst=True, poll=0.01).run()


async def test_a_delivery_waits_for_the_key_and_is_not_lost(
    store: Store, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    async with hooked() as (egress, receiver, url):
        tenant = queue.tenant
        office = WebhookService(store, egress, sealer=SecretSealer.of(FIRST))
        made = await office.repository.add(tenant, url)
        wrong = WebhookService(store, egress, sealer=SecretSealer.of(SECOND))
        await end(store, queue, "a")
        await wrong._relay.tick()
        (delivery,) = await deliveries(store, tenant)
        await deliver(wrong, store, tenant)

        (waiting,) = await deliveries(store, tenant)
        assert (waiting.id, waiting.state, waiting.attempts) == (delivery.id, State.DELAYED, 0)
        assert "is sealed with the key" in caplog.text
        assert receiver.requests == []
        await store.clock.advance_clock(61_000)
        await deliver(office, store, tenant)
        [request] = receiver.requests
        secret, now = made.secrets[0].text, float(request.headers["webhook-timestamp"])
        assert verify(secret, request.headers, request.body, now=now)


async def test_secrets_in_clear_are_told_once(
    store: Store, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    office = WebhookService(store, Egress(), sealer=SecretSealer())
    await office._round()
    assert "in clear" not in caplog.text
    await office.repository.add(queue.tenant, URL)

    await office._round()
    await office._round()

    assert caplog.text.count("PENSTOCK_SECRET_KEY") == 1
