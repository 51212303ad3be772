"""The blocking face: for views, scripts and notebooks, over one event loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, overload

from penstock.client.caller_transaction import run_without_waiting, single_handle
from penstock.client.client import Client
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.job import Job
from penstock.core.states import State
from penstock.tasks.batch import send_batch
from penstock.tasks.call import AnyCall, Call
from penstock.tasks.flow import Flow
from penstock.tasks.flow_handle import FlowHandle
from penstock.tasks.handle import JobHandle
from penstock.tasks.sending import OnError, all_of, outcomes
from penstock.tasks.transactions import Transaction

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Opener = Callable[[], AbstractAsyncContextManager[Client]]

_LEFT_BEHIND: Final[list["_LoopThread"]] = []
"""Of the parent process. Collecting one would close its loop, and with it what the parent waits on."""


class Sendable(Protocol[P, R]):
    """A task, or one with options."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...

    def calls(self, calls: Iterable[AnyCall[R]]) -> list[Call[R]]: ...


class BlockingQueue:
    """What a producer needs, each call returning when it is done. From any number of threads."""

    def __init__(self, thread: "_LoopThread", check_loop: Callable[[], None]) -> None:
        self._thread = thread
        self._check_loop = check_loop

    def enqueue(self, task: Sendable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue one call; when this returns, the job is in the store."""
        call = _checked(task).call(*args, **kwargs)
        return self._thread.call(lambda client: client.send(call))

    def enqueue_in(
        self, connection: Transaction, task: Sendable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """Enqueue one call as part of the transaction a connection or session is in; as `task.enqueue_in`.

        The connection is used in the thread that calls.
        """
        call = _checked(task).call(*args, **kwargs)
        return single_handle(self._enqueue_in(connection, [call]))

    def enqueue_many_in(
        self, connection: Transaction, task: Sendable[..., R], calls: Iterable[AnyCall[R]]
    ) -> list[JobHandle[R]]:
        """Enqueue many calls as part of such a transaction; as `task.enqueue_many_in`."""
        sendable = _checked(task).calls(calls)
        return all_of(self._enqueue_in(connection, sendable))

    def _enqueue_in(
        self, connection: Transaction, calls: Sequence[Call[R]]
    ) -> list[JobHandle[R] | PenstockError]:
        entries = self._thread.call(lambda client: client.entries(calls))
        return run_without_waiting(entries.enqueue(connection, blocking=True))

    @overload
    def enqueue_many(
        self, task: Sendable[..., R], calls: Iterable[AnyCall[R]], *, on_error: Literal["raise"] = ...
    ) -> list[JobHandle[R]]: ...

    @overload
    def enqueue_many(
        self, task: Sendable[..., R], calls: Iterable[AnyCall[R]], *, on_error: Literal["return"]
    ) -> list[JobHandle[R] | PenstockError]: ...

    def enqueue_many(
        self, task: Sendable[..., R], calls: Iterable[AnyCall[R]], *, on_error: OnError = "raise"
    ) -> list[JobHandle[R]] | list[JobHandle[R] | PenstockError]:
        """Enqueue many calls in few round trips; as `task.enqueue_many`."""
        sendable = _checked(task).calls(calls)
        return outcomes(self._thread.call(lambda client: client.send_many(sendable)), on_error)

    def enqueue_flow(self, flow: Flow) -> FlowHandle:
        """Enqueue all of a flow in one operation; `handle[node]` is what this face is asked about."""
        flow.check()
        return self._thread.call(lambda client: client.send_flow(flow))

    def batch(
        self, calls: Iterable[Call[Any]], *, then: Call[Any] | None = None, name: str | None = None
    ) -> str:
        """Enqueue many jobs and one after all of them; as `app.batch`. The batch's id."""
        wanted = list(calls)
        return self._thread.call(lambda client: send_batch(client, wanted, then, name)).id

    def result(self, handle: JobHandle[R], timeout: float | None = None) -> R:
        """What the handler returned, once it has; as `handle.result`.

        ConfigError in the event loop that the app is open in: a worker there could never get to the job.
        """
        self._check_loop()
        return self._thread.call(lambda client: _through(handle, client).result(timeout))

    def info(self, handle: JobHandle[Any]) -> Job:
        """The whole record."""
        return self._thread.call(lambda client: _through(handle, client).info())

    def status(self, handle: JobHandle[Any]) -> State:
        """The state now."""
        return self._thread.call(lambda client: _through(handle, client).status())

    def progress(self, handle: JobHandle[Any]) -> Any:
        """The newest progress the handler told of."""
        return self._thread.call(lambda client: _through(handle, client).progress())

    def cancel(self, handle: JobHandle[Any]) -> State:
        """Take the job back, or ask it to stop; as `handle.cancel`."""
        return self._thread.call(lambda client: _through(handle, client).cancel())


class Blocking:
    """Holds the thread while at least one `with` block uses it. Entering costs a connection the first time:
    a program that enqueues often keeps one block open around the others.
    """

    def __init__(self, opener: Opener, check_loop: Callable[[], None]) -> None:
        self._opener = opener
        self._check_loop = check_loop
        self._lock = threading.Lock()
        self._users = 0
        self._thread: _LoopThread | None = None

    if not TYPE_CHECKING:  # type checkers know what it has

        def __getattr__(self, name: str) -> Any:
            if hasattr(BlockingQueue, name):
                use = f"with app.blocking as queue: queue.{name}(…)"
                raise AttributeError(f"app.blocking has to be entered first: {use}", name=name)
            raise AttributeError(f"app.blocking has no {name!r}", name=name, obj=self)

    @property
    def is_open(self) -> bool:
        """True inside a `with` block."""
        return self._thread is not None

    def after_fork(self) -> bool:
        """In the child of a fork: forget the thread, which is the parent's; True if it was in use there."""
        was_open = self._thread is not None or self._lock.locked()
        if self._thread is not None:
            _LEFT_BEHIND.append(self._thread)
        self._lock = threading.Lock()
        self._users = 0
        self._thread = None
        return was_open

    def __enter__(self) -> BlockingQueue:
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread(self._opener)
            self._users += 1
            return BlockingQueue(self._thread, self._check_loop)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            # A block that was entered before a fork is left in the child, too.
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._thread is not None:
                thread, self._thread = self._thread, None
                thread.close()


class _LoopThread:
    """An event loop with an open client, in a thread."""

    def __init__(self, opener: Opener) -> None:
        self._loop = asyncio.new_event_loop()
        self._opened = opener()
        self._process = os.getpid()
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-blocking", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(self._opened.__aenter__())
        except BaseException:
            self._end()
            raise

    def call(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """The answer of some work with the client."""
        if threading.current_thread() is self._thread:
            raise ConfigError("app.blocking was called inside its own event loop: await there instead")
        if self._process != os.getpid():
            raise ConfigError("app.blocking was opened before a fork: open it again in this process")
        client = self._client
        if client is None:
            raise ConfigError("app.blocking is closed: call inside `with app.blocking as queue:`")
        return self._run(work(client))

    def close(self) -> None:
        """Close the client, then the thread."""
        self._client = None
        try:
            self._run(_exited(self._opened))
        finally:
            self._end()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Interrupted while waiting: nobody is interested in the answer any more.
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _checked(task: Sendable[P, R]) -> Sendable[P, R]:
    if not hasattr(task, "call"):
        hint = f"app.task_named({task!r})" if isinstance(task, str) else "a function under @app.task"
        raise ConfigError(f"{task!r} is no task: pass the task itself, such as {hint}")
    return task


def _through(handle: JobHandle[R], client: Client) -> JobHandle[R]:
    if not isinstance(handle, JobHandle):
        raise ConfigError(f"{handle!r} is no handle of a job: app.job(queue, id) makes one of an id")
    return handle.through(client)


async def _exited(opened: AbstractAsyncContextManager[Any]) -> None:
    await opened.__aexit__(None, None, None)
