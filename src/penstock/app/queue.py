"""A queue as an app declares it."""

from typing import Any

from penstock.app.decorator import Register, TaskDecorator
from penstock.core.job import QueueRef
from penstock.tasks.call import Call, Sender
from penstock.tasks.handle import JobHandle
from penstock.tasks.options import JobOptions
from penstock.tasks.registry import Registry


class QueueHandle:
    """A declared queue. `defaults` hold for its jobs where neither task nor call says otherwise.

    >>> from penstock import Penstock
    >>> mail = Penstock("memory://").queue("mail", priority="high")
    >>> @mail.task(timeout=30)
    ... async def send(to: str) -> str:
    ...     return f"sent to {to}"
    >>> send
    <Task send in mail>
    """

    def __init__(
        self, ref: QueueRef, defaults: JobOptions, *, register: Register, registry: Registry, sender: Sender
    ) -> None:
        self.ref = ref
        self.defaults = defaults
        self.task = TaskDecorator(register)
        self._registry = registry
        self._sender = sender

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.ref.name

    async def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue a call of a task of this app into this queue, whichever queue it usually goes to.

        UnknownTaskError when the app has no such task; for tasks of other programs there is `app.by_name`.
        """
        known = self._registry.require(task)
        call: Call[Any] = known.call(*args, **kwargs)
        call.queue = self.name
        return await self._sender.send(call)

    def __repr__(self) -> str:
        return f"<QueueHandle {self.ref}>"
