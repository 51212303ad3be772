"""Statistics over HTTP: of one queue, and of those that the token can read."""

from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked
from tests.service.test_claims import claimed, lease, settled

ALL = {"x-tenant": "all"}
STRANGER = {"x-tenant": "stranger"}


async def test_a_queue_tells_what_it_did() -> None:
    async with asked() as client:
        (job,) = await claimed(client)
        await settled(client, lease(job) | {"how": "complete"})
        await client.post("/v1/queues/web/jobs", json={"task": "send"})
        one = (await client.get("/v1/queues/mail/stats", params={"since": 3600})).json()
        every = (await client.get("/v1/stats")).json()

    assert (one["queue"], one["span_seconds"], one["gaps"]) == ("mail", 60, [])
    assert (one["total"]["enqueued"], one["total"]["claimed"], one["total"]["completed"]) == (1, 1, 1)
    assert one["total"]["wait"]["jobs"] == one["total"]["run"]["jobs"] == 1
    assert sum(each["stats"].get("enqueued", 0) for each in one["points"]) == 1
    assert [(each["queue"], each["span_seconds"]) for each in every["queues"]] == [
        ("mail", 3600),
        ("web", 3600),
    ]


async def test_a_time_that_cannot_be_is_refused() -> None:
    async with asked() as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "send"})
        answers = [
            await client.get("/v1/stats", params={"since": since}) for since in ("0", "-1", "x", "1e9", "nan")
        ]

    assert [each.status_code for each in answers] == [400] * 5
    assert all("since" in each.text for each in answers)


async def test_a_token_sees_the_queues_that_it_may_read_and_no_other_tenant() -> None:
    """Of another tenant there is not even a queue."""
    mail = GrantedPrincipal(verbs=frozenset({"read"}), queues=frozenset({"mail"}))
    everything = GrantedPrincipal(verbs=frozenset({"read", "enqueue"}), queues=None)
    async with asked(authenticator=HeaderAuthenticator(acme=mail, all=everything)) as client:
        for name in ("mail", "web"):
            await client.post(f"/v1/queues/{name}/jobs", json={"task": "send"}, headers=ALL)
        mine = (await client.get("/v1/stats")).json()
        every = (await client.get("/v1/stats", headers=ALL)).json()
        other = await client.get("/v1/queues/web/stats")
        strange = (await client.get("/v1/stats", headers=STRANGER)).json()
        there = await client.get("/v1/queues/mail/stats", headers=STRANGER)

    assert [each["queue"] for each in mine["queues"]] == ["mail"]
    assert [each["queue"] for each in every["queues"]] == ["mail", "web"]
    assert other.status_code in (403, 404)
    assert (strange["queues"], there.status_code) == ([], 404)
