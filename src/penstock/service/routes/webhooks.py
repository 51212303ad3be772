"""Webhooks: make, change, remove; replace secrets; what was delivered, and once more.

A token manages a webhook when it may manage every queue that the webhook is about.
"""

from typing import Final

from penstock.core.errors import WebhookNotFoundError
from penstock.service.ask import Ask
from penstock.service.paging import after_of, states_of
from penstock.service.principal import Verb
from penstock.service.routing import Routes
from penstock.service.webhooks.deliveries import Delivery
from penstock.service.webhooks.endpoint import Endpoint
from penstock.service.webhooks.messages import QUEUE
from penstock.service.wire.webhooks import (
    DeliveriesQuery,
    DeliveryList,
    DeliveryView,
    NewSecretView,
    NewWebhookWish,
    PauseWebhookWish,
    RotateWish,
    WebhookList,
    WebhookView,
    WebhookWish,
    delivery_list,
    delivery_view,
    new_secret_view,
    webhook_view,
)

routes: Final = Routes()


@routes.get("/v1/webhooks", Verb.MANAGE)
async def list_webhooks(ask: Ask) -> WebhookList:
    """List the webhooks that the token can manage."""
    found = await ask.service.webhooks.book.all(_tenant(ask))
    return WebhookList([webhook_view(each) for each in found if _may(ask, each)])


@routes.post("/v1/webhooks", Verb.MANAGE, status=201)
async def create_webhook(ask: Ask, body: NewWebhookWish) -> NewSecretView:
    """Make a webhook. It gets word of what ends from now on; its secret is shown here only."""
    for pattern in body.queues:
        ask.require(pattern)
    made = await ask.service.webhooks.book.add(
        _tenant(ask), body.url, types=body.types, queues=body.queues, note=body.note, secret=body.secret
    )
    ask.service.webhooks.nudge()
    await ask.note("webhook.add", made.id)
    return new_secret_view(made)


@routes.get("/v1/webhooks/{id}", Verb.MANAGE)
async def show_webhook(ask: Ask, id: str) -> WebhookView:  # noqa: A002 (the word in the path)
    """Show a webhook, without its secret."""
    return webhook_view(await _managed(ask, id))


@routes.put("/v1/webhooks/{id}", Verb.MANAGE)
async def change_webhook(ask: Ask, id: str, body: WebhookWish) -> WebhookView:  # noqa: A002
    """Say where messages go, and about what; id and secret stay."""
    await _managed(ask, id)
    for pattern in body.queues:
        ask.require(pattern)
    changed = await ask.service.webhooks.book.change(
        ask.tenant, id, url=body.url, types=body.types, queues=body.queues, note=body.note
    )
    await ask.note("webhook.change", id)
    return webhook_view(changed)


@routes.delete("/v1/webhooks/{id}", Verb.MANAGE, status=204)
async def delete_webhook(ask: Ask, id: str) -> None:  # noqa: A002
    """Remove a webhook; messages that still wait for it are cancelled."""
    await _managed(ask, id)
    await ask.service.webhooks.book.remove(ask.tenant, id)
    await ask.note("webhook.remove", id)


@routes.post("/v1/webhooks/{id}/rotate", Verb.MANAGE)
async def rotate_webhook(ask: Ask, id: str, body: RotateWish) -> NewSecretView:  # noqa: A002
    """Replace the secret. For a while messages are signed with both, so that no receiver misses one."""
    await _managed(ask, id)
    book = ask.service.webhooks.book
    rotated = await book.rotate(ask.tenant, id, overlap=body.overlap, secret=body.secret)
    await ask.note("webhook.rotate", id)
    return new_secret_view(rotated)


@routes.post("/v1/webhooks/{id}/pause", Verb.MANAGE)
async def pause_webhook(ask: Ask, id: str, body: PauseWebhookWish) -> WebhookView:  # noqa: A002
    """Let messages wait until the webhook is resumed; none is lost."""
    await _managed(ask, id)
    paused = await ask.service.webhooks.book.change(ask.tenant, id, paused=body.reason)
    await ask.note("webhook.pause", id, body.reason)
    return webhook_view(paused)


@routes.post("/v1/webhooks/{id}/resume", Verb.MANAGE)
async def resume_webhook(ask: Ask, id: str) -> WebhookView:  # noqa: A002
    """Send what waits, within a minute."""
    await _managed(ask, id)
    resumed = await ask.service.webhooks.book.change(ask.tenant, id, paused=None)
    await ask.note("webhook.resume", id)
    return webhook_view(resumed)


@routes.post("/v1/webhooks/{id}/ping", Verb.MANAGE, status=202)
async def ping_webhook(ask: Ask, id: str) -> DeliveryView:  # noqa: A002
    """Send a message about nothing, to try the way."""
    await _managed(ask, id)
    return delivery_view(await ask.service.webhooks.log.ping(ask.tenant, id))


@routes.get("/v1/webhooks/{id}/deliveries", Verb.MANAGE)
async def list_deliveries(ask: Ask, id: str, query: DeliveriesQuery) -> DeliveryList:  # noqa: A002
    """List what was sent to a webhook or waits to be, the newest first."""
    await _managed(ask, id)
    page = await ask.service.webhooks.log.listed(
        ask.tenant, id, states=states_of(query.state), after=after_of(query.after), limit=query.limit
    )
    return delivery_list(page)


@routes.get("/v1/webhooks/{id}/deliveries/{delivery}", Verb.MANAGE)
async def show_delivery(ask: Ask, id: str, delivery: str) -> DeliveryView:  # noqa: A002
    """Show a delivery with its message and every attempt."""
    return delivery_view(await _delivery(ask, id, delivery), whole=True)


@routes.post("/v1/webhooks/{id}/deliveries/{delivery}/redeliver", Verb.MANAGE, status=202)
async def redeliver(ask: Ask, id: str, delivery: str) -> DeliveryView:  # noqa: A002
    """Send a message again under its own `webhook-id`; 409 while it is still on its way."""
    await _delivery(ask, id, delivery)
    again = await ask.service.webhooks.log.redeliver(ask.tenant, delivery)
    await ask.note("webhook.redeliver", id, delivery)
    return delivery_view(again)


def _tenant(ask: Ask) -> str:
    """Whose webhooks; refused for an operator that does not say whose."""
    return ask.ref(QUEUE).tenant


def _may(ask: Ask, endpoint: Endpoint) -> bool:
    # A pattern as a plain name matches a token's pattern only where all that it stands for does.
    return all(ask.may(pattern) for pattern in endpoint.queues)


async def _managed(ask: Ask, webhook: str) -> Endpoint:
    """A webhook that the token can manage; one of other queues is not there for it."""
    endpoint = await ask.service.webhooks.book.get(_tenant(ask), webhook)
    if not _may(ask, endpoint):
        raise WebhookNotFoundError(f"no webhook {webhook!r}")
    return endpoint


async def _delivery(ask: Ask, webhook: str, delivery: str) -> Delivery:
    await _managed(ask, webhook)
    found = await ask.service.webhooks.log.get(ask.tenant, delivery)
    if found.webhook != webhook:
        raise WebhookNotFoundError(f"no delivery {delivery!r}")
    return found
