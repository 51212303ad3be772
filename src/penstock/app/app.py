"""The app itself."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from penstock.app.connection import StoreConnection
from penstock.app.decorator import Register, TaskDecorator
from penstock.app.queue import QUEUE_ONLY, QueueHandle, QueueOptions, declaration_of
from penstock.app.schedules import Schedules
from penstock.bloom.filters import Filters
from penstock.client.blocking import Blocking
from penstock.client.client import Client
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import ConfigError, OptionError
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.core.limits import Declaration
from penstock.core.names import check_name
from penstock.core.payload import PAYLOAD_LIMIT, decode_json
from penstock.stores.outbox import OUTBOX_SCHEMA
from penstock.stores.protocol import Store
from penstock.tasks.batch import BatchHandle, batch_ref, send_batch
from penstock.tasks.call import Call
from penstock.tasks.execution import Execution, job_options
from penstock.tasks.flow import Flow
from penstock.tasks.handle import JobHandle
from penstock.tasks.middleware import EnqueueMiddleware, ExecutionMiddleware
from penstock.tasks.options import JobOptions
from penstock.tasks.registry import Registry
from penstock.tasks.task import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from penstock.app.pool import AppWorkers
    from penstock.metrics.recorder import Metrics
    from penstock.outbox.writing import Outbox
    from penstock.worker.pool import WorkerPool

_LOGGER: Final = logging.getLogger("penstock.worker")
DEFAULT_URL: Final = "sqlite:///penstock.db"
DEFAULT_QUEUE: Final = "default"


class Penstock:
    """An app: queues and tasks of one tenant, in the store behind `url` or in `store`.

    Without either the store is the one that PENSTOCK_URL names, or else the file penstock.db.
    Open it with `async with app:` to enqueue; blocks may be nested. `payload_limit` bounds arguments and
    results, in bytes. While the store cannot be reached, calls are repeated for `retry_timeout`
    seconds, or `tries` times. `filters` are the Bloom filters that its calls go by.

    >>> app = Penstock("memory://")
    >>> @app.task
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> add(1, 2)
    3
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        tenant: str = DEFAULT_TENANT,
        payload_limit: int = PAYLOAD_LIMIT,
        tries: int | None = None,
        retry_timeout: float = 30.0,
        filters: Filters | None = None,
    ) -> None:
        self.tenant = check_name("tenant", tenant)
        _check_number("payload_limit", payload_limit, "a whole number of bytes from 1", int, least=1)
        if tries is not None:
            _check_number("tries", tries, "a whole number from 1, or None", int, least=1)
        _check_number("retry_timeout", retry_timeout, "seconds from 0", int | float, least=0)
        self.registry = Registry()
        self.handles: dict[str, QueueHandle] = {}
        """The declared queues, by name."""
        self.declarations: dict[str, Declaration | None] = {}
        """What is said of the mode and limits of each of them."""
        self.execution_middleware: list[ExecutionMiddleware] = []
        self.metrics: Metrics | None = None
        """What counts the calls of the store and the deliveries of the app's workers."""
        self.reference: str | None = None
        """The `module:app` by which the command line found the app."""
        self._payload_limit = payload_limit
        self._retrying = RetryingCaller(tries, retry_timeout)
        self._filters = filters
        self._declaring = threading.Lock()
        self._enqueue_middleware: list[EnqueueMiddleware] = []
        self._connection = StoreConnection(url, store, filters=filters, make_client=self._make_client)
        self.client = self._connection.client
        self.schedules = Schedules(self, self.client)
        self.cron = self.schedules.cron
        self.every = self.schedules.every

    # Declaring

    def queue(self, name: str, **given: Unpack[QueueOptions]) -> QueueHandle:
        """The queue of that name, declared by the first call; ConfigError when its options differ later.

        Mode and limits are stored with the queue, for all apps. They are written or compared when this app
        first uses the queue, and when one of its workers starts. Another mode is a DeclarationError; with
        other limits a worker does not start, and a producer logs a warning and uses the stored limits.
        """
        defaults = {field: value for field, value in given.items() if field not in QUEUE_ONLY}
        options = JobOptions.of(job_options(defaults), QueueOptions.__annotations__)
        execution = Execution.of(given)
        declaration = declaration_of(name, given, options)
        with self._declaring:
            return self._queue(name, given, options, execution, declaration)

    def _queue(
        self,
        name: str,
        given: QueueOptions,
        options: JobOptions,
        execution: Execution,
        declaration: Declaration | None,
    ) -> QueueHandle:
        known = self.handles.get(name)
        if known is None:
            ref = QueueRef(self.tenant, check_name("queue", name))
            self.declarations[name] = declaration
            known = self.handles[name] = QueueHandle(
                ref,
                options,
                declaration,
                lease=given.get("lease"),
                execution=execution,
                register=self._registering(name, options, execution),
                registry=self.registry,
                sender=self.client,
            )
        elif given and (options, declaration, given.get("lease"), execution) != (
            known.defaults,
            known.declaration,
            known.lease,
            known.execution,
        ):
            raise ConfigError(f"queue {name!r} is declared already, with other options")
        return known

    @property
    def queues(self) -> list[str]:
        """The names of the declared queues, in order."""
        return sorted(self.handles)

    @property
    def task(self) -> TaskDecorator:
        """The decorator for tasks of the queue `default`."""
        return self.queue(DEFAULT_QUEUE).task

    def task_named(self, name: str) -> Task[..., ..., Any]:
        """A task of this app; UnknownTaskError when there is none of that name."""
        return self.registry.require(name)

    def by_name(self, name: str, *, queue: str = DEFAULT_QUEUE) -> Task[..., ..., Any]:
        """A task that another program handles: `enqueue` takes any keyword arguments that are strict JSON.

        >>> app = Penstock("memory://")
        >>> app.by_name("send", queue="mail").encode_call(to="ada")
        b'{"to":"ada"}'
        """
        known = self.handles.get(queue)
        return SyncTask(
            _elsewhere,
            name=name,
            queue=queue,
            sender=self.client,
            defaults=None if known is None else known.defaults,
            payload_limit=self._payload_limit,
        )

    def job(self, queue: str, job: str) -> JobHandle[Any]:
        """A handle on a job that was enqueued before."""
        return JobHandle(self.client, check_name("queue", queue), check_name("id", job), _decode_result)

    def flow(self, name: str | None = None) -> Flow:
        """An empty flow: `flow.add(task.call(…), after=[…])`, then `await flow.enqueue()`.

        A name becomes the id of the one job that comes after all others: DuplicateJobError when it is taken.
        """
        return Flow(self.client, name)

    async def batch(
        self, calls: Iterable[Call[Any]], *, then: Call[Any] | None = None, name: str | None = None
    ) -> BatchHandle:
        """Many jobs, enqueued in one operation, and `then` once all have ended in whatever way.

        Its handler sees the outcomes with `await ctx.children()`. A name makes the batch's id one that is
        known: DuplicateJobError when there is such a batch.
        """
        return await send_batch(self.client, calls, then, name)

    def get_batch(self, batch: str) -> BatchHandle:
        """A batch that was enqueued before, by its `id`."""
        return BatchHandle(self.client, batch_ref(batch))

    def outbox(self, schema: str = OUTBOX_SCHEMA) -> "Outbox":
        """Where jobs wait in a database of your own when this app's store is elsewhere; a relay carries them.

        `schema` is that of the outbox in PostgreSQL; a SQLite database has one outbox.
        """
        from penstock.outbox.writing import Outbox

        return Outbox(
            self.client,
            tenant=self.tenant,
            declared=self.declarations,
            middleware=self._enqueue_middleware,
            schema=schema,
        )

    def middleware(
        self, *, enqueue: EnqueueMiddleware | None = None, execution: ExecutionMiddleware | None = None
    ) -> None:
        """Wrap something around every enqueue, or around every execution; what came first is outermost."""
        if enqueue is not None:
            self._enqueue_middleware.append(enqueue)
        if execution is not None:
            self.execution_middleware.append(execution)

    def instrument(self, metrics: "Metrics") -> None:
        """Count what the app asks of its store and what its workers execute; ConfigError while it is open."""
        if self._connection.is_in_use:
            raise ConfigError("the app is open: instrument it before it is opened")
        self._connection.observer = self.metrics = metrics

    def _registering(self, queue: str, queue_defaults: JobOptions, queue_execution: Execution) -> Register:
        def register(
            function: Callable[..., Any], name: str | None, options: JobOptions, execution: Execution
        ) -> Task[..., ..., Any]:
            made: Task[..., ..., Any] = SyncTask(
                function,
                name=name or str(getattr(function, "__name__", "")),
                queue=queue,
                sender=self.client,
                defaults=options.over(queue_defaults),
                payload_limit=self._payload_limit,
                execution=execution.said_over(queue_execution),
            )
            if made.is_async:
                made.__class__ = AsyncTask
            self.registry.add(made)
            return made

        return register

    # Opening

    @property
    def url(self) -> str | None:
        """Where the store is, for an app that was not given one."""
        return self._connection.url

    @property
    def store(self) -> Store:
        """The store; its driver is imported when it is first asked for."""
        return self._connection.store

    @property
    def is_open(self) -> bool:
        """True inside `async with app:`."""
        return self.client.is_open

    async def __aenter__(self) -> "Penstock":
        await self._connection.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._connection.exit()

    @property
    def blocking(self) -> Blocking:
        """`with app.blocking as queue: queue.enqueue(send, "ada")`, for code that cannot await.

        Works beside a running event loop, and blocks the thread that calls.
        """
        return self._connection.blocking

    def using(self, store: Store) -> AbstractContextManager[None]:
        """Another store for the time of the block; ConfigError while the app is open."""
        return self._connection.using(store)

    def forget_store(self) -> None:
        """Have neither store nor client from now on: in a process that only executes handlers."""
        self._connection.forget_store()

    def _make_client(self, owner: Client | None) -> Client:
        return Client(
            owner=owner,
            tenant=self.tenant,
            declared=self.declarations,
            middleware=self._enqueue_middleware,
            retrying=self._retrying,
            filters=self._filters,
        )

    # Working

    def worker(
        self,
        queues: Mapping[str, int] | Sequence[str] | None = None,
        *,
        concurrency: int | None = None,
        **options: Any,
    ) -> "AppWorkers":
        """Workers for these queues, all declared ones if none are named; `run()` opens the app.

        A mapping says how many jobs of a queue run at once; 0 is `concurrency`. Other options are those of
        `penstock.worker.worker.Worker`. UnknownQueueError for a queue that this app does not declare.
        """
        from penstock.app.working import make_workers

        return make_workers(self, queues, concurrency, options)

    def scheduler(self, queues: Sequence[str] | None = None, **options: Any) -> "WorkerPool":
        """The scheduler of these queues, or of all queues of the tenant: executes no job; used as `worker`.

        Options are those of `TimeKeeper` in `penstock.maintenance`. Workers do the same for their own queues.
        """
        from penstock.app.working import make_time_keeper

        return make_time_keeper(self, queues, options)

    def __repr__(self) -> str:
        return (
            f"<Penstock of {self.tenant!r}: {len(self.handles)} queues, {len(self.registry.names())} tasks>"
        )


def _check_number(field: str, value: object, wanted: str, kind: type | UnionType, *, least: int) -> None:
    is_number = isinstance(value, int | float) and isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not cast(float, value) >= least:
        raise OptionError(field, value, wanted)


def _elsewhere(**arguments: Any) -> Any:
    raise ConfigError("this task is handled by another program: it can be enqueued here, not called")


def _decode_result(encoded: bytes | None) -> Any:
    return None if encoded is None else decode_json("result", encoded)
