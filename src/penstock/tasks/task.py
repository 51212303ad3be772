"""A task: a function that can be called here, or enqueued to be called by a worker."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from penstock.core.errors import ConfigError, PayloadError, PenstockError
from penstock.core.names import check_name
from penstock.core.payload import PAYLOAD_LIMIT, without_value
from penstock.tasks.call import AnyCall, Call, FlowSender
from penstock.tasks.context import JobContext
from penstock.tasks.execution import Execution
from penstock.tasks.handle import JobHandle
from penstock.tasks.options import CallOptions, JobOptions
from penstock.tasks.sending import OnError, all_of, outcomes
from penstock.tasks.signature import Bound, Signature
from penstock.tasks.transactions import AsyncTransaction

C = ParamSpec("C")
P = ParamSpec("P")
R = TypeVar("R")
_NO_NAMES: Final[Mapping[str, Any]] = {}
_ENQUEUE: Final = "await {0}.enqueue(…), or with app.blocking as queue: queue.enqueue({0}, …)"
_OPTIONS: Final = (
    "await {0}.options(delay=60).enqueue(…), or blocking: queue.enqueue({0}.options(delay=60), …)"
)
_CALL: Final = "{0}.call(…) is a call for chains, groups and flows"
_ELSEWHERE: Final = {
    "delay": _ENQUEUE,
    "send": _ENQUEUE,
    "defer": _ENQUEUE,
    "apply_async": _OPTIONS,
    "send_with_options": _OPTIONS,
    "s": _CALL,
    "si": _CALL,
    "signature": _CALL,
}
"""What other job queues call it, and what it is here."""


class Task(Generic[C, P, R]):
    """A registered function. C is its own signature, P that of `enqueue`: the same without the context.

    `defaults` are the options of its jobs, `execution` says how they run, those of its queue included.
    """

    def __init__(
        self,
        function: Callable[C, Any],
        *,
        name: str,
        queue: str,
        sender: FlowSender,
        defaults: JobOptions | None = None,
        payload_limit: int = PAYLOAD_LIMIT,
        execution: Execution | None = None,
    ) -> None:
        self.name = check_name("task", name)
        self.queue = check_name("queue", queue)
        self.function = function
        self.sender = sender
        self.defaults = defaults or JobOptions()
        self.execution = (execution or Execution()).checked(self.defaults.policy.timeout_ms)
        self.is_async = _is_async(function)
        self.payload_limit = payload_limit
        self._signature: Signature | None = None
        functools.update_wrapper(self, function, updated=())
        try:
            self._signature = Signature(function, payload_limit)
        except NameError:
            # A type that the module defines further down: looked at again before the first use.
            return

    def __call__(self, /, *args: C.args, **kwargs: C.kwargs) -> Any:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue one call; when this returns, the job is in the store."""
        return await self.sender.send(self.call(*args, **kwargs))

    async def enqueue_in(
        self, connection: AsyncTransaction, /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """Enqueue one call as part of the transaction that a connection or session is in.

        The job is there, and a worker is woken, once that commits; rolled back, it never was. For a store on
        PostgreSQL and connections to the same database: TransactionError for any other.
        """
        return await self.sender.send_in(connection, self.call(*args, **kwargs))

    async def enqueue_many_in(
        self, connection: AsyncTransaction, calls: Iterable[AnyCall[R]]
    ) -> list[JobHandle[R]]:
        """Enqueue many calls, given as to `enqueue_many`, as part of such a transaction.

        If the store refuses some, BatchRefusedError tells which: the others are part of the transaction.
        """
        return all_of(await self.sender.send_many_in(connection, self.calls(calls)))

    @overload
    async def enqueue_many(
        self,
        calls: Iterable[AnyCall[R]],
        *,
        on_error: Literal["raise"] = ...,
    ) -> list[JobHandle[R]]: ...

    @overload
    async def enqueue_many(
        self, calls: Iterable[AnyCall[R]], *, on_error: Literal["return"]
    ) -> list[JobHandle[R] | PenstockError]: ...

    @overload
    async def enqueue_many(
        self, calls: Iterable[AnyCall[R]], *, on_error: OnError
    ) -> list[JobHandle[R]] | list[JobHandle[R] | PenstockError]: ...

    async def enqueue_many(
        self,
        calls: Iterable[AnyCall[R]],
        *,
        on_error: OnError = "raise",
    ) -> list[JobHandle[R]] | list[JobHandle[R] | PenstockError]:
        """Enqueue many calls in few round trips: tuples of arguments, dicts of them, or `task.call(...)`.

        Every call is checked before the first is sent. If the store refuses some, BatchRefusedError tells
        which; with `on_error="return"` the errors stand in the list, each in the place of its job.
        """
        return outcomes(await self.sender.send_many(self.calls(calls)), on_error)

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """The same task with other options: `send.options(delay=60).enqueue(...)`.

        They win over those of the task and its queue, and over those of `options` before.
        """
        other = copy(self)
        other.defaults = JobOptions.of(options).over(self.defaults)
        return other

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call for `enqueue_many`, flows and batches, checked like that of `enqueue`."""
        return self._maker()(self._checked().encode(args, kwargs))

    def calls(self, calls: Iterable[AnyCall[R]]) -> list[Call[R]]:
        """Calls out of tuples and dicts; PayloadError names the first that cannot be one."""
        encode, make = self._checked().encode, self._maker()
        made: list[Call[R]] = []
        for each in calls:
            if isinstance(each, tuple):
                args, names = each, _NO_NAMES
            elif isinstance(each, Call):
                made.append(each)
                continue
            elif isinstance(each, Mapping):
                args, names = (), each
            else:
                raise PayloadError(f"calls[{len(made)}]", each, "a tuple, a dict, or task.call(...)")
            try:
                made.append(make(encode(args, names)))
            except PayloadError as error:
                where = f"calls[{len(made)}].{error.field}"
                raise PayloadError(where, error.found, error.wanted) from None
        return made

    def handle(self, job: str) -> JobHandle[R]:
        """A handle on a job of this task that was enqueued before."""
        return JobHandle(self.sender, self.queue, check_name("id", job), self.decode_result)

    def _maker(self) -> Callable[[bytes], Call[R]]:
        """Makes calls of payloads; what many calls share is looked up once."""
        name, queue, sender, decode = self.name, self.queue, self.sender, self.decode_result
        options = self.defaults.checked()

        def make(payload: bytes) -> Call[R]:
            return Call(
                task=name, queue=queue, payload=payload, options=options, decode=decode, sender=sender
            )

        return make

    def encode_call(self, /, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """The payload of a call; PayloadError names the argument that cannot be."""
        return self._checked().encode(args, kwargs)

    def encode_some(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Some of a call's arguments, by name, as they stand in its payload."""
        return self._checked().partial(args, kwargs)

    def bind(self, payload: bytes, ctx: JobContext) -> Bound:
        """The arguments for the function, checked, with the context where it wants one.

        PayloadError names the argument and the type of what was found: workers keep it and log it.
        """
        try:
            return self._checked().bind(payload, ctx)
        except PayloadError as error:
            raise without_value(error) from None

    def encode_result(self, value: Any) -> bytes | None:
        """The result as JSON; PayloadError if it has no such form or is not what the function declares.

        The error has no value in it, as that of `bind`.
        """
        try:
            return self._checked().encode_result(value)
        except PayloadError as error:
            raise without_value(error) from None

    def decode_result(self, encoded: bytes | None) -> R:
        """A stored result, as the function declares it."""
        result: R = self._checked().decode_result(encoded)
        return result

    def check(self) -> None:
        """ConfigError when a type in the function's signature cannot be resolved."""
        self._checked()

    def _checked(self) -> Signature:
        if self._signature is None:
            try:
                self._signature = Signature(self.function, self.payload_limit)
            except NameError as error:
                raise ConfigError(
                    f"task {self.name!r}: a type of its signature is unknown: {error}"
                ) from None
        return self._signature

    if not TYPE_CHECKING:  # type checkers know what a task has

        def __getattr__(self, name: str) -> Any:
            if name in _ELSEWHERE:
                raise AttributeError(
                    f"a task has no {name}: {_ELSEWHERE[name].format(self.__name__)}", name=name
                )
            raise AttributeError(f"a task has no {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Task {self.name} in {self.queue}>"


class AsyncTask(Task[C, P, R]):
    """A task of a coroutine function."""

    def __call__(self, /, *args: C.args, **kwargs: C.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function here and now."""
        called: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return called


class SyncTask(Task[C, P, R]):
    """A task of a plain function."""

    def __call__(self, /, *args: C.args, **kwargs: C.kwargs) -> R:
        """Call the function here and now."""
        result: R = self.function(*args, **kwargs)
        return result


def _is_async(function: Callable[..., Any]) -> bool:
    call = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise ConfigError(f"{function!r} cannot be a task: it is a generator")
    return inspect.iscoroutinefunction(call)
