"""The service on every store: a producer, a worker and an owner, all over HTTP."""

from typing import Any

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import PARTS
from tests.conformance.having import having
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked


@having(*PARTS)
async def test_jobs_go_from_one_end_to_the_other(store: Store, queue: QueueRef) -> None:
    doorman = HeaderAuthenticator(acme=GrantedPrincipal(tenant=queue.tenant))
    async with asked(store.clone(), authenticator=doorman) as client:
        items = [{"queue": "mail", "task": "send", "payload": {"n": n}, "max_attempts": 1} for n in range(3)]
        flow = {
            "jobs": [
                {"name": "a", "queue": "mail", "task": "part"},
                {"name": "b", "queue": "sync", "task": "whole", "after": ["a"]},
            ]
        }
        made = (await client.post("/v1/jobs", json={"jobs": items})).json()["outcomes"]
        places = (await client.post("/v1/flows", json=flow)).json()["jobs"]
        fields = {"worker": "w", "limit": 10, "wait": 5}
        jobs = (await client.post("/v1/queues/mail/claims", json=fields)).json()["jobs"]
        ways: list[dict[str, Any]] = [
            {"how": "complete", "result": {"ok": True}},
            {"how": "retry", "error": "Timeout"},
            {"how": "fail", "error": "no"},
            {"how": "complete", "result": 1},
        ]
        body = [{"id": job["id"], "token": job["token"], **way} for job, way in zip(jobs, ways, strict=True)]
        settled = (await client.post("/v1/queues/mail/claims/settle", json={"settlements": body})).json()
        (whole,) = (await client.post("/v1/queues/sync/claims", json=fields)).json()["jobs"]
        result = (await client.get(f"/v1/queues/mail/jobs/{jobs[0]['id']}/result?wait=5")).json()
        redriven = (await client.post("/v1/queues/mail/dead-letters/redrive", json={})).json()
        await client.put("/v1/schedules/s", json={"queue": "mail", "task": "t", "cron": "@daily"})
        schedules = (await client.get("/v1/schedules")).json()["schedules"]
        events = (await client.get("/v1/queues/mail/events?limit=1000")).json()["events"]
        why = (await client.get(f"/v1/queues/mail/jobs/{jobs[1]['id']}/explain")).json()["because"]
        counts = (await client.get("/v1/queues/mail")).json()["counts"]

    assert [each["job"]["created"] for each in made] == [True] * 3
    assert [each["state"] for each in settled["outcomes"]] == ["completed", "dead", "failed", "completed"]
    assert whole["id"] == places["b"]["id"]
    assert (result["state"], result["result"]) == ("completed", {"ok": True})
    assert (redriven, len(schedules)) == ({"count": 1}, 1)
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert why
    assert (counts["completed"], counts["failed"], counts["pending"]) == (2, 1, 1)
