"""Over HTTP: how many workers a queue needs, and what autoscalers decided."""

from penstock.core.job import QueueRef
from penstock.core.scaling import Decision, Direction
from penstock.stores.memory import MemoryStore
from penstock.testing.conformance.arrange import enqueue, new_job
from penstock.worker.processes.scaling_log import ScalingLog
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked

MAIL = QueueRef("acme", "mail")
PATH = "/v1/queues/mail/workers-needed"


async def test_a_queue_tells_how_many_workers_it_needs() -> None:
    """A paused one needs none for what waits."""
    store = MemoryStore()
    async with asked(store) as client:
        await enqueue(store, MAIL, [new_job(f"job-{number}") for number in range(450)])
        needed = (await client.get(PATH, params={"slots": 10})).json()
        bounded = (await client.get(PATH, params={"slots": 10, "max": 3})).json()
        large = (await client.get(PATH, params={"slots": 100})).json()
        await client.post("/v1/queues/mail/pause", json={})
        paused = (await client.get(PATH)).json()
        least = (await client.get(PATH, params={"min": 2})).json()

    assert needed == {"needed": 5, "backlog": 450, "active": 0}
    assert (bounded["needed"], large["needed"]) == (3, 1)
    assert paused == {"needed": 0, "backlog": 0, "active": 0}
    assert least["needed"] == 2


async def test_decisions_are_listed_for_a_token_of_all_queues() -> None:
    store = MemoryStore()
    some = GrantedPrincipal(verbs=frozenset({"read"}), queues=frozenset({"mail"}))
    everything = GrantedPrincipal(verbs=frozenset({"read"}), queues=None)
    log = ScalingLog(store, "acme")
    await log.note(Decision(Direction.UP, 1, 2, "mail: 90 waiting"), scaler="host:1", unit="processes")
    await log.note(Decision(Direction.DOWN, 2, 1, "1 of 2 idle"), scaler="host:1", unit="processes")
    async with asked(store, authenticator=HeaderAuthenticator(acme=everything, some=some)) as client:
        listed = (await client.get("/v1/scaling-decisions")).json()["decisions"]
        one = (await client.get("/v1/scaling-decisions", params={"limit": 1})).json()["decisions"]
        refused = await client.get("/v1/scaling-decisions", headers={"x-tenant": "some"})

    assert sorted((each["direction"], each["units"], each["wanted"]) for each in listed) == [
        ("down", 2, 1),
        ("up", 1, 2),
    ]
    assert len(one) == 1
    assert refused.status_code == 403
