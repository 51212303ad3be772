"""Events over HTTP: by cursor, and as a stream that goes on where it broke off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.service import request
from penstock.service.app import Service
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.authenticator import authenticator_of
from penstock.stores.memory import MemoryStore
from tests.kit.waiting import until
from tests.service.kit import HeaderAuthenticator, asked, client_of

EVENTS = "/v1/queues/mail/events"


async def test_events_are_read_on_from_the_cursor_of_the_page_before() -> None:
    async with asked() as client:
        await client.post("/v1/jobs", json={"jobs": [{"queue": "mail", "task": "t"}] * 5})
        first = (await client.get(f"{EVENTS}?limit=3")).json()
        rest = (await client.get(f"{EVENTS}?after={first['next']}")).json()
        end = (await client.get(f"{EVENTS}?after={rest['next']}")).json()

    assert [event["seq"] for event in first["events"] + rest["events"]] == [1, 2, 3, 4, 5]
    assert first["events"][0]["move"] == "enqueue"
    assert first["events"][0]["at"].endswith("Z")
    assert end == {"events": [], "next": rest["next"]}


@pytest.mark.parametrize("after", ["x", "-1", "1-2-3-4", "9" * 40])
async def test_a_cursor_that_is_none_is_refused(after: str) -> None:
    async with asked() as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        answer = await client.get(f"{EVENTS}?after={after}")

    assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (400, "after")


async def test_a_cursor_whose_events_were_trimmed_is_gone() -> None:
    store = MemoryStore()
    async with asked(store) as client:
        await client.post("/v1/jobs", json={"jobs": [{"queue": "mail", "task": "t"}] * 5})
        (info,) = await store.queues.list_queues("acme")
        await store.events.trim(info.queue, through=3)
        answer = await client.get(f"{EVENTS}?after=1")
        stream = await client.get(f"{EVENTS}/stream?after=1")

    assert (answer.status_code, answer.json()["type"]) == (410, "urn:penstock:cursor-lost")
    assert stream.status_code == 410


async def test_a_long_poll_for_events_brings_what_comes() -> None:
    async with asked() as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        waiting = asyncio.create_task(client.get(f"{EVENTS}?after=1&wait=60"))
        await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        answer = await waiting

    assert [event["seq"] for event in answer.json()["events"]] == [2]


@asynccontextmanager
async def streaming(
    service: Service, path: str, *, method: str = "GET", body: bytes = b"", **headers: str
) -> AsyncIterator[Any]:
    """The pieces of a stream as they come; leaving the block hangs up."""
    pieces: asyncio.Queue[Any] = asyncio.Queue()
    gone = asyncio.Event()
    sent = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in sent:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()],
    }
    serving = asyncio.create_task(service(scope, receive, pieces.put))
    try:
        yield pieces
    finally:
        gone.set()
        await serving


async def _next(pieces: Any) -> list[dict[str, Any]]:
    """The events of the next piece that has some."""
    while True:
        lines = (await pieces.get()).get("body", b"").split(b"\n")
        found = [msgspec.json.decode(line[6:]) for line in lines if line.startswith(b"data: ")]
        if found:
            return found


async def test_a_stream_goes_on_after_the_last_event_that_was_seen() -> None:
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator())
    async with service, client_of(service) as client:
        await client.post("/v1/jobs", json={"jobs": [{"queue": "mail", "task": "t"}] * 2})
        async with streaming(service, f"{EVENTS}/stream?after=0") as pieces:
            seen = await _next(pieces)
            await client.post("/v1/queues/mail/jobs", json={"task": "t"})
            seen += await _next(pieces)
        await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        async with streaming(service, f"{EVENTS}/stream", last_event_id=seen[-1]["cursor"]) as pieces:
            seen += await _next(pieces)

        assert [event["seq"] for event in seen] == [1, 2, 3, 4]
        assert service.waiting == set()


async def test_a_stream_from_now_brings_nothing_of_before_and_ends_with_the_service() -> None:
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator())
    async with service, client_of(service) as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        async with streaming(service, f"{EVENTS}/stream") as pieces:
            await pieces.get()  # the head
            await pieces.get()  # it listens
            await client.post("/v1/queues/mail/jobs", json={"task": "t"})
            seen = await _next(pieces)
            service.stop()
            last = await pieces.get()

    assert [event["seq"] for event in seen] == [2]
    assert last == {"type": "http.response.body", "body": b""}


async def test_a_token_that_was_revoked_ends_its_stream_and_its_long_polls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "RECHECK", 0.01)
    store = MemoryStore()
    tokens = ApiTokens(store)
    service = Service(store, authenticator=authenticator_of(None, tokens))
    async with service, client_of(service) as client:
        text, token = await tokens.make(tenants=["acme"], subject="ada", scopes=["*"])
        shown = {"authorization": f"Bearer {text}"}
        made = await client.post("/v1/queues/mail/jobs", json={"task": "t"}, headers=shown)
        polls = [
            client.get(f"{EVENTS}?after=1&wait=60", headers=shown),
            client.get(f"/v1/queues/mail/jobs/{made.json()['id']}/result?wait=60", headers=shown),
            client.post("/v1/queues/other/claims", json={"worker": "w", "wait": 60}, headers=shown),
        ]
        waiting = [asyncio.create_task(each) for each in polls]
        async with streaming(service, f"{EVENTS}/stream", authorization=shown["authorization"]) as pieces:
            await until(lambda: len(service.waiting) == 4)
            await tokens.revoke(token.id)
            await until(lambda: not service.waiting)
            ended = [pieces.get_nowait() for _ in range(pieces.qsize())]
        answers = await asyncio.gather(*waiting)

    assert [each.status_code for each in answers] == [200, 202, 200]
    assert ended[0]["status"] == 200
