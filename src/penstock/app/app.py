"""The app itself."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack
from weakref import WeakSet

from penstock.app.decorator import Register, TaskDecorator
from penstock.app.queue import QUEUE_ONLY, QueueHandle, QueueOptions, declaration_of
from penstock.app.schedules import Schedules
from penstock.app.sending import Sending
from penstock.bloom.filters import Filters
from penstock.client.blocking import Blocking
from penstock.client.client import Client, unknown_queue
from penstock.client.persist import Persistence
from penstock.core.errors import ConfigError, StoreUnavailableError
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.core.limits import Declaration
from penstock.core.names import check_name
from penstock.core.payload import PAYLOAD_LIMIT, decode_json
from penstock.settings import url_of_environment
from penstock.stores.open import check_url, open_store
from penstock.stores.outgoing import OUTBOX_SCHEMA
from penstock.stores.protocol import Store
from penstock.tasks.batch import BatchHandle, batch_ref, send_batch
from penstock.tasks.call import Call
from penstock.tasks.execution import Execution, Tier, default_tier, job_options
from penstock.tasks.flow import Flow
from penstock.tasks.handle import JobHandle
from penstock.tasks.middleware import EnqueueMiddleware, ExecutionMiddleware
from penstock.tasks.options import JobOptions
from penstock.tasks.registry import Registry
from penstock.tasks.task import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from penstock.app.preparing import Prepared
    from penstock.app.restoring import Restorer
    from penstock.outbox.writing import Outbox
    from penstock.worker.executors.process.host import Host
    from penstock.worker.pool import WorkerPool

_LOGGER: Final = logging.getLogger("penstock.worker")
DEFAULT_URL: Final = "sqlite:///penstock.db"
DEFAULT_QUEUE: Final = "default"


class Penstock:
    """An app: queues and tasks of one tenant, in the store behind `url` or in `store`.

    Without either the store is the one that PENSTOCK_URL names, or else the file penstock.db.
    Open it with `async with app:` to enqueue; blocks may be nested. `payload_limit` bounds arguments and
    results, in bytes. A store that cannot be reached is tried again until `patience` seconds are over, or
    `tries` times. `filters` are the Bloom filters that its calls go by.

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
        patience: float = 30.0,
        filters: Filters | None = None,
    ) -> None:
        if url is not None and store is not None:
            raise ConfigError("an app has a url or a store, not both")
        if url is None and store is None:
            url = url_of_environment() or DEFAULT_URL
        self.url = url
        if self.url is not None:
            check_url(self.url)
        self.tenant = check_name("tenant", tenant)
        self.registry = Registry()
        self._store = store
        self._payload_limit = payload_limit
        self._persistence = Persistence(tries, patience)
        self._filters = filters
        self._queues: dict[str, QueueHandle] = {}
        self._declaring = threading.Lock()
        self._declared: dict[str, Declaration | None] = {}
        self._sending = Sending()
        self._enqueue_middleware: list[EnqueueMiddleware] = []
        self._execution_middleware: list[ExecutionMiddleware] = []
        self._users = 0
        self._opening: asyncio.Lock | None = None
        self._stranded: Store | None = None
        self._is_storeless = False
        self.reference: str | None = None
        """The `module:app` by which the command line found the app."""
        self._blocking = Blocking(self._twin, self._sending.check_own, self._sending.check_blocking)
        self.schedules = Schedules(self)
        self.cron = self.schedules.cron
        self.every = self.schedules.every
        _APPS.add(self)

    # Declaring

    def queue(self, name: str, **given: Unpack[QueueOptions]) -> QueueHandle:
        """The queue of that name, declared by the first call; ConfigError when its options differ later.

        What is said of mode and limits stands with the queue in the store, for all apps. It is written or
        compared when this app first uses the queue, and when a worker of it starts. Where the mode does not
        agree, that is a DeclarationError; where a limit does not, a worker does not start, and a producer
        logs a warning and goes by what is stored.
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
        known = self._queues.get(name)
        if known is None:
            ref = QueueRef(self.tenant, check_name("queue", name))
            self._declared[name] = declaration
            known = self._queues[name] = QueueHandle(
                ref,
                options,
                declaration,
                lease=given.get("lease"),
                execution=execution,
                register=self._registering(name, options, execution),
                registry=self.registry,
                sender=self._sending,
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
        return sorted(self._queues)

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
        known = self._queues.get(queue)
        return SyncTask(
            _elsewhere,
            name=name,
            queue=queue,
            sender=self._sending,
            defaults=None if known is None else known.defaults,
            payload_limit=self._payload_limit,
        )

    def job(self, queue: str, job: str) -> JobHandle[Any]:
        """A handle on a job that was enqueued before."""
        return JobHandle(self._sending, check_name("queue", queue), check_name("id", job), _decode_result)

    def flow(self, name: str | None = None) -> Flow:
        """An empty flow: `flow.add(task.call(…), after=[…])`, then `await flow.enqueue()`.

        A name becomes the id of the one job that comes after all others: DuplicateJobError when it is taken.
        """
        return Flow(self._sending, name)

    async def batch(
        self, calls: Iterable[Call[Any]], *, then: Call[Any] | None = None, name: str | None = None
    ) -> BatchHandle:
        """Many jobs, enqueued in one operation, and `then` once all have ended in whatever way.

        Its handler sees the outcomes with `await ctx.children()`. A name makes the batch's id one that is
        known: DuplicateJobError when there is such a batch.
        """
        return await send_batch(self._sending, calls, then, name)

    def get_batch(self, batch: str) -> BatchHandle:
        """A batch that was enqueued before, by its `id`."""
        return BatchHandle(self._sending, batch_ref(batch))

    def outbox(self, schema: str = OUTBOX_SCHEMA) -> "Outbox":
        """Where jobs wait in a database of your own when this app's store is elsewhere; a relay carries them.

        `schema` is that of the outbox in PostgreSQL; a SQLite database has one outbox.
        """
        from penstock.outbox.writing import Outbox

        return Outbox(
            self._sending,
            tenant=self.tenant,
            declared=self._declared,
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
            self._execution_middleware.append(execution)

    def _registering(self, queue: str, queue_defaults: JobOptions, queue_execution: Execution) -> Register:
        def register(
            function: Callable[..., Any], name: str | None, options: JobOptions, execution: Execution
        ) -> Task[..., ..., Any]:
            made: Task[..., ..., Any] = SyncTask(
                function,
                name=name or str(getattr(function, "__name__", "")),
                queue=queue,
                sender=self._sending,
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
    def store(self) -> Store:
        """The store; its driver is imported when it is first asked for."""
        if self._store is None:
            if self._is_storeless:
                raise ConfigError("this process executes handlers and has no store: enqueue from elsewhere")
            self._store = open_store(self.url or DEFAULT_URL, filters=self._filters)
        return self._store

    @property
    def is_open(self) -> bool:
        """True inside `async with app:`."""
        return self._sending.client is not None

    async def __aenter__(self) -> "Penstock":
        loop = asyncio.get_running_loop()
        self._check_stranded()
        left_open = self._forget_closed_loop()
        if self._opening is None:
            self._opening = asyncio.Lock()
            self._sending.loop = loop
        elif self._sending.loop is not loop:
            raise ConfigError("the app is open in another event loop: from other threads use app.blocking")
        self._users += 1
        try:
            async with self._opening:
                if left_open:
                    await self.store.close()
                if self._sending.client is None:
                    await self.store.open()
                    self._sending.client = self._client(self.store)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opening = self._opening
        if opening is None:
            return
        async with opening:
            self._users -= 1
            client = self._sending.client
            if self._users == 0 and client is not None:
                self._sending.client = None
                try:
                    await client.close()
                finally:
                    await self.store.close()
        if self._users == 0:
            self._opening = None

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._opening = None

    def _forget_closed_loop(self) -> bool:
        """Start afresh where the event loop of the open app is gone; True if the store is still to close."""
        before = self._sending.loop
        if self._opening is None or before is None or not before.is_closed():
            return False
        was_open = self._sending.client is not None
        self._users, self._opening, self._sending.client = 0, None, None
        # A store with connections in that loop lost them; one with threads of its own is its own twin.
        stale, self._store = self.store, self.store.twin()
        return was_open and stale is self._store

    def _after_fork(self) -> None:
        """In the child of a fork: what is open belongs to the parent."""
        was_blocking = self._blocking.after_fork()
        if self._opening is None and not was_blocking:
            return
        stale, self._store = self.store, self.store.twin()
        _LEFT_BEHIND.append((stale, self._sending.client, self._sending.loop))
        self._users, self._opening, self._sending.client = 0, None, None
        # SQLite keeps its locks per process: it would believe that the child holds those of the parent.
        self._stranded = stale if stale is self._store else None

    def _check_stranded(self) -> None:
        if self._stranded is not None and self._stranded is self._store:
            raise ConfigError(
                "the app was open before a fork, and its store cannot be shared with the parent process: "
                "fork first and open then, or start processes with the method `spawn`"
            )

    @property
    def blocking(self) -> Blocking:
        """`with app.blocking as queue: queue.enqueue(send, "ada")`, for code that cannot await.

        Works beside a running event loop, and blocks the thread that calls.
        """
        return self._blocking

    @asynccontextmanager
    async def _twin(self) -> AsyncIterator[Client]:
        self._check_stranded()
        store = self.store.twin()
        await store.open()
        client = self._client(store)
        try:
            yield client
        finally:
            await client.close()
            await store.close()

    def _client(self, store: Store) -> Client:
        return Client(
            store,
            tenant=self.tenant,
            declared=self._declared,
            middleware=self._enqueue_middleware,
            persistence=self._persistence,
            filters=self._filters,
        )

    @contextmanager
    def using(self, store: Store) -> Iterator[None]:
        """Another store for the time of the block; ConfigError while the app is open."""
        if self._opening is not None or self._blocking.is_open:
            raise ConfigError("the app is open: choose another store before it is opened")
        before, self._store = self._store, store
        try:
            yield
        finally:
            self._store = before

    # Working

    def worker(
        self,
        queues: Mapping[str, int] | Sequence[str] | None = None,
        *,
        concurrency: int | None = None,
        **options: Any,
    ) -> "WorkerPool":
        """Workers for these queues, all declared ones if none are named; `run()` opens the app.

        A mapping says how many jobs of a queue run at once; 0 is `concurrency`. Other options are those of
        `penstock.worker.worker.Worker`. UnknownQueueError for a queue that this app does not declare.
        """
        from penstock.app.pool import AppWorkers
        from penstock.scheduler.upkeep import Upkeep
        from penstock.worker.options import DEFAULT_CONCURRENCY, worker_name
        from penstock.worker.poller import CROWDED, QueuePoller
        from penstock.worker.registration import Registration
        from penstock.worker.renewer import LeaseRenewer
        from penstock.worker.worker import Worker

        slots = _slots(self.queues if queues is None else queues)
        if not slots:
            raise ConfigError("nothing to work on: the app declares no queue")
        for name in slots:
            if name not in self._queues:
                raise unknown_queue(name, self._queues)
        if concurrency is not None:
            options["concurrency"] = concurrency
        self.registry.freeze()
        host = self._host(options.get("executor"))
        upkeep, renewer = Upkeep(self.store), LeaseRenewer(self.store)
        registered = {name: number or concurrency or DEFAULT_CONCURRENCY for name, number in slots.items()}
        options["name"] = worker_name(options.get("name"))
        registration = Registration(
            self.store, self.tenant, options["name"], registered, self.registry.names()
        )
        workers: list[Any] = [
            Worker(
                self.store,
                self._queues[name].ref,
                self.registry,
                middleware=self._execution_middleware,
                host=host,
                upkeep=upkeep,
                registration=registration,
                renewer=renewer,
                **(_said(lease=self._queues[name].lease) | options | _said(concurrency=number or None)),
            )
            for name, number in slots.items()
        ]
        if len(workers) > CROWDED and not options.get("burst"):
            workers = [
                QueuePoller(
                    self.store, workers, upkeep=upkeep, registration=registration, renewer=renewer, host=host
                )
            ]
        first = partial(self._prepare, list(slots))
        restorer = self._restorer(list(slots))
        return AppWorkers(self, workers, first, restorer, host, declare=self._sending.upkeep)

    def _host(self, executor: object) -> "Host | None":
        """What makes processes for handlers, where any of them wants one."""
        default = None if executor is None else default_tier("executor", executor)
        known = [self.registry.require(name) for name in self.registry.names()]
        tasks = [task for task in known if task.execution.tier(default) is not Tier.INLINE]
        if not tasks:
            return None
        from penstock.app.place import place_of
        from penstock.worker.executors.process.host import Host

        return Host(place_of(self, tasks, self.reference))

    def forget_store(self) -> None:
        """Have neither store nor client from now on: in a process that only executes handlers."""
        self.url, self._store = None, None
        self._is_storeless = self._sending.is_storeless = True

    def scheduler(self, queues: Sequence[str] | None = None, **options: Any) -> "WorkerPool":
        """What keeps time and runs no job, for these queues or all that the tenant has; used as `worker`.

        Options are those of `penstock.scheduler.keeper.TimeKeeper`. Workers do the same for their own queues.
        """
        from penstock.app.pool import AppWorkers
        from penstock.scheduler.keeper import TimeKeeper

        keeper = TimeKeeper(self.store, self.tenant, queues, **options)
        return AppWorkers(self, [keeper], self._prepare, self._restorer(self.queues))

    async def _prepare(self, queues: Sequence[str] | None = None) -> "Prepared":
        from penstock.app.preparing import Prepared, prepared

        # A worker that understands its queues otherwise than they are stored must not start.
        names = [name for name in queues or self.queues if self._declared[name] is not None]
        waiting = await prepared({name: self._sending.prepare([name]) for name in names})
        try:
            await self.schedules.sync()
            await self.schedules.name_undeclared()
        except StoreUnavailableError as error:
            _LOGGER.warning("the schedules of the app cannot be put yet, retrying: %s", error)
            return Prepared(waiting, has_schedules=False)
        return Prepared(waiting)

    def _restorer(self, queues: Sequence[str]) -> "Restorer":
        from penstock.app.restoring import Restorer

        declared = [name for name in queues if self._declared[name] is not None]

        async def restore(lost: Sequence[QueueRef]) -> None:
            await self._sending.prepare([queue.name for queue in lost if queue.name in declared])
            await self.schedules.sync()

        def watched() -> list[QueueRef]:
            return [QueueRef(self.tenant, name) for name in sorted({*declared, *self.schedules.queues()})]

        return Restorer(self.store, watched, restore)

    def __repr__(self) -> str:
        return (
            f"<Penstock of {self.tenant!r}: {len(self._queues)} queues, {len(self.registry.names())} tasks>"
        )


def _said(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


_APPS: Final[WeakSet[Penstock]] = WeakSet()
_LEFT_BEHIND: Final[list[object]] = []
"""Of the parent process. Collecting it would close what the parent uses."""


def _after_fork() -> None:
    for app in list(_APPS):
        app._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _slots(queues: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    if isinstance(queues, str):
        return {queues: 0}
    return dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, 0)


def _elsewhere(**arguments: Any) -> Any:
    raise ConfigError("this task is handled by another program: it can be enqueued here, not called")


def _decode_result(encoded: bytes | None) -> Any:
    return None if encoded is None else decode_json("result", encoded)
