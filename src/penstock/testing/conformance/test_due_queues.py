"""Which queues need upkeep, and from when: the same answer from every store, for many queues in few calls."""

from collections.abc import Sequence

from penstock.core.flows import JobRef
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.limits import Declaration
from penstock.core.moves import Complete
from penstock.stores.protocol import Store
from penstock.stores.values import Duty, StoredSchedule
from penstock.testing.conformance.arrange import (
    LEASE_MS,
    claim_one,
    enqueue,
    enqueue_each,
    new_job,
    schedule_body,
    settle,
)
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.UPKEEP)

MINUTE = 60_000


async def due_of(
    store: Store, queue: QueueRef, within_ms: int = 0, events_kept: int | None = None
) -> dict[Duty, int]:
    """The duties of one queue."""
    page = await store.upkeep.due_queues(
        queue.tenant, [queue.name], within_ms=within_ms, events_kept=events_kept
    )
    return page.queues[0].due if page.queues else {}


async def all_due(store: Store, tenant: str, limit: int = 200) -> list[str]:
    """The names of all queues of a tenant that need upkeep, page by page."""
    page = await store.upkeep.due_queues(tenant, limit=limit)
    found = [each.name for each in page.queues]
    while page.next is not None:
        page = await store.upkeep.due_queues(tenant, after=page.next, limit=limit)
        found += [each.name for each in page.queues]
    return sorted(found)


@needs(Part.LIMITS)
async def test_an_idle_queue_needs_no_upkeep(store: Store, queue: QueueRef) -> None:
    await store.queues.open_queue(queue)
    await store.queues.declare(queue, Declaration(max_active=5))
    await enqueue(store, queue, [new_job()])

    assert await due_of(store, queue, within_ms=MINUTE) == {}
    assert await all_due(store, queue.tenant) == []


async def test_a_queue_that_is_not_there_is_passed_over_and_not_made(store: Store, queue: QueueRef) -> None:
    page = await store.upkeep.due_queues(queue.tenant, [queue.name])

    assert (page.queues, page.next, page.unreachable) == ([], None, [])
    assert abs(page.now - await store.clock.now()) < MINUTE
    assert await store.queues.find_queue(queue) is None


async def test_a_delayed_job_is_due_for_promotion_at_its_time(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a", delay_ms=10 * MINUTE), new_job("b", delay_ms=5 * MINUTE)])
    job = (await store.reads.get(queue, ["b"]))[0]
    assert job is not None

    assert await due_of(store, queue, within_ms=4 * MINUTE) == {}
    assert await due_of(store, queue, within_ms=6 * MINUTE) == {Duty.PROMOTE: job.visible_at}
    await store.clock.advance_clock(5 * MINUTE)
    assert await due_of(store, queue) == {Duty.PROMOTE: job.visible_at}
    await store.moves.promote(queue)
    assert await due_of(store, queue) == {}


async def test_a_lease_is_due_for_recovery_at_its_deadline(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job()])
    held = await claim_one(store, queue)

    assert await due_of(store, queue) == {}
    assert await due_of(store, queue, within_ms=2 * LEASE_MS) == {Duty.RECOVER: held.deadline}
    await store.clock.advance_clock(LEASE_MS)
    assert await due_of(store, queue) == {Duty.RECOVER: held.deadline}
    await settle(store, queue, Complete(held.id, held.token))
    assert await due_of(store, queue) == {}


async def test_a_lease_that_ended_by_a_step_of_the_clock_is_due_at_once(
    store: Store, queue: QueueRef
) -> None:
    await store.clock.advance_clock(3 * MINUTE)
    await enqueue(store, queue, [new_job()])
    await claim_one(store, queue)
    await store.clock.advance_clock(-3 * MINUTE)

    assert set(await due_of(store, queue)) == {Duty.RECOVER}


@needs(Part.SCHEDULES)
async def test_a_schedule_is_due_at_its_next_instant_unless_it_is_paused(
    store: Store, queue: QueueRef
) -> None:
    at = await store.clock.now() + 5 * MINUTE
    await store.schedules.put_schedule(StoredSchedule(queue, "late", schedule_body("late"), at + MINUTE))
    await store.schedules.put_schedule(StoredSchedule(queue, "soon", schedule_body("soon"), at))
    await store.schedules.put_schedule(StoredSchedule(queue, "never", schedule_body("never"), None))

    assert await due_of(store, queue) == {}
    assert await due_of(store, queue, within_ms=10 * MINUTE) == {Duty.FIRE: at}
    await store.schedules.pause_schedule(queue, "soon", True)
    assert await due_of(store, queue, within_ms=10 * MINUTE) == {Duty.FIRE: at + MINUTE}


@needs(Part.FLOWS)
async def test_relay_entries_that_wait_are_due_at_once(store: Store, queue: QueueRef) -> None:
    child = NewJob(id="c", nonce="n", task="t", payload=b"{}", parents=(JobRef(queue.name, "p"),))
    parent = NewJob(id="p", nonce="n", task="t", payload=b"{}", awaits=(JobRef(queue.name, "c"),))
    await store.moves.enqueue(queue, [child, parent])
    assert await due_of(store, queue) == {}
    held = await claim_one(store, queue)
    await settle(store, queue, Complete(held.id, held.token))

    due = await due_of(store, queue)
    assert set(due) == {Duty.RELAY}
    assert abs(due[Duty.RELAY] - await store.clock.now()) < MINUTE
    await store.flows.delete_relay_entries(
        queue, [entry.number for entry in await store.flows.list_relay_entries(queue)]
    )
    assert await due_of(store, queue) == {}


async def test_an_ended_job_is_due_for_pruning_after_its_retention(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job(options=Options(retention_ms=5 * MINUTE))])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete(held.id, held.token))

    assert await due_of(store, queue) == {}
    await store.clock.advance_clock(5 * MINUTE)
    assert set(await due_of(store, queue)) == {Duty.PRUNE}
    assert await store.moves.prune(queue) == 1
    assert await due_of(store, queue) == {}


async def test_what_is_remembered_of_a_job_that_is_gone_is_due_for_pruning(
    store: Store, queue: QueueRef
) -> None:
    options = Options(key_retention_ms=5 * MINUTE)
    await enqueue(store, queue, [new_job("a", idempotency_key="k", options=options)])
    await store.moves.delete(queue, ["a"])

    assert await due_of(store, queue) == {}
    await store.clock.advance_clock(5 * MINUTE)
    assert set(await due_of(store, queue)) == {Duty.PRUNE}


async def test_more_events_than_are_to_be_kept_are_due_for_trimming(store: Store, queue: QueueRef) -> None:
    await enqueue_each(store, queue, [new_job(f"j{number}") for number in range(5)])

    assert await due_of(store, queue, events_kept=5) == {}
    assert set(await due_of(store, queue, events_kept=4)) == {Duty.TRIM}
    _, last = await store.events.event_range(queue)
    await store.events.trim(queue, through=last - 1)
    assert await due_of(store, queue, events_kept=4) == {}


async def test_all_queues_of_a_tenant_are_looked_at_page_by_page(store: Store, queue: QueueRef) -> None:
    names = [f"q{number:02}" for number in range(25)]
    await _open(store, queue.tenant, names)
    await _open(store, f"{queue.tenant}-2", ["q00"])
    for name in ("q03", "q11", "q24"):
        await enqueue(store, QueueRef(queue.tenant, name), [new_job(delay_ms=MINUTE)])
    await enqueue(store, QueueRef(f"{queue.tenant}-2", "q00"), [new_job(delay_ms=MINUTE)])
    await store.clock.advance_clock(MINUTE)

    assert await all_due(store, queue.tenant) == ["q03", "q11", "q24"]
    assert await all_due(store, queue.tenant, limit=4) == ["q03", "q11", "q24"]
    assert await all_due(store, f"{queue.tenant}-3") == []
    named = await store.upkeep.due_queues(queue.tenant, ["q03", "q04", "not-there"])
    assert [each.name for each in named.queues] == ["q03"]


async def _open(store: Store, tenant: str, names: Sequence[str]) -> None:
    for name in names:
        await store.queues.open_queue(QueueRef(tenant, name))
