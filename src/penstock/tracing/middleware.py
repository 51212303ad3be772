"""Spans around every enqueue and every execution of an app, as its middleware."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.core.headers import HEADERS_BYTES, MOST_HEADERS, TRACEPARENT, TRACESTATE, trace_context
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refused
from penstock.tasks.context import JobContext
from penstock.tasks.middleware import EnqueueMiddleware, ExecutionMiddleware, SendNext
from penstock.tasks.signals import Signal

try:
    from opentelemetry import trace as opentelemetry_trace
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ConfigError(f"tracing needs the extra `otel`: {install_command('otel')}") from error

_CONTEXT: Final = TraceContextTextMapPropagator()
_NS: Final = 1_000_000
"""Nanoseconds of a millisecond."""


class Traced(Protocol):
    """An app."""

    def middleware(
        self, *, enqueue: EnqueueMiddleware | None = None, execution: ExecutionMiddleware | None = None
    ) -> None:
        """Wrap something around every enqueue, or around every execution."""
        ...


def trace(app: Traced, provider: TracerProvider | None = None) -> None:
    """Trace what the app enqueues and executes, by the provider or by the one that is set for the process.

    To be called once, before other middleware that opens spans of its own.
    """
    tracer = opentelemetry_trace.get_tracer("penstock", tracer_provider=provider)
    app.middleware(enqueue=_Enqueues(tracer), execution=_Executions(tracer))


class _Enqueues:
    """A span for each enqueue; its context becomes headers of the job."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def __call__(self, new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        attributes = {
            **_about(queue.tenant, queue.name, new.task),
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "messaging.message.id": new.id,
            "messaging.message.body.size": len(new.payload),
        }
        with self._tracer.start_as_current_span(
            f"enqueue {new.task}", _given_context(new), kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            _CONTEXT.inject(carrier)
            answer = await call_next(_with_headers(new, carrier))
            if isinstance(answer, Refused):
                span.set_status(Status(StatusCode.ERROR, f"refused: {answer.why}"))
            else:
                span.set_attribute("penstock.created", answer.created)
                if answer.id != new.id:
                    span.set_attribute("messaging.message.id", answer.id)
            return answer


class _Executions:
    """A span for the time that a job waited, and one for its execution, both below its enqueue."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def __call__(self, ctx: JobContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
        above = _CONTEXT.extract(trace_context(ctx.headers), Context())
        about = {
            **_about(ctx.tenant, ctx.queue, ctx.task),
            "messaging.message.id": ctx.id,
            "penstock.attempt": ctx.attempt,
            "penstock.delivery": ctx.delivery,
        }
        if ctx.delivery == 1:
            self._tell_wait(ctx, above, about)
        attributes = {
            **about,
            "messaging.operation.name": "execute",
            "messaging.operation.type": "process",
            "penstock.worker": ctx.worker,
            "penstock.fence": ctx.fence,
        }
        with self._tracer.start_as_current_span(
            f"execute {ctx.task}",
            above,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            _CONTEXT.inject(carrier)
            ctx.continue_trace(carrier)
            try:
                return await call_next()
            except Signal as signal:
                # A handler that retries, snoozes or gives up says so by raising: that alone is no error.
                span.set_attribute("penstock.signal", type(signal).__name__.lower())
                raise
            except BaseException as error:
                # Without the message: what a handler raises may have its arguments in it.
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
                raise

    def _tell_wait(self, ctx: JobContext, above: Context, about: dict[str, str | int]) -> None:
        """From the enqueue, by the store's clock, until now."""
        began_ms = round(ctx.enqueued_at.timestamp() * 1000)
        span = self._tracer.start_span(f"wait {ctx.task}", above, attributes=about, start_time=began_ms * _NS)
        # The clock of this process may be behind.
        span.end(max(began_ms * _NS, time.time_ns()))


def _given_context(new: NewJob) -> Context | None:
    """The context that the caller gave the job itself; None stands for the one that is current."""
    given = trace_context(new.headers)
    return _CONTEXT.extract(given, Context()) if given else None


def _with_headers(new: NewJob, carrier: dict[str, str]) -> NewJob:
    """The job with the context of its enqueue, where there is room beside its other headers."""
    own = {
        name: value for name, value in (new.headers or {}).items() if name not in (TRACEPARENT, TRACESTATE)
    }
    for names in ((TRACEPARENT, TRACESTATE), (TRACEPARENT,)):
        headers = own | {name: carrier[name] for name in names if name in carrier}
        size = sum(len(name) + len(value.encode()) for name, value in headers.items())
        if len(headers) <= MOST_HEADERS and size <= HEADERS_BYTES:
            return replace(new, headers=headers or None)
    return new


def _about(tenant: str, queue: str, task: str) -> dict[str, str | int]:
    return {
        "messaging.system": "penstock",
        "messaging.destination.name": queue,
        "penstock.tenant": tenant,
        "penstock.task": task,
    }
