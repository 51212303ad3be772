"""Jobs over HTTP: made once, many at a time, looked at, cancelled, run again, waited for."""

import asyncio

import pytest

from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.stores.memory import MemoryStore
from tests.service.kit import asked

JOBS = "/v1/queues/mail/jobs"
FIELDS = {"task": "send", "payload": {"to": "ada"}}


async def test_a_job_is_created_and_shown_with_its_payload_only_when_asked_for() -> None:
    async with asked() as client:
        made = await client.post(JOBS, json=FIELDS | {"priority": "high", "delay": 60, "max_attempts": 2})
        path = made.headers["location"]
        plain, full = await client.get(path), await client.get(f"{path}?payload=true")

    assert (made.status_code, made.json()["created"]) == (201, True)
    job = plain.json()
    assert (job["state"], job["priority"], job["max_attempts"]) == ("delayed", 7, 2)
    assert job["visible_at"].endswith("Z")
    assert "payload" not in job
    assert "token" not in job
    assert full.json()["payload"] == {"to": "ada"}


@pytest.mark.parametrize("by_header", [True, False])
async def test_the_same_idempotency_key_gives_the_same_job(by_header: bool) -> None:
    fields = FIELDS if by_header else FIELDS | {"idempotency_key": "order-7"}
    headers = {"idempotency-key": "order-7"} if by_header else {}
    async with asked() as client:
        first, again = [await client.post(JOBS, json=fields, headers=headers) for _ in range(2)]

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "queue": "mail", "created": False}


async def test_a_quoted_idempotency_key_is_the_text_between_the_quotes() -> None:
    async with asked() as client:
        first = await client.post(JOBS, json=FIELDS, headers={"idempotency-key": '"order-7"'})
        again = await client.post(JOBS, json=FIELDS | {"idempotency_key": "order-7"})

    assert again.json()["id"] == first.json()["id"]


async def test_a_header_and_a_field_that_disagree_are_refused() -> None:
    fields = FIELDS | {"idempotency_key": "other"}
    async with asked() as client:
        answer = await client.post(JOBS, json=fields, headers={"idempotency-key": "order-7"})

    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/idempotency_key"


@pytest.mark.parametrize("fields", [{"task": "resize\n"}, {"task": "resize", "id": "a\n"}])
async def test_a_line_break_at_the_end_of_a_name_is_seen(fields: dict[str, str]) -> None:
    async with asked() as client:
        answer = await client.post(JOBS, json=fields)

    assert answer.status_code == 400


async def test_a_strict_key_with_another_payload_is_a_conflict() -> None:
    fields = FIELDS | {"idempotency_key": "k", "strict": True}
    async with asked() as client:
        await client.post(JOBS, json=fields)
        answer = await client.post(JOBS, json=fields | {"payload": {"to": "eve"}})

    assert (answer.status_code, answer.json()["type"]) == (422, "urn:penstock:idempotency")


async def test_of_many_jobs_each_has_an_outcome_of_its_own() -> None:
    async with asked() as client:
        await client.put("/v1/queues/keyed", json={"mode": "keyed"})
        items = [
            FIELDS | {"queue": "mail"},
            FIELDS | {"queue": "mail", "backoff": "no such preset"},
            FIELDS | {"queue": "keyed"},
            FIELDS | {"queue": "keyed", "key": "ada"},
        ]
        answer = await client.post("/v1/jobs", json={"jobs": items})

    outcomes = answer.json()["outcomes"]
    assert answer.status_code == 200
    assert [("job" in each, "problem" in each) for each in outcomes] == [
        (True, False),
        (False, True),
        (False, True),
        (True, False),
    ]
    assert outcomes[1]["problem"]["errors"][0]["pointer"] == "/jobs/1/backoff"


async def test_a_page_leads_to_the_next_until_all_were_seen() -> None:
    async with asked() as client:
        await client.post("/v1/jobs", json={"jobs": [FIELDS | {"queue": "mail"}] * 7})
        seen: list[str] = []
        after = ""
        while True:
            page = (await client.get(f"{JOBS}?limit=3{after}")).json()
            seen += [job["id"] for job in page["jobs"]]
            if "next" not in page:
                break
            after = f"&after={page['next']}"

    assert (len(seen), len(set(seen))) == (7, 7)


async def test_jobs_are_listed_by_state_and_task() -> None:
    async with asked() as client:
        await client.post(JOBS, json=FIELDS)
        await client.post(JOBS, json=FIELDS | {"delay": 60})
        await client.post(JOBS, json={"task": "other", "delay": 60})
        page = (await client.get(f"{JOBS}?state=delayed&task=send")).json()

    assert [(job["state"], job["task"]) for job in page["jobs"]] == [("delayed", "send")]


async def test_a_job_is_cancelled_run_again_and_deleted() -> None:
    async with asked() as client:
        path = (await client.post(JOBS, json=FIELDS)).headers["location"]
        cancelled = await client.post(f"{path}/cancel")
        again = await client.post(f"{path}/retry")
        twice = await client.post(f"{path}/retry")
        deleted = await client.delete(path)
        gone = await client.get(path)

    assert cancelled.json() == {"id": path.rpartition("/")[2], "applied": True, "state": "cancelled"}
    assert again.json()["state"] == "pending"
    assert (twice.status_code, twice.json()["type"]) == (409, "urn:penstock:wrong-state")
    assert (deleted.status_code, gone.status_code) == (200, 404)


async def test_an_explanation_says_why_a_job_waits() -> None:
    async with asked() as client:
        path = (await client.post(JOBS, json=FIELDS)).headers["location"]
        await client.post("/v1/queues/mail/pause", json={"reason": "provider down"})
        told = (await client.get(f"{path}/explain")).json()

    assert any("paused" in each and "provider down" in each for each in told["because"])


async def test_a_long_poll_for_a_result_ends_with_the_job() -> None:
    store = MemoryStore()
    queue = QueueRef("acme", "mail")
    async with asked(store) as client:
        path = (await client.post(JOBS, json=FIELDS)).headers["location"]
        (job,) = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=60_000)).jobs
        waiting = asyncio.create_task(client.get(f"{path}/result?wait=60"))
        early = await client.get(f"{path}/result")
        await store.moves.settle(queue, [Complete(job.id, job.token, b'{"sent":true}')])
        answer = await waiting

    assert (early.status_code, early.json()["is_ended"]) == (202, False)
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["result"]) == ("completed", {"sent": True})
