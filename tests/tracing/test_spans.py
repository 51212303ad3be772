"""What spans say of jobs that fail, steer themselves, or are refused."""

import pytest
from opentelemetry.trace import StatusCode

from penstock import Penstock
from penstock.core.errors import OptionError
from penstock.core.headers import HEADERS_BYTES
from penstock.stores.memory import MemoryStore
from penstock.tasks.signals import Snooze
from penstock.tracing import trace
from tests.tracing.test_every_store import PARENT, TRACE, Exported


def app_with(exported: Exported) -> Penstock:
    """A traced app."""
    app = Penstock(store=MemoryStore())
    trace(app, exported.provider)
    return app


async def test_an_error_is_one_and_a_signal_is_none() -> None:
    exported = Exported()
    app = app_with(exported)

    @app.task(max_attempts=1)
    def broken() -> None:
        raise ValueError("with a secret in it")

    @app.task
    async def later() -> None:
        raise Snooze(3600)

    async with app:
        await broken.enqueue()
        await later.enqueue()
        await app.worker(burst=True).run()

    assert exported["execute broken"].status.status_code is StatusCode.ERROR
    assert (exported["execute broken"].attributes or {})["error.type"] == "ValueError"
    assert exported["execute later"].status.status_code is StatusCode.UNSET
    assert "secret" not in "".join(span.to_json() for span in exported.all)


async def test_every_job_of_a_flow_and_of_many_at_once_has_a_context_of_its_own() -> None:
    exported = Exported()
    app = app_with(exported)

    @app.task
    async def part() -> None: ...

    async with app:
        flow = app.flow()
        first = flow.add(part.call())
        flow.add(part.call(), after=[first])
        await flow.enqueue()
        await part.enqueue_many([(), ()])
        await app.worker(burst=True).run()

    enqueued = {span.context.span_id for span in exported.all if span.name == "enqueue part" and span.context}
    executed = {span.parent.span_id for span in exported.all if span.name == "execute part" and span.parent}
    assert (len(enqueued), executed) == (4, enqueued)


async def test_the_context_that_a_caller_gives_is_carried_on() -> None:
    exported = Exported()
    app = app_with(exported)

    @app.task
    async def some() -> None: ...

    async with app:
        await some.options(headers={"traceparent": PARENT}).enqueue()

    assert exported.traces == {TRACE}
    assert f"{exported.above('enqueue some'):016x}" == PARENT.split("-")[2]


async def test_a_job_whose_headers_leave_no_room_is_enqueued_without_a_context() -> None:
    exported = Exported()
    app = app_with(exported)

    @app.task
    async def some() -> None: ...

    full = {"n": "x" * (HEADERS_BYTES - 1)}
    async with app:
        sent = await some.options(headers=full).enqueue()
        job = await app.client.job("default", sent.id)

    assert job.headers == full


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("text", "mapping"),
        ({f"n{n}": "" for n in range(33)}, "33 headers"),
        ({"n": "x" * HEADERS_BYTES}, "4097 bytes"),
        ({"a b": "1"}, "headers name"),
        ({"n": 1}, "headers.n"),
        ({"n": "line\nline"}, "headers.n"),
        ({"n": "nul\0"}, "headers.n"),
        ({"n": "\ud800"}, "headers.n"),
    ],
)
async def test_headers_that_cannot_be_are_refused_by_name(headers: object, said: str) -> None:
    app = Penstock(store=MemoryStore())

    @app.task
    async def some() -> None: ...

    with pytest.raises(OptionError, match=said):
        some.options(headers=headers)  # type: ignore[arg-type]
