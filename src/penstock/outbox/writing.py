"""Writing into an outbox: a job becomes a row of the caller's transaction."""

import secrets
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.client.blocking import Sendable
from penstock.client.caller_transaction import run_without_waiting
from penstock.client.client import unknown_queue
from penstock.client.jobs import check_mode, new_job
from penstock.core.errors import TransactionError
from penstock.core.ids import IdMaker
from penstock.core.job import DAY_MS, NewJob, QueueRef
from penstock.core.limits import Declaration
from penstock.core.outcomes import Enqueued, Refused
from penstock.core.states import State
from penstock.stores.drivers import driver_of
from penstock.stores.outbox import OUTBOX_SCHEMA, OutboxMessage, check_schema
from penstock.tasks.call import Call, check_own
from penstock.tasks.handle import JobHandle, JobReader
from penstock.tasks.middleware import EnqueueMiddleware, SendNext
from penstock.tasks.transactions import AsyncTransaction, Transaction

P = ParamSpec("P")
R = TypeVar("R")
KEPT_MS: Final = 7 * DAY_MS
"""So long a store remembers at least that it had a job: brought again, it is not taken in twice."""


class Outbox:
    """Where an app's jobs wait in a database of the caller's, for a relay to carry them to the app's store.

    Writing needs no open app: the store may be out of reach. `schema` is that of the outbox in PostgreSQL.

    >>> from penstock import Penstock
    >>> outbox = Penstock("redis://localhost").outbox()
    >>> outbox
    <Outbox penstock_outbox>
    """

    def __init__(
        self,
        reader: JobReader,
        *,
        tenant: str,
        declared: Mapping[str, Declaration | None],
        middleware: Sequence[EnqueueMiddleware] = (),
        schema: str = OUTBOX_SCHEMA,
    ) -> None:
        self._reader = reader
        self._tenant = tenant
        self._declared = declared
        self._middleware = middleware
        self._schema = check_schema(schema)
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits)
        self._lock = threading.Lock()

    @property
    def blocking(self) -> "BlockingOutbox":
        """The same for connections and sessions that block."""
        return BlockingOutbox(self)

    async def enqueue_in(
        self, connection: AsyncTransaction, task: Sendable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """Write one call as part of the transaction that a connection or session is in.

        After its commit a relay carries the job over. What the store makes of it, such as an idempotency key
        that another job has, shows only then. UnknownQueueError for a queue that the app does not declare.
        """
        return await self.write(connection, task.call(*args, **kwargs), blocking=False)

    async def write(self, connection: object, call: Call[R], *, blocking: bool) -> JobHandle[R]:
        """The call as a row; with `blocking`, without ever waiting."""
        check_own(self._reader, [call])
        if call.queue not in self._declared:
            raise unknown_queue(call.queue, self._declared)
        declaration = self._declared[call.queue]
        if declaration is not None:
            check_mode(call, declaration.mode)
        with self._lock:
            # Which number the queue has is the store's to know.
            new = _remembered(new_job(call, self._ids.make(0), self._ids.nonce()))
        queue = QueueRef(self._tenant, call.queue)
        send: SendNext = partial(self._put, connection, queue, declaration, blocking)
        for each in reversed(self._middleware):
            send = partial(_through, each, queue, send)
        answer = await send(new)
        job = answer.id if isinstance(answer, Enqueued) else new.id
        return JobHandle(self._reader, call.queue, job, call.decode, created=isinstance(answer, Enqueued))

    async def _put(
        self,
        connection: object,
        queue: QueueRef,
        declaration: Declaration | None,
        blocking: bool,
        new: NewJob,
    ) -> Enqueued | Refused:
        body = msgspec.json.encode(OutboxMessage(new, declaration)).decode()
        driver = await driver_of(connection)
        if isinstance(driver, sqlite3.Connection):
            if not blocking:
                raise TransactionError("found a SQLite connection, which blocks: use outbox.blocking")
            from penstock.stores.sqlite import outbox as sqlite_outbox

            sqlite_outbox.write(driver, queue, body)
        else:
            from penstock.stores.postgres import outbox as postgres_outbox

            await postgres_outbox.write(driver, self._schema, queue, body, blocking=blocking)
        return Enqueued(new.id, True, State.PENDING)

    def __repr__(self) -> str:
        return f"<Outbox {self._schema}>"


class BlockingOutbox:
    """An outbox for connections and sessions that block, those of Django and sqlite3 among them."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def enqueue_in(
        self, connection: Transaction, task: Sendable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """Write one call as part of the transaction a connection or session is in; as `Outbox.enqueue_in`."""
        return run_without_waiting(self._outbox.write(connection, task.call(*args, **kwargs), blocking=True))


def _remembered(new: NewJob) -> NewJob:
    """The job with an idempotency key that outlives its record: a relay may bring it again."""
    held = max(new.options.key_held_ms, KEPT_MS)
    return replace(
        new,
        idempotency_key=new.idempotency_key or f"outbox/{new.id}",
        options=replace(new.options, key_retention_ms=held),
    )


async def _through(
    middleware: EnqueueMiddleware, queue: QueueRef, call_next: SendNext, new: NewJob
) -> Enqueued | Refused:
    return await middleware(new, queue, call_next)
