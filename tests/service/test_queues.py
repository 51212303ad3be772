"""Queues, schedules, flows, dead letters and workers over HTTP."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from penstock.client.where import Where
from penstock.core.ids import queue_number
from penstock.core.job import Job
from penstock.stores.memory import MemoryStore
from penstock.stores.values import RunningJob, WorkerEntry, WorkerState
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked
from tests.service.test_claims import claimed, lease, settled


async def test_a_queue_is_declared_shown_and_declared_again_only_with_a_new_version() -> None:
    fields = {"mode": "keyed", "key_limit": 2, "rate": {"count": 5, "per": 10, "burst": 2}}
    async with asked() as client:
        first = await client.put("/v1/queues/sync", json=fields)
        same = await client.put("/v1/queues/sync", json=fields)
        other = await client.put("/v1/queues/sync", json=fields | {"key_limit": 3})
        newer = await client.put("/v1/queues/sync", json=fields | {"key_limit": 3, "version": 2})

    assert first.json()["declaration"] == fields
    assert same.status_code == 200
    assert (other.status_code, other.json()["type"]) == (409, "urn:penstock:declaration")
    assert newer.json()["declaration"]["key_limit"] == 3


async def test_a_paused_queue_gives_out_nothing_until_it_is_resumed() -> None:
    async with asked() as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        paused = await client.post("/v1/queues/mail/pause", json={"reason": "down", "seconds": 60})
        nothing = await client.post("/v1/queues/mail/claims", json={"worker": "w"})
        await client.post("/v1/queues/mail/resume")
        something = await client.post("/v1/queues/mail/claims", json={"worker": "w"})

    pause = paused.json()["pause"]
    assert (pause["reason"], pause["by"], pause["until"] > pause["at"]) == ("down", "ada", True)
    assert (len(nothing.json()["jobs"]), len(something.json()["jobs"])) == (0, 1)


async def test_a_purge_takes_what_waits_and_leaves_what_runs() -> None:
    async with asked() as client:
        await claimed(client)
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        purged = await client.post("/v1/queues/mail/purge", json={})
        running = await client.post("/v1/queues/mail/purge", json={"states": ["active"]})
        counts = (await client.get("/v1/queues/mail")).json()["counts"]

    assert (purged.json(), running.status_code) == ({"count": 1}, 400)
    assert (counts["active"], counts["pending"]) == (1, 0)


async def test_a_key_gets_a_rule_and_loses_it() -> None:
    async with asked() as client:
        await client.put("/v1/queues/sync", json={"mode": "dynamic"})
        await client.put("/v1/queues/sync/keys", json={"key": "ada", "limit": 4, "weight": 2})
        with_rule = (await client.get("/v1/queues/sync/keys")).json()["keys"]
        await client.put("/v1/queues/sync/keys", json={"key": "ada"})
        without = (await client.get("/v1/queues/sync/keys")).json()["keys"]

    assert [(each["key"], each["limit"], each["weight"]) for each in with_rule] == [("ada", 4, 2)]
    assert without == []


async def test_only_the_queues_that_a_token_is_for_are_listed_and_served() -> None:
    doorman = HeaderAuthenticator(acme=GrantedPrincipal(), some=GrantedPrincipal(queues=frozenset({"mail"})))
    async with asked(authenticator=doorman) as client:
        for queue in ("mail", "secret"):
            await client.post(f"/v1/queues/{queue}/jobs", json={"task": "send"})
        await client.put("/v1/schedules/s", json={"queue": "secret", "task": "t", "every": 60})
        client.headers["x-tenant"] = "some"
        listed = (await client.get("/v1/queues")).json()["queues"]
        schedules = (await client.get("/v1/schedules")).json()["schedules"]
        many = await client.post("/v1/jobs", json={"jobs": [{"queue": "secret", "task": "t"}]})
        statuses = [
            (await client.get("/v1/queues/secret")).status_code,
            (await client.get("/v1/schedules/s")).status_code,
            (
                await client.put("/v1/schedules/s", json={"queue": "mail", "task": "t", "every": 60})
            ).status_code,
            (await client.post("/v1/flows", json=_flow("secret"))).status_code,
        ]

    assert [each["name"] for each in listed] == ["mail"]
    assert schedules == []
    assert many.json()["outcomes"][0]["problem"]["status"] == 403
    assert statuses == [403] * 4


async def test_a_schedule_is_put_paused_resumed_run_and_removed() -> None:
    fields = {"queue": "mail", "task": "digest", "cron": "0 7 * * *", "zone": "Europe/Berlin"}
    async with asked() as client:
        made = await client.put("/v1/schedules/daily", json=fields)
        same = await client.put("/v1/schedules/daily", json=fields)
        paused = await client.post("/v1/schedules/daily/pause")
        resumed = await client.post("/v1/schedules/daily/resume")
        job = await client.post("/v1/schedules/daily/run")
        runs = await client.get("/v1/schedules/daily/runs?count=3")
        removed = await client.delete("/v1/schedules/daily")
        gone = await client.get("/v1/schedules/daily")

    assert (made.status_code, same.status_code) == (201, 200)
    assert made.json()["when"] == "every day at 07:00 (Europe/Berlin)"
    assert (paused.json()["paused"], resumed.json()["paused"]) == (True, False)
    assert (job.json()["queue"], len(runs.json()["runs"])) == ("mail", 3)
    assert (removed.status_code, gone.status_code) == (200, 404)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"cron": "0 7 * *"}, "/cron"),
        ({"cron": "0 7 * * *", "zone": "Europe/Berlino"}, "/zone"),
        ({"cron": "0 7 * * *", "every": 60}, "/cron"),
        ({}, "/cron"),
        ({"every": 60, "starts_at": "2026-01-31T12:00:00"}, "/starts_at"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_by_its_field(
    fields: dict[str, Any], pointer: str
) -> None:
    async with asked() as client:
        answer = await client.put("/v1/schedules/s", json={"queue": "mail", "task": "t", **fields})

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)


def _flow(queue: str = "mail") -> dict[str, Any]:
    return {
        "jobs": [
            {"name": "first", "queue": queue, "task": "fetch"},
            {"name": "last", "queue": "mail", "task": "report", "after": ["first"]},
        ]
    }


async def test_a_job_of_a_flow_runs_after_those_it_waits_for_and_sees_their_results() -> None:
    async with asked() as client:
        places = (await client.post("/v1/flows", json=_flow())).json()["jobs"]
        (first,) = await _claim(client)
        await settled(client, lease(first) | {"how": "complete", "result": 7})
        (last,) = await _claim(client)
        path = f"/v1/queues/mail/jobs/{places['last']['id']}"
        children = (await client.get(f"{path}/children")).json()["children"]

    assert (first["task"], last["id"]) == ("fetch", places["last"]["id"])
    assert [(each["state"], each["result"]) for each in children] == [("completed", 7)]


async def test_a_flow_is_cancelled_as_a_whole() -> None:
    async with asked() as client:
        places = (await client.post("/v1/flows", json=_flow("sync"))).json()["jobs"]
        path = f"/v1/queues/mail/jobs/{places['last']['id']}"
        answer = await client.post(f"{path}/cancel-all")

    assert answer.json() == {"count": 2}


@pytest.mark.parametrize("after", [{"first": ["last"], "last": ["first"]}, {"first": [], "last": ["nobody"]}])
async def test_a_flow_that_cannot_be_is_refused_whole(after: dict[str, list[str]]) -> None:
    flow = _flow()
    for job in flow["jobs"]:
        job["after"] = after[job["name"]]
    async with asked() as client:
        answer = await client.post("/v1/flows", json=flow)
        queues = (await client.get("/v1/queues/mail/jobs")).json()

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:penstock:flow")
    assert queues.get("jobs", []) == []


async def test_dead_letters_are_listed_redriven_by_kind_and_purged_by_id() -> None:
    async with asked() as client:
        jobs = await claimed(client, 3, max_attempts=1)
        errors = ["Timeout 1", "Timeout 2", "KeyError"]
        items = [lease(job) | {"how": "retry", "error": said} for job, said in zip(jobs, errors, strict=True)]
        await settled(client, *items)
        letters = (await client.get("/v1/queues/mail/dead-letters")).json()["jobs"]
        kind = next(each["fingerprint"] for each in letters if each["error"] == "Timeout 1")
        redriven = await client.post("/v1/queues/mail/dead-letters/redrive", json={"fingerprint": kind})
        purged = await client.post(
            "/v1/queues/mail/dead-letters/purge", json={"ids": [job["id"] for job in jobs]}
        )
        left = (await client.get("/v1/queues/mail")).json()["counts"]

    assert (redriven.json(), purged.json()) == ({"count": 2}, {"count": 1})
    assert (left["pending"], left["dead"]) == (2, 0)


async def test_failed_jobs_are_listed_retried_and_deleted_by_a_condition() -> None:
    async with asked() as client:
        jobs = await claimed(client, 3)
        errors = ["Timeout 1", "Timeout 2", "KeyError"]
        items = [lease(job) | {"how": "fail", "error": said} for job, said in zip(jobs, errors, strict=True)]
        await settled(client, *items)
        timeouts = "error like 'Timeout%'"
        listed = await client.get(
            "/v1/queues/mail/jobs",
            params={"state": "failed", "where": timeouts, "since": "2020-01-31T12:00:00Z"},
        )
        retried = await client.post(
            "/v1/queues/mail/bulk/retry", json={"states": ["failed"], "where": timeouts}
        )
        cancelled = await client.post("/v1/queues/mail/bulk/cancel", json={"limit": 1})
        deleted = await client.post("/v1/queues/mail/bulk/delete", json={"states": ["failed"]})
        left = (await client.get("/v1/queues/mail")).json()["counts"]

    assert sorted(job["error"] for job in listed.json()["jobs"]) == errors[:2]
    counts = [answer.json() for answer in (retried, cancelled, deleted)]
    assert counts == [{"count": 2}, {"count": 1}, {"count": 1}]
    assert (left["pending"], left["cancelled"], left["failed"]) == (1, 1, 0)


async def test_pages_of_a_condition_go_on_where_the_last_one_ended() -> None:
    async with asked() as client:
        for number in range(5):
            body = {"task": "send", "payload": {"n": number}, "key": "odd" if number % 2 else "even"}
            await client.post("/v1/queues/mail/jobs", json=body)
        condition = {"limit": "2", "where": "json_extract(payload, '$.n') <> 2"}
        first = (await client.get("/v1/queues/mail/jobs", params=condition)).json()
        second = (
            await client.get("/v1/queues/mail/jobs", params=condition | {"after": first["next"]})
        ).json()
        odd = (await client.get("/v1/queues/mail/jobs", params={"key": "odd"})).json()["jobs"]

    assert len({job["id"] for page in (first, second) for job in page["jobs"]}) == 4
    assert len(odd) == 2


@pytest.mark.parametrize(
    ("method", "path", "given", "place"),
    [
        ("GET", "jobs", {"where": "colour = 1"}, {"parameter": "where"}),
        ("GET", "dead-letters", {"where": "1 ="}, {"parameter": "where"}),
        ("GET", "jobs", {"since": "soon"}, {"parameter": "since"}),
        ("POST", "bulk/retry", {"where": "colour = 1"}, {"pointer": "/where"}),
        ("POST", "bulk/retry", {"states": ["pending"]}, {"pointer": "/states"}),
        ("POST", "bulk/cancel", {"since": "soon"}, {"pointer": "/since"}),
        ("POST", "bulk/delete", {"task": "send"}, {"pointer": "/states"}),
        ("POST", "dead-letters/redrive", {"where": "load_extension('x')"}, {"pointer": "/where"}),
    ],
)
async def test_a_filter_that_is_wrong_is_named(
    method: str, path: str, given: dict[str, Any], place: dict[str, str]
) -> None:
    async with asked() as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        url = f"/v1/queues/mail/{path}"
        answer = await (client.get(url, params=given) if method == "GET" else client.post(url, json=given))

    assert answer.status_code == 400
    (fault,) = answer.json()["errors"]
    assert {name: fault.get(name) for name in place} == place


async def test_a_condition_that_takes_too_long_is_refused_and_keeps_nobody_waiting() -> None:
    async with asked() as client:
        items = [{"queue": "mail", "task": "send", "payload": {"n": n}} for n in range(50)]
        await client.post("/v1/jobs", json={"jobs": items})
        joined = ", ".join(f"jobs j{n}" for n in range(9))
        slow = await client.get("/v1/queues/mail/jobs", params={"where": f"(select count(*) from {joined})"})

    assert slow.status_code == 400
    assert "interrupted" in slow.json()["errors"][0]["wanted"]


async def test_conditions_of_one_tenant_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are few, and those of all tenants."""
    at_once: list[int] = []
    running = Counter[str]()
    evaluate = Where.matching

    def counted(where: Where, jobs: Sequence[Job], now: int) -> list[Job]:
        (tenant,) = {json.loads(job.payload)["of"] for job in jobs}
        running[tenant] += 1
        at_once.append(running[tenant])
        try:
            return evaluate(where, jobs, now)
        finally:
            running[tenant] -= 1

    async with asked() as client:
        for tenant in ("acme", "globex"):
            job = {"task": "send", "payload": {"of": tenant}}
            await client.post("/v1/queues/mail/jobs", json=job, headers={"x-tenant": tenant})
        monkeypatch.setattr(Where, "matching", counted)
        answers = await asyncio.gather(
            *(
                client.get(
                    "/v1/queues/mail/jobs", params={"where": "task = 'send'"}, headers={"x-tenant": tenant}
                )
                for tenant in ("acme", "globex") * 10
            )
        )

    assert [len(answer.json()["jobs"]) for answer in answers] == [1] * 20
    assert at_once == [1] * 20


async def test_workers_are_those_that_are_registered_and_those_that_hold_leases() -> None:
    store = MemoryStore()
    since = await store.clock.now()
    ada = WorkerEntry(
        *("ada", "host", 7, "0.1", {"mail": 10}, ("send",)),
        instance="i",
        app_version="2026.11",
        state=WorkerState.BUSY,
        slots=10,
        taken=1,
        busy={"mail": 1},
        jobs=(RunningJob("mail", "j", "send", 2, since),),
        memory=5,
        uptime_ms=1_000,
        poll_age_ms=10,
        loop_lag_ms=1_500,
    )
    await store.workers.register_worker("acme", ada, 60_000)
    async with asked(store) as client:
        await claimed(client, 2)
        answer = await client.get("/v1/workers")
        one = await client.get("/v1/workers/ada")
        nobody = await client.get("/v1/workers/host-1:7@eu")
        drained = await client.post("/v1/workers/ada/drain")
        refused = [(await client.post(f"/v1/workers/{name}/stop")).status_code for name in ("w", "a b")]
        versions = (await client.get("/v1/worker-versions")).json()["versions"]
    first, second = answer.json()["workers"]

    assert one.json() == first
    assert (first["worker"], first["registered"], first["state"], first["queues"]) == (
        *("ada", True, "busy"),
        {"mail": 10},
    )
    assert (first["jobs"][0]["id"], first["jobs"][0]["attempt"]) == ("j", 2)
    assert (first["memory"], first["loop_lag"], first["app_version"]) == (5, 1.5, "2026.11")
    assert {"started_at", "polled_at", "seen_at"} <= first.keys()
    assert (second["worker"], second["registered"], second["state"]) == ("w", False, None)
    assert [(each["queue"], each["active"]) for each in second["leases"]] == [("mail", 2)]
    assert (nobody.status_code, drained.status_code, refused) == (404, 202, [404, 400])
    assert [(each["app_version"], each["version"]) for each in versions] == [("2026.11", "0.1")]
    order = await store.workers.worker_order("acme", "ada", "i")
    assert order is not None
    assert order.kind == "drain"


async def _claim(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = (
        await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 10})
    ).json()["jobs"]
    return jobs


async def test_a_queue_is_deleted_once_it_is_empty() -> None:
    async with asked() as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        await client.put("/v1/schedules/nightly", json={"queue": "mail", "task": "send", "every": 3600})
        refused = await client.delete("/v1/queues/mail")
        await client.post("/v1/queues/mail/purge", json={})
        await client.delete("/v1/schedules/nightly")
        deleted = await client.delete("/v1/queues/mail")
        shown = await client.get("/v1/queues/mail")
        listed = (await client.get("/v1/queues")).json()["queues"]
        again = await client.delete("/v1/queues/mail")

    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "urn:penstock:not-empty")
    assert problem["remaining"] == {"pending": 1, "schedules": 1}
    assert "found 1 pending job and 1 schedule" in problem["detail"]
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (shown.status_code, again.status_code, listed) == (404, 404, [])


async def test_a_deleted_queue_is_made_anew_by_the_next_job() -> None:
    async with asked() as client:
        await client.put("/v1/queues/mail", json={"max_active": 1})
        before = (await client.get("/v1/queues/mail")).json()
        await client.delete("/v1/queues/mail")
        nothing = await client.post("/v1/queues/mail/claims", json={"worker": "w"})
        gone = await client.get("/v1/queues/mail")
        job = (await client.post("/v1/queues/mail/jobs", json={"task": "send"})).json()["id"]
        after = (await client.get("/v1/queues/mail")).json()
        found = await client.get(f"/v1/queues/mail/jobs/{job}")

    assert (nothing.status_code, gone.status_code) == (200, 404)
    assert ("declaration" in before, "declaration" in after) == (True, False)
    assert (found.status_code, queue_number(job)) == (200, 2)


async def test_only_a_token_that_may_manage_a_queue_deletes_it() -> None:
    somebody = GrantedPrincipal(verbs=frozenset({"read", "enqueue", "work"}))
    async with asked(authenticator=HeaderAuthenticator(acme=somebody)) as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        refused = await client.delete("/v1/queues/mail")
        own = await client.delete("/v1/queues/penstock.webhooks")

    assert (refused.status_code, own.status_code) == (403, 403)
