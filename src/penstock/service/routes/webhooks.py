"""Webhooks: make, change, remove; replace secrets; what was delivered, and once more.

A token manages a webhook when it may manage every queue that the webhook is about.
"""

from typing import Final

from penstock.service.paging import after_of, states_of
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.webhooks.deliveries import Delivery
from penstock.service.webhooks.endpoint import Endpoint
from penstock.service.webhooks.errors import WebhookNotFoundError
from penstock.service.webhooks.messages import QUEUE
from penstock.service.wire.webhooks import (
    DeliveryList,
    DeliveryListQuery,
    DeliveryView,
    WebhookCreate,
    WebhookList,
    WebhookPauseRequest,
    WebhookReplace,
    WebhookRotateRequest,
    WebhookSecretView,
    WebhookView,
    delivery_list,
    delivery_view,
    new_secret_view,
    webhook_view,
)

routes: Final = Routes()


@routes.get("/v1/webhooks", Verb.MANAGE, is_costly=True)
async def list_webhooks(request: Request) -> WebhookList:
    """List the webhooks that the token can manage."""
    found = await request.service.webhooks.repository.all(_tenant(request))
    return WebhookList([webhook_view(each) for each in found if _may(request, each)])


@routes.post("/v1/webhooks", Verb.MANAGE, status=201)
async def create_webhook(request: Request, body: WebhookCreate) -> WebhookSecretView:
    """Create a webhook for jobs that end from now on; its secret is shown in this response only."""
    for pattern in body.queues:
        request.require(pattern)
    made = await request.service.webhooks.repository.add(
        _tenant(request), body.url, types=body.types, queues=body.queues, note=body.note, secret=body.secret
    )
    request.service.webhooks.nudge()
    await request.note("webhook.add", made.id)
    return new_secret_view(made)


@routes.get("/v1/webhooks/{id}", Verb.MANAGE)
async def show_webhook(request: Request, id: str) -> WebhookView:  # noqa: A002 (the word in the path)
    """Show a webhook, without its secret."""
    return webhook_view(await _managed(request, id))


@routes.put("/v1/webhooks/{id}", Verb.MANAGE)
async def change_webhook(request: Request, id: str, body: WebhookReplace) -> WebhookView:  # noqa: A002
    """Replace the settings of a webhook; id and secret stay."""
    await _managed(request, id)
    for pattern in body.queues:
        request.require(pattern)
    changed = await request.service.webhooks.repository.change(
        request.tenant, id, url=body.url, types=body.types, queues=body.queues, note=body.note
    )
    await request.note("webhook.change", id)
    return webhook_view(changed)


@routes.delete("/v1/webhooks/{id}", Verb.MANAGE, status=204)
async def delete_webhook(request: Request, id: str) -> None:  # noqa: A002
    """Delete a webhook; its waiting messages are cancelled."""
    await _managed(request, id)
    await request.service.webhooks.repository.remove(request.tenant, id)
    await request.note("webhook.remove", id)


@routes.post("/v1/webhooks/{id}/rotate", Verb.MANAGE)
async def rotate_webhook(request: Request, id: str, body: WebhookRotateRequest) -> WebhookSecretView:  # noqa: A002
    """Replace the secret.

    During the overlap messages are signed with both secrets, so that no receiver misses one.
    """
    await _managed(request, id)
    repository = request.service.webhooks.repository
    rotated = await repository.rotate(request.tenant, id, overlap=body.overlap, secret=body.secret)
    await request.note("webhook.rotate", id)
    return new_secret_view(rotated)


@routes.post("/v1/webhooks/{id}/pause", Verb.MANAGE)
async def pause_webhook(request: Request, id: str, body: WebhookPauseRequest) -> WebhookView:  # noqa: A002
    """Pause a webhook: its messages wait until it is resumed, and none is lost."""
    await _managed(request, id)
    paused = await request.service.webhooks.repository.change(request.tenant, id, paused=body.reason)
    await request.note("webhook.pause", id, body.reason)
    return webhook_view(paused)


@routes.post("/v1/webhooks/{id}/resume", Verb.MANAGE)
async def resume_webhook(request: Request, id: str) -> WebhookView:  # noqa: A002
    """Resume a webhook: its waiting messages are sent within a minute."""
    await _managed(request, id)
    resumed = await request.service.webhooks.repository.change(request.tenant, id, paused=None)
    await request.note("webhook.resume", id)
    return webhook_view(resumed)


@routes.post("/v1/webhooks/{id}/ping", Verb.MANAGE, status=202)
async def ping_webhook(request: Request, id: str) -> DeliveryView:  # noqa: A002
    """Send a test message to a webhook."""
    await _managed(request, id)
    return delivery_view(await request.service.webhooks.log.ping(request.tenant, id))


@routes.get("/v1/webhooks/{id}/deliveries", Verb.MANAGE)
async def list_deliveries(request: Request, id: str, query: DeliveryListQuery) -> DeliveryList:  # noqa: A002
    """List the sent and waiting messages of a webhook, the newest first."""
    await _managed(request, id)
    page = await request.service.webhooks.log.listed(
        request.tenant, id, states=states_of(query.state), after=after_of(query.after), limit=query.limit
    )
    return delivery_list(page)


@routes.get("/v1/webhooks/{id}/deliveries/{delivery}", Verb.MANAGE)
async def show_delivery(request: Request, id: str, delivery: str) -> DeliveryView:  # noqa: A002
    """Show a delivery with its message and every attempt."""
    return delivery_view(await _delivery(request, id, delivery), whole=True)


@routes.post("/v1/webhooks/{id}/deliveries/{delivery}/redeliver", Verb.MANAGE, status=202)
async def redeliver(request: Request, id: str, delivery: str) -> DeliveryView:  # noqa: A002
    """Send a message again with the same `webhook-id`; 409 while its delivery is in progress."""
    await _delivery(request, id, delivery)
    again = await request.service.webhooks.log.redeliver(request.tenant, delivery)
    await request.note("webhook.redeliver", id, delivery)
    return delivery_view(again)


def _tenant(request: Request) -> str:
    """Whose webhooks; refused for an operator that does not say whose."""
    return request.ref(QUEUE).tenant


def _may(request: Request, endpoint: Endpoint) -> bool:
    # A pattern as a plain name matches a token's pattern only where all that it stands for does.
    return all(request.may(pattern) for pattern in endpoint.queues)


async def _managed(request: Request, webhook: str) -> Endpoint:
    """A webhook that the token can manage; one of other queues is not there for it."""
    endpoint = await request.service.webhooks.repository.get(_tenant(request), webhook)
    if not _may(request, endpoint):
        raise WebhookNotFoundError(f"no webhook {webhook!r}")
    return endpoint


async def _delivery(request: Request, webhook: str, delivery: str) -> Delivery:
    await _managed(request, webhook)
    found = await request.service.webhooks.log.get(request.tenant, delivery)
    if found.webhook != webhook:
        raise WebhookNotFoundError(f"no delivery {delivery!r}")
    return found
