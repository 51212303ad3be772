"""Headers of a job: as they were given, wherever it goes, and replaced with its payload."""

from penstock.core.flows import JobRef
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Retry
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import FAULT, claim_one, new_job, record_of, settle
from penstock.testing.conformance.parts import Part, needs

HEADERS = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "Customer.Name": "ключ \"鍵\" 🔑 \\ 'x' {} %s :now $1",
    "empty": "",
    "1": "2",
}


async def test_headers_come_back_as_they_went_in(store: Store, queue: QueueRef) -> None:
    jobs = [
        new_job("plain"),
        new_job("with", headers=HEADERS),
        new_job("later", headers=HEADERS, delay_ms=60_000),
        new_job("child", headers=HEADERS, parents=(JobRef(queue.name, "parent"),)),
    ]
    await store.moves.enqueue(queue, jobs)
    held = {job.id: job.headers for job in [await claim_one(store, queue) for _ in range(3)]}

    assert held == {"plain": None, "with": HEADERS, "child": HEADERS}
    assert [(await record_of(store, queue, job.id)).headers for job in jobs] == [None, *[HEADERS] * 3]


async def test_headers_stay_with_a_job_until_it_is_gone(store: Store, queue: QueueRef) -> None:
    await store.moves.enqueue(queue, [new_job("a", headers=HEADERS)])
    held = await claim_one(store, queue)
    await settle(store, queue, Retry("a", held.token, 0, FAULT))
    again = await claim_one(store, queue)
    await settle(store, queue, Complete("a", again.token))

    assert again.headers == HEADERS
    assert (await record_of(store, queue, "a")).headers == HEADERS


@needs(Part.UNIQUE)
async def test_a_replaced_job_has_the_headers_of_the_newest_call(store: Store, queue: QueueRef) -> None:
    debounced = Unique("k", UniqueRule.DEBOUNCE, 1_000)
    found: list[dict[str, str] | None] = []
    for headers in (HEADERS, {"n": "2"}, None, {"n": "4"}):
        new = new_job(f"job-{len(found)}", headers=headers, unique=debounced, delay_ms=1_000)
        await store.moves.enqueue(queue, [new])
        found.append((await record_of(store, queue, "job-0")).headers)

    assert found == [HEADERS, {"n": "2"}, None, {"n": "4"}]
    assert (await record_of(store, queue, "job-0")).unique == debounced
