"""Sends one message to its webhook, and decides what the response means."""

import logging
import time
from collections.abc import Callable
from typing import Final, cast

from penstock.core.errors import OptionError
from penstock.core.repeated_failures import RepeatedFailures
from penstock.service.egress.egress import Egress
from penstock.service.egress.errors import AddressRefusedError, EgressError
from penstock.service.webhooks.endpoint import Endpoint
from penstock.service.webhooks.errors import SealedSecretError, WebhookNotFoundError
from penstock.service.webhooks.messages import QUEUE, TASK, Taken, WebhookMessage
from penstock.service.webhooks.repository import WebhookRepository
from penstock.service.webhooks.signing import signed
from penstock.stores.protocol import Store
from penstock.tasks.call import FlowSender
from penstock.tasks.context import JobContext
from penstock.tasks.registry import Registry
from penstock.tasks.signals import Cancel, Fail, Retry, Snooze
from penstock.tasks.task import AsyncTask

_LOGGER: Final = logging.getLogger("penstock.webhooks")
GONE: Final = 410
BUSY: Final = frozenset({429, 503})
"""Statuses of responses whose Retry-After is used."""
LONGEST_RETRY_AFTER: Final = 24 * 3600.0
PAUSE: Final = 60.0
"""How soon a delivery looks again whether its webhook goes on."""


class WebhookSender:
    """Delivers messages of all tenants; the job's context names the tenant."""

    def __init__(
        self,
        store: Store,
        repository: WebhookRepository,
        egress: Egress,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._repository = repository
        self._egress = egress
        self._clock = clock
        self._reasons = RepeatedFailures()

    def registry(self) -> Registry:
        """The tasks of a worker of the webhook queue."""
        made = Registry()
        # Nobody enqueues through it, so there is nobody to send.
        made.add(AsyncTask(self.deliver, name=TASK, queue=QUEUE, sender=cast(FlowSender, None)))
        return made

    async def deliver(self, ctx: JobContext, **arguments: WebhookMessage) -> Taken:
        """Send the message; the status of an answer that took it. Anything but 2xx is tried again.

        410 pauses the webhook and ends the delivery, and so does an address that is not allowed, for itself.
        """
        # One argument, whatever it is called: deliveries that an earlier version stored name it otherwise.
        if len(arguments) != 1:
            raise Fail(f"found {len(arguments)} arguments, wanted one message")
        (message,) = arguments.values()
        try:
            endpoint = await self._repository.get(ctx.tenant, message.webhook)
        except WebhookNotFoundError:
            raise Cancel("the webhook was removed") from None
        if endpoint.paused is not None:
            raise Snooze(PAUSE)
        # The receiver holds the time of sending against its own clock, and not against the store's.
        at, body = int(self._clock()), message.body.encode()
        headers = signed(await self._keys(ctx.tenant, endpoint), message.id, at, body)
        try:
            answer = await self._egress.post(
                endpoint.url, {"content-type": "application/json", **headers}, body
            )
        except (AddressRefusedError, OptionError) as error:
            raise Fail(error) from None
        if 200 <= answer.status < 300:
            return Taken(answer.status, round(answer.seconds, 3))
        described = f"the answer was {answer.status}"
        if answer.status == GONE:
            await self._repository.change(
                ctx.tenant, endpoint.id, paused="the receiver answered 410: gone for good"
            )
            raise Fail(described)
        if answer.status in BUSY and answer.retry_after is not None:
            raise Retry(after=min(answer.retry_after, LONGEST_RETRY_AFTER), reason=described)
        raise EgressError(described)

    async def _keys(self, tenant: str, endpoint: Endpoint) -> list[str]:
        """The secrets to sign with. The delivery waits where they cannot be opened, and costs no attempt."""
        try:
            keys = await self._repository.signing_keys(tenant, endpoint)
        except SealedSecretError as error:
            if self._reasons.is_new(error):
                _LOGGER.error("deliveries wait, will repeat: %s", error, extra={"tenant": tenant})
            raise Snooze(PAUSE) from None
        self._reasons.over()
        return keys
