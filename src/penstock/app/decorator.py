"""The decorator that makes tasks, and what type checkers know of it."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from penstock.core.errors import ConfigError
from penstock.tasks.context import JobContext
from penstock.tasks.execution import Execution, TaskOptions, job_options
from penstock.tasks.options import JobOptions
from penstock.tasks.task import AsyncTask, SyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")

Register = Callable[[Callable[..., Any], str | None, JobOptions, Execution], Task[..., ..., Any]]


class Decorator(Protocol):
    """Makes a function a task. A JobContext as the first parameter is left out of `enqueue`'s signature.

    At run time it may stand anywhere; type checkers can leave it out only there.
    """

    # A coroutine function is also a plain one and a context also an argument: the first that fits is meant.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[Concatenate[JobContext, P], P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> SyncTask[Concatenate[JobContext, P], P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, P, R]: ...


class TaskDecorator:
    """`@queue.task`, or with a name and defaults for its jobs: `@queue.task(timeout=30)`."""

    def __init__(self, register: Register) -> None:
        self._register = register

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[Concatenate[JobContext, P], P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> SyncTask[Concatenate[JobContext, P], P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, P, R]: ...

    @overload
    def __call__(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> Decorator: ...

    def __call__(self, function: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        defaults = JobOptions.of(job_options(options), TaskOptions.__annotations__)
        execution = Execution.of(options)

        def decorate(function: Callable[..., Any]) -> Task[..., ..., Any]:
            if not callable(function):
                raise ConfigError(f"{function!r} cannot be a task: it is not a function")
            return self._register(function, name, defaults, execution)

        return decorate if function is None else decorate(function)
