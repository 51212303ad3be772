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
        DamagedQueueError,
        DeclarationError,
        DuplicateJobError,
        FlowError,
        HandlerError,
        IdempotencyConflictError,
        InvalidError,
        InvalidNameError,
        JobEndedError,
        JobNotFoundError,
        NotReplicatedError,
        OptionError,
        PayloadError,
        PenstockError,
        PoolTimeoutError,
        ProcessDiedError,
        QueueFullError,
        QueueNotEmptyError,
        ResultTimeoutError,
        SoftTimeoutError,
        StaleLeaseError,
        StoreError,
        StoreFormatError,
        StoreFullError,
        StoreReadOnlyError,
        StoreTimeoutError,
        StoreUnavailableError,
        StoreVersionError,
        StuckHandlerError,
        TransactionError,
        UnknownQueueError,
        UnknownTaskError,
        WrongStateError,
    )
    from penstock.core.flows import ChildPolicy, JobRef
    from penstock.core.job import Job, NewJob, QueueRef
    from penstock.core.limits import Mode, Rate
    from penstock.core.outcomes import Enqueued, Refused
    from penstock.core.retry import Backoff, Jitter
    from penstock.core.states import State
    from penstock.sandbox.permissions import Permissions
    from penstock.service.egress.errors import AddressRefusedError, EgressError
    from penstock.service.webhooks.errors import SealedSecretError, SignatureError, WebhookNotFoundError
    from penstock.spark.errors import BadRowError, TableError
    from penstock.stores.open import open_store
    from penstock.stores.protocol import Store
    from penstock.stores.values import Durability
    from penstock.tasks.batch import BatchHandle
    from penstock.tasks.call import Call
    from penstock.tasks.child_jobs import ChildJob
    from penstock.tasks.context import JobContext, current_job
    from penstock.tasks.flow import Flow, FlowNode, chain, group
    from penstock.tasks.flow_handle import FlowCounts, FlowHandle, FlowTree
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
    "penstock.core.flows": ("ChildPolicy", "JobRef"),
    "penstock.core.limits": ("Mode", "Rate"),
    "penstock.core.job": ("Job", "NewJob", "QueueRef"),
    "penstock.core.outcomes": ("Enqueued", "Refused"),
    "penstock.core.retry": ("Backoff", "Jitter"),
    "penstock.core.states": ("State",),
    "penstock.sandbox.permissions": ("Permissions",),
    "penstock.service.egress.errors": ("AddressRefusedError", "EgressError"),
    "penstock.service.webhooks.errors": ("SealedSecretError", "SignatureError", "WebhookNotFoundError"),
    "penstock.spark.errors": ("BadRowError", "TableError"),
    "penstock.stores.open": ("open_store",),
    "penstock.stores.protocol": ("Store",),
    "penstock.stores.values": ("Durability",),
    "penstock.tasks.batch": ("BatchHandle",),
    "penstock.tasks.call": ("Call",),
    "penstock.tasks.context": ("JobContext", "current_job"),
    "penstock.tasks.child_jobs": ("ChildJob",),
    "penstock.tasks.flow": ("Flow", "FlowNode", "chain", "group"),
    "penstock.tasks.flow_handle": ("FlowCounts", "FlowHandle", "FlowTree"),
    "penstock.tasks.handle": ("JobHandle",),
    "penstock.tasks.middleware": ("EnqueueMiddleware", "ExecutionMiddleware", "SendNext"),
    "penstock.tasks.signals": ("Cancel", "Fail", "Retry", "Snooze"),
    "penstock.tasks.task": ("Task",),
    "penstock.worker.pool": ("WorkerPool",),
    "penstock.worker.worker": ("Worker",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AddressRefusedError",
    "Backoff",
    "BadRowError",
    "BatchHandle",
    "BatchRefusedError",
    "Call",
    "Cancel",
    "ChildJob",
    "ChildPolicy",
    "Client",
    "ConfigError",
    "CursorLostError",
    "DamagedQueueError",
    "DeclarationError",
    "DuplicateJobError",
    "Durability",
    "EgressError",
    "EnqueueMiddleware",
    "Enqueued",
    "ExecutionMiddleware",
    "Fail",
    "Flow",
    "FlowCounts",
    "FlowError",
    "FlowHandle",
    "FlowNode",
    "FlowTree",
    "HandlerError",
    "IdempotencyConflictError",
    "InvalidError",
    "InvalidNameError",
    "Jitter",
    "Job",
    "JobContext",
    "JobEndedError",
    "JobHandle",
    "JobNotFoundError",
    "JobRef",
    "Mode",
    "NewJob",
    "NotReplicatedError",
    "OptionError",
    "PayloadError",
    "Penstock",
    "PenstockError",
    "Permissions",
    "PoolTimeoutError",
    "ProcessDiedError",
    "QueueFullError",
    "QueueHandle",
    "QueueNotEmptyError",
    "QueueRef",
    "Rate",
    "Refused",
    "ResultTimeoutError",
    "Retry",
    "SealedSecretError",
    "SendNext",
    "SignatureError",
    "Snooze",
    "SoftTimeoutError",
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
    "StuckHandlerError",
    "TableError",
    "Task",
    "TransactionError",
    "UnknownQueueError",
    "UnknownTaskError",
    "WebhookNotFoundError",
    "Worker",
    "WorkerPool",
    "WrongStateError",
    "chain",
    "current_job",
    "group",
    "open_store",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name, "penstock.core.errors" if name.endswith("Error") else None)
    if home is None or name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
