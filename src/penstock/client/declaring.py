"""Holding what an app says of a queue against what is stored."""

import logging
from collections.abc import Mapping
from typing import Final

from penstock.client.retrying import RetryingCaller
from penstock.core.errors import DeclarationError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo

Declared = Mapping[str, Declaration | None]
"""The queues an app has by name; None where it says nothing of mode and limits."""
_LOGGER: Final = logging.getLogger("penstock.client")


async def declare(
    store: Store,
    queue: QueueRef,
    declaration: Declaration | None,
    retrying: RetryingCaller,
    *,
    is_producer: bool,
) -> QueueInfo:
    """The queue, made if it is new; DeclarationError when what is stored says otherwise.

    A producer is refused only where the mode is another one: it warns of other limits, and goes by those that
    are stored. Without a declaration nothing is compared: the queue's stored mode holds.
    """
    if declaration is None:
        return await retrying.call(lambda: store.queues.open_queue(queue))
    try:
        return await retrying.call(lambda: store.queues.declare(queue, declaration))
    except DeclarationError as error:
        stored = await retrying.call(lambda: store.queues.find_queue(queue)) if is_producer else None
        if stored is None or stored.mode is not declaration.mode:
            raise DeclarationError(f"queue {str(queue)!r}: {error}") from None
        _LOGGER.warning(
            "queue %s: enqueueing with its stored limits: %s",
            queue,
            error,
            extra={"tenant": queue.tenant, "queue": queue.name},
        )
        return stored
