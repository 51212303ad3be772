"""Reads of more than one answer holds: pages of children and relay entries, and many large records."""

from penstock.core.flows import Child, ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Query, Spawn
from penstock.testing.conformance.arrange import LEASE_MS, new_job
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.FLOWS)

MANY = 70
LARGE = b'"' + b"x" * ((128 << 10) - 2) + b'"'


@needs(Part.FLOWS)
async def test_children_come_page_by_page(store: Store, queue: QueueRef) -> None:
    refs = tuple(JobRef("children", f"c{number}") for number in range(7))
    await store.moves.enqueue(queue, [new_job("p", awaits=refs)])
    await store.flows.child_ended(queue, [ChildEnding("p", refs[3], State.COMPLETED, b"3")])
    everything = await store.flows.children(queue, "p")

    assert [child.ref for child in everything] == list(refs)
    assert await store.flows.children(queue, "p", limit=3) == everything[:3]
    assert await store.flows.children(queue, "p", after=3, limit=3) == everything[3:6]
    assert await store.flows.children(queue, "p", after=6, limit=3) == everything[6:]
    assert await store.flows.children(queue, "p", after=2) == everything[2:]
    assert await store.flows.children(queue, "p", after=7, limit=3) == []
    assert await store.flows.children(queue, "p", after=3, limit=1) == [
        Child(refs[3], is_done=True, state=State.COMPLETED, result=b"3")
    ]


@needs(Part.FLOWS)
async def test_results_of_children_can_be_left_out(store: Store, queue: QueueRef) -> None:
    refs = (JobRef("children", "a"), JobRef("children", "b"))
    await store.moves.enqueue(queue, [new_job("p", awaits=refs)])
    await store.flows.child_ended(queue, [ChildEnding("p", refs[0], State.COMPLETED, b"1")])

    done = Child(refs[0], is_done=True, state=State.COMPLETED)
    assert await store.flows.children(queue, "p", results=False) == [done, Child(refs[1])]
    assert await store.flows.children(queue, "p", results=False, limit=1) == [done]


@needs(Part.FLOWS)
async def test_relay_entries_come_page_by_page(store: Store, queue: QueueRef) -> None:
    spawns = [Spawn("elsewhere", new_job(f"s{number}")) for number in range(7)]
    await store.moves.enqueue(queue, [new_job("p")], spawns)
    everything = await store.flows.list_relay_entries(queue)
    numbers = [entry.number for entry in everything]

    assert numbers == sorted(numbers)
    assert len(numbers) == 7
    assert await store.flows.list_relay_entries(queue, 3) == everything[:3]
    assert await store.flows.list_relay_entries(queue, 3, after=numbers[2]) == everything[3:6]
    await store.flows.delete_relay_entries(queue, numbers[3:5])
    assert await store.flows.list_relay_entries(queue, 3, after=numbers[2]) == everything[5:]
    assert await store.flows.list_relay_entries(queue, 3, after=numbers[-1]) == []


async def test_many_large_records_are_all_read(store: Store, queue: QueueRef) -> None:
    """Together they are more than one answer of a service holds."""
    ids = [f"j{number:02}" for number in range(MANY)]
    for start in range(0, MANY, 10):
        await store.moves.enqueue(queue, [new_job(each, payload=LARGE) for each in ids[start : start + 10]])
    found = await store.reads.get(queue, [*ids, "none"])
    page = await store.reads.find(queue, Query(limit=MANY - 1))
    rest = await store.reads.find(queue, Query(limit=MANY, after=page.next))

    assert [job and job.id for job in found] == [*ids, None]
    assert all(job.payload == LARGE for job in found if job is not None)
    assert (len(page.jobs), len(rest.jobs), rest.next) == (MANY - 1, 1, None)
    assert sorted(job.id for job in [*page.jobs, *rest.jobs]) == ids


@needs(Part.FLOWS)
async def test_many_large_entries_and_children_are_all_read(store: Store, queue: QueueRef) -> None:
    refs = tuple(JobRef("children", f"c{number}") for number in range(MANY))
    spawns = [Spawn("children", new_job(ref.id, payload=LARGE)) for ref in refs]
    await store.moves.enqueue(queue, [new_job("p", awaits=refs)], spawns[:40])
    await store.moves.enqueue(queue, [new_job("q")], spawns[40:])
    for start in range(0, MANY, 10):
        ended = [ChildEnding("p", ref, State.COMPLETED, LARGE) for ref in refs[start : start + 10]]
        await store.flows.child_ended(queue, ended)

    entries = await store.flows.list_relay_entries(queue, 2 * MANY)
    assert [entry.what.id for entry in entries] == [ref.id for ref in refs]  # type: ignore[union-attr]
    assert [child.result for child in await store.flows.children(queue, "p")] == [LARGE] * MANY


async def test_large_jobs_are_claimed_in_some_calls(store: Store, queue: QueueRef) -> None:
    """A claim may bring fewer than it asked for; `is_more` then says that the next one brings others."""
    for start in range(0, MANY, 10):
        jobs = [new_job(f"j{number}", payload=LARGE) for number in range(start, start + 10)]
        await store.moves.enqueue(queue, jobs)
    seen: set[str] = set()
    for _ in range(5):
        claims = await store.moves.claim(queue, worker="w", limit=MANY, lease_ms=LEASE_MS)
        assert all(job.payload == LARGE for job in claims.jobs)
        seen |= {job.id for job in claims.jobs}
        if len(seen) == MANY:
            break
        assert claims.is_more

    assert len(seen) == MANY


@needs(Part.KEY_VALUE)
async def test_many_large_entries_of_a_namespace_are_all_read(store: Store, queue: QueueRef) -> None:
    tenant = queue.tenant
    for number in range(150):
        await store.key_value.put_entry(tenant, "things", f"n{number:03}", b"x" * (60 << 10))
    found = await store.key_value.list_entries(tenant, "things", limit=149)

    assert [entry.name for entry in found] == [f"n{number:03}" for number in range(149)]
