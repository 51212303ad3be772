"""The registry of workers: entries under a lease of their own."""

import msgspec
import pytest

from penstock.core.errors import InvalidError, InvalidNameError
from penstock.core.job import QueueRef
from penstock.stores.bounds import ENTRY_LIMIT, MAX_LEASE_MS
from penstock.stores.protocol import Store
from penstock.stores.values import RunningJob, WorkerEntry, WorkerState
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


def _bare(worker: WorkerEntry) -> WorkerEntry:
    """The entry as the worker gave it."""
    return msgspec.structs.replace(worker, renewed_at=0)


@pytest.mark.parametrize("body", [b"", b"\xff\x80", b"[]", b'{"worker":{},"until":1,"lease_ms":1}'])
async def test_a_damaged_entry_hides_no_other(store: Store, queue: QueueRef, body: bytes) -> None:
    await store.workers.register_worker(queue.tenant, ADA, 30_000)
    await store.key_value.put_entry(queue.tenant, "workers", "damaged", body)

    assert [worker.name for worker in await store.workers.list_workers(queue.tenant)] == ["ada"]
