"""The registry of workers: entries under a lease of their own."""

import msgspec
import pytest

from penstock.core.errors import InvalidError, InvalidNameError
from penstock.core.job import QueueRef
from penstock.stores.bounds import ENTRY_LIMIT, MAX_LEASE_MS
from penstock.stores.protocol import Store
from penstock.stores.values import OrderKind, RunningJob, Topic, WorkerEntry, WorkerState
from penstock.testing.conformance.arrange import LONGEST_WAIT
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.WORKERS)

ADA = WorkerEntry("ada", "host", 7, "0.1", {"mail": 10}, ("send", "digest"))


async def test_a_registered_worker_is_found_while_its_lease_holds(store: Store, queue: QueueRef) -> None:
    """By the store's clock; renewed, it is found for longer."""
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    await store.clock.advance_clock(20_000)
    held = await store.workers.list_workers(queue.tenant)
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    await store.clock.advance_clock(20_000)
    renewed = await store.workers.list_workers(queue.tenant)
    await store.clock.advance_clock(10_001)

    assert [_bare(each) for each in (*held, *renewed)] == [ADA, ADA]
    assert renewed[0].renewed_at >= held[0].renewed_at + 20_000
    assert await store.workers.list_workers(queue.tenant) == []
    assert not await store.workers.unregister_worker(queue.tenant, "ada"), (
        "the entry of a worker that is gone stays"
    )


async def test_a_worker_that_ends_is_gone_at_once(store: Store, queue: QueueRef) -> None:
    await store.workers.register_worker(queue.tenant, ADA, 30_000)

    assert await store.workers.unregister_worker(queue.tenant, "ada")
    assert not await store.workers.unregister_worker(queue.tenant, "ada")
    assert await store.workers.list_workers(queue.tenant) == []


async def test_workers_are_those_of_their_tenant(store: Store, queue: QueueRef) -> None:
    """An entry of the same name replaces the one before."""
    other = msgspec.structs.replace(ADA, tasks=("send",), pid=8)
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    await store.workers.register_worker(queue.tenant, other, 30_000)

    assert [_bare(each) for each in await store.workers.list_workers(queue.tenant)] == [other]


async def test_all_of_many_workers_are_found(store: Store, queue: QueueRef) -> None:
    """Those that are gone among them do not hide the others."""
    names = [f"w{number:03}" for number in range(ENTRY_LIMIT + 20)]
    for name in names:
        lease_ms = 1_000 if name < "w060" else 60_000
        await store.workers.register_worker(queue.tenant, msgspec.structs.replace(ADA, name=name), lease_ms)
    await store.clock.advance_clock(30_000)

    assert [worker.name for worker in await store.workers.list_workers(queue.tenant)] == names[60:]


async def test_a_lease_far_beyond_its_duration_has_ended(store: Store, queue: QueueRef) -> None:
    """The clock was set back; a worker that lives renews its entry soon."""
    await store.clock.advance_clock(3_600_000)
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    await store.clock.advance_clock(-3_600_000)

    assert await store.workers.list_workers(queue.tenant) == []


async def test_what_cannot_be_a_worker_is_refused(store: Store, queue: QueueRef) -> None:
    with pytest.raises(InvalidNameError, match="worker"):
        await store.workers.register_worker(queue.tenant, msgspec.structs.replace(ADA, name="a\nb"), 30_000)
    for lease_ms in (0, -1, MAX_LEASE_MS + 1):
        with pytest.raises(InvalidError, match="lease_ms"):
            await store.workers.register_worker(queue.tenant, ADA, lease_ms)

    assert await store.workers.list_workers(queue.tenant) == []


async def test_an_entry_shows_what_the_worker_does(store: Store, queue: QueueRef) -> None:
    """Its times are by the store's clock."""
    busy = msgspec.structs.replace(
        ADA,
        instance="i1",
        app_version="2026.11",
        state=WorkerState.BUSY,
        slots=10,
        taken=2,
        busy={"mail": 2},
        jobs=(RunningJob("mail", "j1", "send", 1, 1_700_000_000_000),),
        more_jobs=1,
        memory=50_000_000,
        uptime_ms=60_000,
        poll_age_ms=500,
        loop_lag_ms=3,
    )
    before = await store.clock.now()
    await store.workers.register_worker(queue.tenant, busy, 30_000)
    after = await store.clock.now()
    (found,) = await store.workers.list_workers(queue.tenant)

    assert _bare(found) == busy
    assert before <= found.renewed_at <= after
    assert (found.started_at, found.polled_at) == (found.renewed_at - 60_000, found.renewed_at - 500)


async def test_an_order_is_for_the_worker_that_is_registered(store: Store, queue: QueueRef) -> None:
    """It is gone with that worker, and one of the same name that starts later does not get it."""
    mail = QueueRef(queue.tenant, "mail")
    await store.queues.open_queue(mail)
    await store.workers.register_worker(queue.tenant, msgspec.structs.replace(ADA, instance="i1"), 30_000)
    async with store.notifier.subscribe(mail, Topic.CONTROL) as subscription:
        before = await store.workers.worker_order(queue.tenant, "ada", "i1")
        done = await store.workers.order_worker(queue.tenant, "ada", OrderKind.DRAIN, by="bob")
        notified = await subscription.wait(LONGEST_WAIT)
    order = await store.workers.worker_order(queue.tenant, "ada", "i1")
    later = await store.workers.worker_order(queue.tenant, "ada", "i2")
    await store.workers.order_worker(queue.tenant, "ada", OrderKind.STOP)
    newer = await store.workers.worker_order(queue.tenant, "ada", "i1")
    await store.workers.unregister_worker(queue.tenant, "ada")

    assert (before, done, notified, later) == (None, True, True, None)
    assert order is not None
    assert newer is not None
    assert (order.kind, newer.kind) == ("drain", "stop")
    assert await store.workers.worker_order(queue.tenant, "ada", "i1") is None


async def test_an_order_needs_a_live_worker_that_takes_orders(store: Store, queue: QueueRef) -> None:
    """And expires with its entry."""
    await store.queues.open_queue(QueueRef(queue.tenant, "mail"))
    unknown = await store.workers.order_worker(queue.tenant, "ada", OrderKind.STOP)
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    older = await store.workers.order_worker(queue.tenant, "ada", OrderKind.STOP)
    await store.workers.register_worker(queue.tenant, msgspec.structs.replace(ADA, instance="i1"), 30_000)
    done = await store.workers.order_worker(queue.tenant, "ada", OrderKind.STOP)
    await store.clock.advance_clock(30_001)
    gone = await store.workers.order_worker(queue.tenant, "ada", OrderKind.STOP)
    await store.workers.list_workers(queue.tenant)

    assert (unknown, older, done, gone) == (False, False, True, False)
    assert await store.workers.worker_order(queue.tenant, "ada", "i1") is None


async def test_the_first_sight_of_a_version_is_kept_for_thirty_days(store: Store, queue: QueueRef) -> None:
    """As long as workers of it are seen it is kept for longer."""
    day = 24 * 3_600_000
    for name, version in (("ada", "1"), ("bob", "1"), ("eve", "2")):
        entry = msgspec.structs.replace(ADA, name=name, app_version=version)
        await store.workers.register_worker(queue.tenant, entry, 30_000)
        await store.clock.advance_clock(1_000)
    first = await store.workers.list_versions(queue.tenant)
    await store.clock.advance_clock(29 * day)
    await store.workers.register_worker(queue.tenant, msgspec.structs.replace(ADA, app_version="1"), 30_000)
    await store.clock.advance_clock(2 * day)
    later = await store.workers.list_versions(queue.tenant)

    assert [(each.app_version, each.version) for each in first] == [("2", "0.1"), ("1", "0.1")]
    assert [(each.app_version, each.first_seen) for each in later] == [("1", first[1].first_seen)]
    assert later[0].last_seen >= first[1].first_seen + 29 * day


def _bare(worker: WorkerEntry) -> WorkerEntry:
    """The entry as the worker gave it."""
    return msgspec.structs.replace(worker, renewed_at=0)


@pytest.mark.parametrize("body", [b"", b"\xff\x80", b"[]", b'{"worker":{},"until":1,"lease_ms":1}'])
async def test_a_damaged_entry_hides_no_other(store: Store, queue: QueueRef, body: bytes) -> None:
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    await store.key_value.put_entry(queue.tenant, "workers", "damaged", body)

    assert [worker.name for worker in await store.workers.list_workers(queue.tenant)] == ["ada"]
