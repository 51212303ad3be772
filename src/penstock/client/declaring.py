"""Holding what an app says of a queue against what is stored."""

from collections.abc import Mapping

from penstock.client.persist import Persistence
from penstock.core.errors import DeclarationError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo

Declared = Mapping[str, Declaration | None]
"""The queues an app has by name; None where it says nothing of mode and limits."""


async def declare(
    store: Store, queue: QueueRef, declaration: Declaration | None, persistence: Persistence
) -> QueueInfo:
    """The queue, made if it is new; DeclarationError when what is stored says otherwise.

    Without a declaration nothing is compared: the queue's stored mode holds.
    """
    if declaration is None:
        return await persistence.call(lambda: store.open_queue(queue))
    try:
        return await persistence.call(lambda: store.declare(queue, declaration))
    except DeclarationError as error:
        raise DeclarationError(f"queue {str(queue)!r}: {error}") from None
