"""Claims over HTTP: leases, heartbeats, progress, and every way to settle."""

import asyncio
from typing import Any

import httpx
import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.service.app import Service
from penstock.stores.memory import MemoryStore
from tests.kit.intercepted import InterceptedStore
from tests.service.kit import HeaderAuthenticator, asked, client_of

CLAIMS = "/v1/queues/mail/claims"


async def claimed(client: httpx.AsyncClient, many: int = 1, **more: Any) -> list[dict[str, Any]]:
    """So many new jobs, claimed."""
    items = [{"queue": "mail", "task": "send", "payload": {"n": n}, **more} for n in range(many)]
    await client.post("/v1/jobs", json={"jobs": items})
    answer = await client.post(CLAIMS, json={"worker": "w", "limit": many})
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


def lease(job: dict[str, Any]) -> dict[str, str]:
    """What names a delivery."""
    return {"id": job["id"], "token": job["token"]}


async def settled(client: httpx.AsyncClient, *items: dict[str, Any]) -> list[dict[str, Any]]:
    """What became of each settlement."""
    answer = await client.post(f"{CLAIMS}/settle", json={"settlements": items})
    assert answer.status_code == 200, answer.text
    outcomes: list[dict[str, Any]] = answer.json()["outcomes"]
    return outcomes


async def test_a_claim_brings_jobs_with_all_that_a_worker_needs() -> None:
    async with asked() as client:
        (job,) = await claimed(client, max_attempts=3, timeout=12)

    assert (job["task"], job["payload"], job["attempt"], job["max_attempts"]) == ("send", {"n": 0}, 1, 3)
    assert (job["timeout"], len(job["token"])) == (12.0, 32)
    assert "tenant" not in job


async def test_every_way_to_settle_leads_to_its_state() -> None:
    ways: list[dict[str, Any]] = [
        {"how": "complete", "result": [1]},
        {"how": "fail", "error": "no such address"},
        {"how": "retry", "error": "Timeout"},
        {"how": "retry", "error": "Timeout", "delay": 3600},
        {"how": "snooze", "delay": 60},
        {"how": "release"},
    ]
    async with asked() as client:
        jobs = await claimed(client, len(ways), backoff=[5])
        items = [lease(job) | way for job, way in zip(jobs, ways, strict=True)]
        first, again = await settled(client, *items), await settled(client, *items)

    assert [each["state"] for each in first] == [
        *("completed", "failed", "delayed", "delayed", "delayed", "pending")
    ]
    assert first == again


async def test_the_last_attempt_makes_a_dead_letter_and_a_repeat_gets_the_same_answer() -> None:
    async with asked() as client:
        (job,) = await claimed(client, max_attempts=1)
        fields = lease(job) | {"how": "retry", "error": "Timeout: no answer"}
        first, again = await settled(client, fields), await settled(client, fields)
        letters = (await client.get("/v1/queues/mail/dead-letters")).json()["jobs"]

    assert first == again == [{"id": job["id"], "applied": True, "state": "dead"}]
    assert (letters[0]["reason"], letters[0]["error"]) == ("MAX_ATTEMPTS", "Timeout: no answer")


async def test_a_token_that_is_not_the_leases_changes_nothing() -> None:
    async with asked() as client:
        (job,) = await claimed(client)
        foreign = {"id": job["id"], "token": "f" * 32}
        outcomes = await settled(client, foreign | {"how": "complete"}, foreign | {"how": "retry"})
        beat = (await client.post(f"{CLAIMS}/heartbeat", json={"beats": [foreign]})).json()["outcomes"]
        shown = (await client.get(f"/v1/queues/mail/jobs/{job['id']}")).json()

    assert [(each["applied"], each["why"]) for each in [*outcomes, *beat]] == [(False, "lost")] * 3
    assert (shown["state"], shown["attempts"]) == ("active", 0)


async def test_a_heartbeat_renews_the_lease_and_tells_of_a_cancel() -> None:
    store = MemoryStore()
    async with asked(store) as client:
        (job,) = await claimed(client)
        beats = {"beats": [lease(job)], "lease": 300}
        before = (await client.post(f"{CLAIMS}/heartbeat", json=beats)).json()["outcomes"][0]
        await client.post(f"/v1/queues/mail/jobs/{job['id']}/cancel")
        after = (await client.post(f"{CLAIMS}/heartbeat", json=beats)).json()["outcomes"][0]
        (held,) = await store.reads.leases(QueueRef("acme", "mail"))
        now = await store.clock.now()

    assert (before.get("cancel_requested"), after["cancel_requested"]) == (None, True)
    assert held.deadline > now + 200_000


async def test_progress_is_shown_with_the_job() -> None:
    async with asked() as client:
        (job,) = await claimed(client)
        report = lease(job) | {"value": {"done": 3, "of": 10}}
        await client.post(f"{CLAIMS}/progress", json={"reports": [report]})
        shown = (await client.get(f"/v1/queues/mail/jobs/{job['id']}")).json()

    assert shown["progress"] == {"done": 3, "of": 10}


async def test_a_lease_that_ran_out_is_recovered_by_the_next_claim() -> None:
    store = MemoryStore()
    async with asked(store) as client:
        (job,) = await claimed(client, backoff=[0])
        await store.clock.advance_clock(60_000)
        await client.post(CLAIMS, json={"worker": "w"})
        (again,) = (await client.post(CLAIMS, json={"worker": "w"})).json()["jobs"]

    assert (again["id"], again["attempt"]) == (job["id"], 2)


async def test_leases_in_a_queue_that_is_not_there_are_lost_and_make_none() -> None:
    one = {"id": "a", "token": "x"}
    async with asked(MemoryStore()) as client:
        beat = await client.post(f"{CLAIMS}/heartbeat", json={"beats": [one]})
        told = await client.post(f"{CLAIMS}/progress", json={"reports": [one | {"value": 1}]})
        outcomes = await settled(client, one | {"how": "complete"}, one | {"how": "retry"})
        found = await client.post(CLAIMS, json={"worker": "w"})
        gone = [
            await client.post("/v1/queues/mail/jobs/a/cancel"),
            await client.post("/v1/queues/mail/jobs/a/retry"),
            await client.delete("/v1/queues/mail/jobs/a"),
        ]
        queues = (await client.get("/v1/queues")).json()["queues"]

    lost = {"id": "a", "applied": False, "why": "lost"}
    assert beat.json()["outcomes"] == told.json()["outcomes"] == [lost]
    assert outcomes == [lost, lost]
    assert found.json()["jobs"] == []
    assert [each.status_code for each in gone] == [404, 404, 404]
    assert queues == []


@pytest.mark.parametrize("error", [StoreUnavailableError("gone"), IndexError("unforeseen")])
async def test_a_recovery_that_fails_costs_no_claim_its_jobs(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()

    async def failing(*_: object) -> list[Any]:
        raise error

    async with asked(store) as client:
        await claimed(client)
        await store.clock.advance_clock(60_000)
        monkeypatch.setattr(store.moves, "expire", failing)
        jobs = await claimed(client)

    assert len(jobs) == 1


async def test_a_long_poll_brings_the_job_that_comes_meanwhile() -> None:
    store = Ringing()
    async with asked(store) as client:
        polling = asyncio.create_task(client.post(CLAIMS, json={"worker": "w", "wait": 60}))
        await store.listened.wait()
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        answer = await polling

    assert len(answer.json()["jobs"]) == 1


async def test_a_long_poll_ends_when_the_service_stops() -> None:
    store = Ringing()
    service = Service(store, authenticator=HeaderAuthenticator())
    async with service, client_of(service) as client:
        polling = asyncio.create_task(client.post(CLAIMS, json={"worker": "w", "wait": 60}))
        await store.listened.wait()
        service.stop()
        answer = await polling

    assert (answer.status_code, answer.json()["jobs"]) == (200, [])


async def test_jobs_claimed_for_a_client_that_left_are_given_back() -> None:
    store = Ringing()
    service = Service(store, authenticator=HeaderAuthenticator())
    gone = asyncio.Event()
    sent = iter([{"type": "http.request", "body": b'{"worker":"w","wait":60}', "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in sent:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        return None

    async with service, client_of(service) as client:
        scope = {"type": "http", "method": "POST", "path": CLAIMS, "headers": [], "query_string": b""}
        polling = asyncio.create_task(service(scope, receive, send))
        await store.listened.wait()
        store.before_claim = gone.set
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        await polling
        counts = (await client.get("/v1/queues/mail")).json()["counts"]

    assert (counts["pending"], counts["active"]) == (1, 0)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"how": "vanish"}, "/settlements/0/how"),
        ({"how": "snooze"}, "/settlements/0/delay"),
        ({"how": "snooze", "delay": 604_801}, "/settlements/0/delay"),
        ({"how": "retry", "delay": 604_801}, "/settlements/0/delay"),
        ({"how": "complete", "more": 1}, "/settlements/0/more"),
        ({"how": "fail", "reason": "not a word"}, "/settlements/0/reason"),
    ],
)
async def test_a_settlement_that_cannot_be_read_is_named(fields: dict[str, Any], pointer: str) -> None:
    async with asked() as client:
        body = {"settlements": [{"id": "a", "token": "t", **fields}]}
        answer = await client.post(f"{CLAIMS}/settle", json=body)

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)


class Ringing(InterceptedStore):
    """Says when somebody listens to a subscription, and lets a test act right before a claim."""

    def __init__(self) -> None:
        super().__init__()
        self.listened = asyncio.Event()
        self.before_claim: Any = None

    def subscribe(self, *args: Any) -> Any:
        self.listened.set()
        return self.real.notifier.subscribe(*args)

    async def claim(self, *args: Any, **more: Any) -> Any:
        claims = await self.real.moves.claim(*args, **more)
        if claims.jobs and self.before_claim is not None:
            self.before_claim()
            # The watcher of the connection has its turn before the answer is made.
            for _ in range(5):
                await asyncio.sleep(0)
        return claims
