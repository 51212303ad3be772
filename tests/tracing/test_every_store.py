"""A trace from an enqueue, through the HTTP service, to a worker and its child jobs, on every store."""

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from penstock import Penstock
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.tasks.context import JobContext
from penstock.testing.conformance.parts import PARTS
from penstock.tracing import trace
from tests.conformance.having import having
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Exported:
    """Spans as they are exported, by their names."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def __getitem__(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found

    def above(self, name: str) -> int | None:
        """The id of the span that this one is below."""
        parent = self[name].parent
        return None if parent is None else parent.span_id

    def id(self, name: str) -> int:
        """The id of a span."""
        context = self[name].context
        assert context is not None
        return int(context.span_id)

    @property
    def traces(self) -> set[str]:
        """The traces there are."""
        return {f"{span.context.trace_id:032x}" for span in self.all if span.context is not None}


def traced_app(store: Store, tenant: str) -> tuple[Penstock, Exported]:
    """An app whose task `outer` spawns `inner`, traced."""
    exported = Exported()
    app = Penstock(store=store, tenant=tenant)
    trace(app, exported.provider)

    @app.queue("q").task
    async def inner() -> None: ...

    @app.queue("q").task
    async def outer(ctx: JobContext) -> None:
        await ctx.spawn(inner.options(headers={"customer": "ada"}).call())

    return app, exported


@having(*PARTS)
async def test_a_trace_goes_on_from_an_enqueue_to_a_worker_and_its_child_job(
    store: Store, queue: QueueRef
) -> None:
    app, exported = traced_app(store.clone(), queue.tenant)
    async with app:
        sent = await app.task_named("outer").options(headers={"order": "7"}).enqueue()
        await app.worker(["q"], burst=True).run()
        headers = (await app.client.job("q", sent.id)).headers or {}

    assert len(exported.traces) == 1
    assert headers.keys() == {"order", "traceparent"}
    assert exported.above("enqueue outer") is None
    assert exported.above("wait outer") == exported.above("execute outer") == exported.id("enqueue outer")
    assert exported.above("wait inner") == exported.above("execute inner") == exported.id("execute outer")
    assert exported["enqueue outer"].kind is SpanKind.PRODUCER
    assert exported["execute inner"].kind is SpanKind.CONSUMER
    assert (
        dict(exported["execute inner"].attributes or {}).items()
        >= {
            "messaging.system": "penstock",
            "messaging.destination.name": "q",
            "penstock.tenant": queue.tenant,
            "penstock.attempt": 1,
        }.items()
    )


@having(*PARTS)
async def test_a_trace_crosses_the_http_service(store: Store, queue: QueueRef) -> None:
    doorman = HeaderAuthenticator(acme=GrantedPrincipal(tenant=queue.tenant))
    async with asked(store.clone(), authenticator=doorman) as client:
        made = await client.post(
            "/v1/queues/q/jobs", json={"task": "outer"}, headers={"traceparent": PARENT, "tracestate": "a=1"}
        )
        shown = (await client.get(f"/v1/queues/q/jobs/{made.json()['id']}")).json()
        app, exported = traced_app(store.clone(), queue.tenant)
        async with app:
            await app.worker(["q"], burst=True).run()

    assert shown["headers"] == {"traceparent": PARENT, "tracestate": "a=1"}
    assert exported.traces == {TRACE}
    assert f"{exported.above('execute outer'):016x}" == PARENT.split("-")[2]
    assert exported.above("execute inner") == exported.id("execute outer")


@having(*PARTS)
async def test_children_inherit_the_trace_and_no_other_header(store: Store, queue: QueueRef) -> None:
    """Also where the worker itself is not traced."""
    app = Penstock(store=store.clone(), tenant=queue.tenant)
    seen: dict[str, dict[str, str]] = {}

    @app.queue("q").task
    async def inner(ctx: JobContext) -> None:
        seen["inner"] = ctx.headers

    @app.queue("q").task
    async def outer(ctx: JobContext) -> None:
        seen["outer"] = ctx.headers
        await ctx.spawn(inner.call())

    async with app:
        await outer.options(headers={"traceparent": PARENT, "customer": "ada"}).enqueue()
        await app.worker(["q"], burst=True).run()

    assert seen["outer"] == {"traceparent": PARENT, "customer": "ada"}
    assert seen["inner"] == {"traceparent": PARENT}


@pytest.mark.parametrize(
    "given", ["", "00-short-01", PARENT.upper(), PARENT + "-more", "\x00", "00-" + "0" * 60]
)
async def test_a_request_without_a_good_context_makes_a_job_without_one(given: str) -> None:
    async with asked() as client:
        body = {"task": "t", "headers": {"own": "1"}}
        headers = {"traceparent": given.encode("latin-1").replace(b"\x00", b"?")}
        made = await client.post("/v1/queues/q/jobs", json=body, headers=headers)  # type: ignore[arg-type]
        shown = (await client.get(f"/v1/queues/q/jobs/{made.json()['id']}")).json()

    assert (made.status_code, shown["headers"]) == (201, {"own": "1"})
