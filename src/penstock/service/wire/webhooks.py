"""Webhooks and their deliveries as they are asked for and as they are shown."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.states import State
from penstock.service.webhooks.book import LONGEST_OVERLAP, OVERLAP
from penstock.service.webhooks.deliveries import Delivery, DeliveryPage
from penstock.service.webhooks.endpoint import MOST_QUEUES, NOTE_CHARS, TYPES, Endpoint, Type
from penstock.service.wire.jobs import Limit
from penstock.service.wire.patterns import whole
from penstock.service.wire.times import at, moment

Queues = Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST_QUEUES)]
Note = Annotated[str, Meta(max_length=NOTE_CHARS)]
SecretText = Annotated[str, whole(r"whsec_[A-Za-z0-9+/=]{32,88}")]


class WebhookWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A webhook: where messages go, about what, and of which queues, where * stands for any signs."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000, examples=["https://example.org/hooks"])]
    types: Annotated[tuple[Type, ...], Meta(min_length=1)] = TYPES
    queues: Queues = ("*",)
    note: Note | None = None


class NewWebhookWish(WebhookWish, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, with a secret of your own if you have one already."""

    secret: SecretText | None = None


class RotateWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how many seconds the old secret signs too; a new one of your own, if you have it already."""

    overlap: Annotated[float, Meta(ge=0, le=LONGEST_OVERLAP)] = OVERLAP
    secret: SecretText | None = None


class PauseWebhookWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why messages shall wait."""

    reason: Annotated[str, Meta(min_length=1, max_length=NOTE_CHARS)]


class WebhookView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook. Its secrets are shown when they are made, and never again."""

    id: str
    url: str
    types: tuple[str, ...]
    queues: tuple[str, ...]
    made_at: datetime
    note: str | None = None
    paused: str | None = None
    """Why messages wait, where they do."""
    old_secret_until: datetime | None = None
    """Until when messages are signed with the secret before this one too."""


class NewSecretView(WebhookView, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook with its newest secret: keep it, it is not shown again."""

    secret: str


class WebhookList(msgspec.Struct, frozen=True):
    """All webhooks of the tenant."""

    webhooks: list[WebhookView]


class AttemptView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try; without an error it was the last one."""

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
    tries: list[AttemptView] | UnsetType = UNSET


class DeliveryList(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some deliveries, the newest first; `next` is missing on the last page, and one before may be short."""

    deliveries: list[DeliveryView]
    next: str | None = None


class DeliveriesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which deliveries. `after` is the `next` of the page before."""

    state: str | None = None
    """Some states, joined by commas, such as dead,failed."""
    limit: Limit = 50
    after: str | None = None


def webhook_view(endpoint: Endpoint) -> WebhookView:
    """Without its secrets."""
    return WebhookView(**_shown(endpoint))


def new_secret_view(endpoint: Endpoint) -> NewSecretView:
    """With the newest one."""
    return NewSecretView(**_shown(endpoint), secret=endpoint.secrets[0].text)


def delivery_view(delivery: Delivery, *, whole: bool = False) -> DeliveryView:
    """With its body and attempts where the `whole` is wanted."""
    tries = [AttemptView(number=each.number, at=moment(each.at), error=each.error) for each in delivery.tries]
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
    """A page of them."""
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
