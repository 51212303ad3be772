"""From an event to the message about it, and to the job that delivers the message."""

import hashlib
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core.events import Event
from penstock.core.flows import Child
from penstock.core.limits import Declaration, Mode
from penstock.core.retry import Backoff
from penstock.explain.formatting import utc
from penstock.service.reserved_names import PREFIX
from penstock.service.webhooks.endpoint import PING, Endpoint
from penstock.tasks.call import Call
from penstock.tasks.options import JobOptions

QUEUE: Final = PREFIX + "webhooks"
"""The queue of each tenant that its messages wait in. What ends there is told to nobody."""
TASK: Final = "penstock.webhook"
DECLARATION: Final = Declaration(mode=Mode.KEYED, key_limit=4)
"""The key is the webhook: one that is slow has its four and keeps no other waiting."""
ATTEMPTS: Final = 10
BACKOFF: Final = Backoff.listed(5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400, jitter="equal")
"""Over two to three days, as the specification proposes; up to half of each wait is chance."""
WEEK: Final = 7 * 24 * 3600.0
TIMEOUT: Final = 45.0
"""Seconds that an attempt may take: more than a request can, so that it ends with what the request says."""


class WebhookMessage(msgspec.Struct, frozen=True, rename={"id": "message"}):
    """What a delivery carries: the message for one webhook. The address and secrets stay with the webhook.

    Deliveries are stored: the JSON names stay as they are.
    """

    webhook: str
    id: str
    type: str
    body: str


class Taken(msgspec.Struct, frozen=True):
    """The result of a delivery: the status of the answer, and how long it took."""

    status: int
    seconds: float


def is_ending(event: Event) -> bool:
    """True for the event with which a job ended."""
    ended = event.job is not None and event.target is not None and event.target.is_ended
    return ended and (event.source is None or event.source.is_live)


def about_job(event: Event, endpoint: Endpoint) -> WebhookMessage:
    """The message about the ending of a job."""
    return _message(event, endpoint, f"job.{event.target}", _job(event))


def about_batch(event: Event, endpoint: Endpoint, children: Sequence[Child]) -> WebhookMessage:
    """The message about the ending of a batch, with the numbers of its jobs by state."""
    counts = Counter(str(child.state or "gone") for child in children if child.is_done)
    data = {
        "batch": f"{event.queue}/{event.job}",
        "jobs": len(children),
        "counts": dict(sorted(counts.items())),
    }
    return _message(event, endpoint, f"batch.{event.target}", data | _job(event))


def about_nothing(endpoint: Endpoint, tenant: str, at: int) -> WebhookMessage:
    """A test message."""
    data = {"tenant": tenant, "webhook": endpoint.id}
    return WebhookMessage(endpoint.id, f"msg_{secrets.token_hex(16)}", PING, _body(PING, at, data))


def call_for(message: WebhookMessage, *, again: bool = False) -> Call[Any]:
    """The delivery of a message. It is made once for each message, unless it is wanted `again`."""
    key = f"{message.id}.{secrets.token_hex(8)}" if again else message.id
    options = JobOptions.of(
        {
            "key": message.webhook,
            "idempotency_key": key,
            "max_attempts": ATTEMPTS,
            "backoff": BACKOFF,
            "timeout": TIMEOUT,
            "retention": WEEK,
            "key_retention": WEEK,
        }
    )
    payload = msgspec.json.encode({"message": message})
    return Call(task=TASK, queue=QUEUE, payload=payload, options=options, decode=_decode)


def _job(event: Event) -> dict[str, Any]:
    said = {
        "tenant": event.tenant,
        "queue": event.queue,
        "job": event.job,
        "task": event.task,
        "state": event.target,
        "key": event.key,
        "drive": event.drive,
        "attempt": event.attempt,
        "reason": event.reason,
        "error": event.error,
        "ended_at": utc(event.at),
    }
    return {name: value for name, value in said.items() if value is not None}


def _message(event: Event, endpoint: Endpoint, kind: str, data: dict[str, Any]) -> WebhookMessage:
    # Made of the event alone: a second reading makes the same message, which the store has already.
    named = (endpoint.id, kind, event.tenant, event.queue, event.seq, event.at, event.job, event.version)
    digest = hashlib.blake2b("\0".join(map(str, named)).encode(), digest_size=16).hexdigest()
    return WebhookMessage(endpoint.id, f"msg_{digest}", kind, _body(kind, event.at, data))


def _body(kind: str, at: int, data: dict[str, Any]) -> str:
    return msgspec.json.encode({"type": kind, "timestamp": utc(at), "data": data}).decode()


def _decode(encoded: bytes | None) -> Any:
    return None if encoded is None else msgspec.json.decode(encoded)
