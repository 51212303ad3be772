"""What an answer may hold: so many bytes, and then the client asks for the rest."""

from typing import Any

import pytest

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat, Bury, Fault
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.service.limits import Limits
from penstock.service.portions import MOST_RECORDS
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.memory import MemoryStore
from penstock.stores.portions import PORTION
from penstock.stores.values import Query
from penstock.stores.wire import MOST_ITEMS
from tests.kit.intercepted import InterceptedStore
from tests.service.kit import asked
from tests.service.test_store import called

MAIL = QueueRef("acme", "mail")
LARGE = b'{"a":"%s"}' % (b"x" * 10_000)
LIMITS = Limits(answer_bytes=100_000)


def jobs(many: int, payload: bytes = LARGE, **more: Any) -> list[NewJob]:
    """New ones."""
    return [NewJob(id=f"j{n}", nonce="n", task="t", payload=payload, **more) for n in range(many)]


class Counting(InterceptedStore):
    """Notes how many jobs each claim asked for, and how many items each call carried."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []
        self.items: list[int] = []

    async def claim(self, queue: QueueRef, **given: Any) -> Claims:
        self.limits.append(given["limit"])
        return await self.real.moves.claim(queue, **given)

    async def heartbeat(self, queue: QueueRef, beats: Any, lease_ms: int) -> Any:
        self.items.append(len(beats))
        return await self.real.moves.heartbeat(queue, beats, lease_ms)


async def test_a_claim_of_many_large_jobs_brings_as_many_as_an_answer_holds() -> None:
    store = MemoryStore()
    await store.moves.enqueue(MAIL, jobs(200))
    async with asked(store, limits=LIMITS) as client:
        first = (await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 200})).json()
        counts = await store.reads.counts(MAIL)
        second = (await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 200})).json()

    assert len(first["jobs"]) == PORTION
    assert counts[State.ACTIVE] == PORTION, "nothing is leased that is not answered"
    assert not {job["id"] for job in first["jobs"]} & {job["id"] for job in second["jobs"]}


async def test_a_claim_of_small_jobs_is_one_call_to_the_store() -> None:
    store = Counting()
    await store.moves.enqueue(MAIL, jobs(300, b"{}"))
    async with asked(store) as client:
        few = (await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 50})).json()
        calls = list(store.limits)
        many = (await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 200})).json()

    assert (len(few["jobs"]), calls) == (50, [50])
    assert len(many["jobs"]) == 200


async def test_jobs_leased_before_the_store_failed_reach_their_worker() -> None:
    class Failing(InterceptedStore):
        async def claim(self, queue: QueueRef, **given: Any) -> Claims:
            if (await self.reads.counts(queue))[State.ACTIVE]:
                raise OSError("gone")
            return await self.real.moves.claim(queue, **given)

    store = Failing()
    await store.moves.enqueue(MAIL, jobs(100, b"{}"))
    async with asked(store) as client:
        answer = await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 100})

    assert (answer.status_code, len(answer.json()["jobs"])) == (200, PORTION)


@pytest.mark.parametrize("path", ["/v1/queues/mail/jobs", "/v1/queues/mail/dead-letters"])
async def test_a_page_of_large_jobs_is_shorter(path: str) -> None:
    store = MemoryStore()
    await store.moves.enqueue(MAIL, jobs(150))
    if "dead" in path:
        claims = await store.moves.claim(MAIL, worker="w", limit=150, lease_ms=60_000)
        await store.moves.settle(MAIL, [Bury(job.id, job.token, Fault("ERROR", "no")) for job in claims.jobs])
    seen: list[str] = []
    after = ""
    async with asked(store, limits=LIMITS) as client:
        for _ in range(10):
            page = (await client.get(f"{path}?limit=150&payload=true{after}")).json()
            assert len(page["jobs"]) <= PORTION
            seen += [job["id"] for job in page["jobs"]]
            if "next" not in page:
                break
            after = f"&after={page['next']}"

    assert sorted(seen) == sorted(job.id for job in jobs(150))


async def test_children_are_listed_page_by_page() -> None:
    store = MemoryStore()
    refs = tuple(JobRef("mail", f"c{n}") for n in range(150))
    await store.moves.enqueue(MAIL, [NewJob(id="p", nonce="n", task="t", payload=b"{}", awaits=refs)])
    await store.flows.child_ended(MAIL, [ChildEnding("p", ref, State.COMPLETED, LARGE) for ref in refs[:-1]])
    seen: list[str] = []
    after, sizes = 0, []
    async with asked(store, limits=LIMITS) as client:
        while True:
            page = (await client.get(f"/v1/queues/mail/jobs/p/children?after={after}")).json()
            sizes.append(len(page["children"]))
            seen += [child["id"] for child in page["children"]]
            if "next" not in page:
                break
            after = page["next"]

    assert seen == [ref.id for ref in refs]
    assert max(sizes) == PORTION


async def test_records_of_the_stores_protocol_come_in_parts() -> None:
    store = MemoryStore()
    await store.moves.enqueue(MAIL, jobs(200))
    ids = [job.id for job in jobs(200)]
    async with asked(store, limits=LIMITS) as client:
        records = await called(client, "get", ids=ids)
        page = await called(client, "find", query=Query(limit=200))
        claims = await called(client, "claim", worker="w", limit=200, lease_ms=1_000)

    assert [job.id for job in records] == ids[:PORTION]
    assert (len(page.jobs), page.next is None) == (PORTION, False)
    assert (len(claims.jobs), claims.is_more) == (PORTION, True)


async def test_an_answer_holds_so_many_records_however_small() -> None:
    store = MemoryStore()
    await store.moves.enqueue(MAIL, jobs(MOST_RECORDS + 1, b"{}"))
    async with asked(store) as client:
        records = await called(client, "get", ids=[f"j{n}" for n in range(MOST_RECORDS + 1)])
        page = await called(client, "find", query=Query(limit=MOST_RECORDS + 1, payloads=False))

    assert len(records) <= MOST_RECORDS + PORTION
    assert len(page.jobs) == MOST_RECORDS


async def test_a_long_list_reaches_the_store_in_portions() -> None:
    store = Counting()
    await store.moves.enqueue(MAIL, jobs(1))
    beats = [Beat(f"j{n}", "t") for n in range(2_500)]
    async with asked(store) as client:
        answers = await called(client, "heartbeat", beats=beats, lease_ms=1_000)

    assert len(answers) == 2_500
    assert store.items == [CHUNK_JOBS, CHUNK_JOBS, 500]


async def test_a_list_of_too_many_leases_is_refused() -> None:
    class Busy(InterceptedStore):
        async def counts(self, queue: QueueRef) -> dict[State, int]:
            return {**await self.real.reads.counts(queue), State.ACTIVE: MOST_ITEMS + 1}

    async with asked(Busy()) as client:
        await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        problem = await called(client, "leases")

    assert (problem["status"], problem["type"]) == (413, "urn:penstock:too-large")
    assert f"found {MOST_ITEMS + 1} leases, wanted at most {MOST_ITEMS}" in problem["detail"]
