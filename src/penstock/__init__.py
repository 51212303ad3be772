"""A job queue that can prove it lost nothing.

Names are imported when they are first used, so that `import penstock` loads no driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.app.app import Penstock
    from penstock.app.queue import QueueHandle
    from penstock.client.client import Client
    from penstock.core.errors import (
        BatchRefusedError,
        ConfigError,
        CursorLostError,
        DuplicateJobError,
        IdempotencyConflictError,
        InvalidError,
        InvalidNameError,
        JobEndedError,
        JobNotFoundError,
        OptionError,
        PayloadError,
        PenstockError,
        QueueFullError,
        ResultTimeoutError,
        StaleLeaseError,
        StoreError,
        StoreFormatError,
        StoreFullError,
        StoreReadOnlyError,
        StoreTimeoutError,
        StoreUnavailableError,
        StoreVersionError,
        UnknownQueueError,
        UnknownTaskError,
        WrongStateError,
    )
    from penstock.core.job import Job, NewJob, QueueRef
    from penstock.core.outcomes import Enqueued, Refused
    from penstock.core.retry import Backoff, Jitter
    from penstock.core.states import State
    from penstock.stores.open import open_store
    from penstock.stores.protocol import Durability, Store
    from penstock.tasks.call import Call
    from penstock.tasks.context import JobContext, current_job
    from penstock.tasks.handle import JobHandle
    from penstock.tasks.middleware import EnqueueMiddleware, ExecutionMiddleware, SendNext
    from penstock.tasks.signals import Cancel, Fail, Retry, Snooze
    from penstock.tasks.task import Task
    from penstock.worker.pool import WorkerPool
    from penstock.worker.worker import Worker

_HOMES: Final = {
    "penstock.app.app": ("Penstock",),
    "penstock.app.queue": ("QueueHandle",),
    "penstock.client.client": ("Client",),
    "penstock.core.job": ("Job", "NewJob", "QueueRef"),
    "penstock.core.outcomes": ("Enqueued", "Refused"),
    "penstock.core.retry": ("Backoff", "Jitter"),
    "penstock.core.states": ("State",),
    "penstock.stores.open": ("open_store",),
    "penstock.stores.protocol": ("Durability", "Store"),
    "penstock.tasks.call": ("Call",),
    "penstock.tasks.context": ("JobContext", "current_job"),
    "penstock.tasks.handle": ("JobHandle",),
    "penstock.tasks.middleware": ("EnqueueMiddleware", "ExecutionMiddleware", "SendNext"),
    "penstock.tasks.signals": ("Cancel", "Fail", "Retry", "Snooze"),
    "penstock.tasks.task": ("Task",),
    "penstock.worker.pool": ("WorkerPool",),
    "penstock.worker.worker": ("Worker",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Backoff",
    "BatchRefusedError",
    "Call",
    "Cancel",
    "Client",
    "ConfigError",
    "CursorLostError",
    "DuplicateJobError",
    "Durability",
    "EnqueueMiddleware",
    "Enqueued",
    "ExecutionMiddleware",
    "Fail",
    "IdempotencyConflictError",
    "InvalidError",
    "InvalidNameError",
    "Jitter",
    "Job",
    "JobContext",
    "JobEndedError",
    "JobHandle",
    "JobNotFoundError",
    "NewJob",
    "OptionError",
    "PayloadError",
    "Penstock",
    "PenstockError",
    "QueueFullError",
    "QueueHandle",
    "QueueRef",
    "Refused",
    "ResultTimeoutError",
    "Retry",
    "SendNext",
    "Snooze",
    "StaleLeaseError",
    "State",
    "Store",
    "StoreError",
    "StoreFormatError",
    "StoreFullError",
    "StoreReadOnlyError",
    "StoreTimeoutError",
    "StoreUnavailableError",
    "StoreVersionError",
    "Task",
    "UnknownQueueError",
    "UnknownTaskError",
    "Worker",
    "WorkerPool",
    "WrongStateError",
    "current_job",
    "open_store",
]


def __getattr__(name: str) -> Any:
    home = "penstock.core.errors" if name.endswith("Error") else _HOME_OF.get(name)
    if home is None or name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
