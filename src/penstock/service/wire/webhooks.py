"""Webhooks and their deliveries, as requests create them and responses show them."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.states import State
from penstock.service.webhooks.deliveries import Delivery, DeliveryPage
from penstock.service.webhooks.endpoint import MOST_QUEUES, NOTE_CHARS, TYPES, Endpoint, Type
from penstock.service.webhooks.repository import LONGEST_OVERLAP, OVERLAP
from penstock.service.wire.jobs import Limit
from penstock.service.wire.patterns import whole
from penstock.service.wire.times import at, moment

Queues = Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST_QUEUES)]
Note = Annotated[str, Meta(max_length=NOTE_CHARS)]
SecretText = Annotated[str, whole(r"whsec_[A-Za-z0-9+/=]{32,88}")]


class WebhookReplace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a webhook: URL, event types, and patterns of queue names such as mail-*."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000, examples=["https://example.org/hooks"])]
    types: Annotated[tuple[Type, ...], Meta(min_length=1)] = TYPES
    queues: Queues = ("*",)
    note: Note | None = None


class WebhookCreate(WebhookReplace, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A webhook to create, with a secret of your own if you have one already."""

    secret: SecretText | None = None


class WebhookRotateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds for which the old secret signs too, and a new secret of your own if you have one."""

    overlap: Annotated[float, Meta(ge=0, le=LONGEST_OVERLAP)] = OVERLAP
    secret: SecretText | None = None


class WebhookPauseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a pause."""

    reason: Annotated[str, Meta(min_length=1, max_length=NOTE_CHARS)]


class WebhookView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook. A secret is shown once, in the response that created it."""

    id: str
    url: str
    types: tuple[str, ...]
    queues: tuple[str, ...]
    made_at: datetime
    note: str | None = None
    paused: str | None = None
    """The reason for the pause, while the webhook is paused."""
    old_secret_until: datetime | None = None
    """The time until which messages are signed with the previous secret too."""


class WebhookSecretView(WebhookView, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook with its newest secret. Store the secret: it is not shown again."""

    secret: str


class WebhookList(msgspec.Struct, frozen=True):
    """All webhooks of the tenant."""

    webhooks: list[WebhookView]


class DeliveryAttemptView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt to deliver a message; an attempt without an error succeeded."""

    number: int
    at: datetime
    error: str | None = None


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message for one webhook. `message` is its `webhook-id`, which is the same at each attempt."""

    id: str
    webhook: str
    message: str
    type: str
    state: State
    attempts: int
    made_at: datetime
    next_at: datetime | None = None
    ended_at: datetime | None = None
    status: int | None = None
    error: str | None = None
    body: str | UnsetType = UNSET
    tries: list[DeliveryAttemptView] | UnsetType = UNSET


class DeliveryList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of deliveries, the newest first.

    `next` is missing on the last page, and an earlier page may be short.
    """

    deliveries: list[DeliveryView]
    next: str | None = None


class DeliveryListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters deliveries. `after` is the `next` of the page before."""

    state: str | None = None
    """States joined by commas, such as dead,failed."""
    limit: Limit = 50
    after: str | None = None


def webhook_view(endpoint: Endpoint) -> WebhookView:
    """The view of a webhook, without its secrets."""
    return WebhookView(**_shown(endpoint))


def new_secret_view(endpoint: Endpoint) -> WebhookSecretView:
    """The view of a webhook with its newest secret."""
    return WebhookSecretView(**_shown(endpoint), secret=endpoint.secrets[0].text)


def delivery_view(delivery: Delivery, *, whole: bool = False) -> DeliveryView:
    """The view of a delivery; `whole` includes its body and attempts."""
    tries = [
        DeliveryAttemptView(number=each.number, at=moment(each.at), error=each.error)
        for each in delivery.tries
    ]
    return DeliveryView(
        id=delivery.id,
        webhook=delivery.webhook,
        message=delivery.message,
        type=delivery.type,
        state=delivery.state,
        attempts=delivery.attempts,
        made_at=moment(delivery.made_at),
        next_at=at(delivery.next_at),
        ended_at=at(delivery.ended_at),
        status=delivery.status,
        error=delivery.error,
        body=delivery.body if whole else UNSET,
        tries=tries if whole else UNSET,
    )


def delivery_list(page: DeliveryPage) -> DeliveryList:
    """The view of a page of deliveries."""
    return DeliveryList([delivery_view(each) for each in page.deliveries], page.next)


def _shown(endpoint: Endpoint) -> dict[str, Any]:
    old = endpoint.secrets[1].until if len(endpoint.secrets) > 1 else None
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "types": endpoint.types,
        "queues": endpoint.queues,
        "made_at": moment(endpoint.made_at),
        "note": endpoint.note,
        "paused": endpoint.paused,
        "old_secret_until": at(old),
    }
