"""Processes that are killed between two steps, on the stores that outlive them."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from penstock.core.job import ExpiredLease, QueueRef
from penstock.core.moves import Complete, Expire, Move
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import LIVE, State
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, enqueue, new_job, states_of
from tests.conformance import process
from tests.conformance.having import on, shared
from tests.conformance.stores import STORES, Kind, Place, opened
from tests.kit import valkey
from tests.kit.waiting import PATIENCE

BINARIES = {"valkey": valkey.valkey_binary, "redis7": valkey.redis_binary}
SERVED = [each for each in STORES if each.name in BINARIES]


@asynccontextmanager
async def _opened(kind: Kind, where: Place) -> AsyncIterator[tuple[Store, str]]:
    address = kind.address(where)
    async with opened(kind.connect(address)) as store:
        yield store, address


@shared()
async def test_a_worker_killed_after_its_claim_loses_nothing(
    kind: Kind, where: Place, queue: QueueRef
) -> None:
    """Its leases run out, the jobs run again, and its tokens are worth nothing then."""
    async with _opened(kind, where) as (store, address):
        ids = await enqueue(store, queue, [new_job() for _ in range(5)])
        with process.started(kind, address, queue, "hold", "3") as worker:
            lines = await asyncio.to_thread(process.lines_until, worker, 3)
            worker.send_signal(signal.SIGKILL)
        tokens = dict(line.split() for line in lines)
        too_early = await store.reads.expired(queue)
        held = await store.reads.leases(queue, "holder")
        await store.clock.advance_clock(LEASE_MS)
        expired = await store.reads.expired(queue)
        outcomes = await store.moves.expire(
            queue, [Expire(lease.id, lease.token, State.PENDING, FAULT) for lease in expired]
        )
        again = await claim(store, queue)
        late = await store.moves.settle(queue, [Complete(job, token) for job, token in tokens.items()])

        assert too_early == []
        assert {lease.id: lease.token for lease in held} == tokens
        assert {lease.id: lease.token for lease in expired} == tokens
        assert outcomes == [Applied(State.PENDING)] * 3
        assert sorted(job.id for job in again) == sorted(ids)
        assert all(isinstance(answer, Refused) for answer in late)
        assert await store.health.check(queue) == []


@shared()
async def test_a_producer_killed_in_a_burst_loses_nothing_accepted(
    kind: Kind, where: Place, queue: QueueRef
) -> None:
    """Each batch is there whole or not at all, and its keys with it."""
    size = 20
    async with _opened(kind, where) as (store, address):
        with process.started(kind, address, queue, "burst", str(size)) as producer:
            accepted = await asyncio.to_thread(process.lines_until, producer, 15)
            producer.send_signal(signal.SIGKILL)
            rest = process.rest_of(producer)
        accepted += rest
        wanted = [f"{batch}-{n}" for batch in accepted for n in range(size)]
        states = await states_of(store, queue, wanted)
        _, newest = await store.events.event_range(queue)
        again = await store.moves.enqueue(
            queue, [new_job(f"x-{name}", idempotency_key=f"k{name[1:]}") for name in wanted[-size:]]
        )

        assert states == [State.PENDING] * len(wanted)
        # The batch on its way when the process died may have arrived, whole.
        assert newest in {len(wanted), len(wanted) + size}
        assert (await store.reads.counts(queue))[State.PENDING] == newest
        assert [answer.id for answer in again if not isinstance(answer, Refused)] == wanted[-size:]
        assert await store.health.check(queue) == []


@shared()
async def test_a_worker_killed_while_it_settles_leaves_each_job_settled_or_leased(
    kind: Kind, where: Place, queue: QueueRef
) -> None:
    """What it heard of is done; the rest is recovered by the clock; nothing is both."""
    async with _opened(kind, where) as (store, address):
        ids = await enqueue(store, queue, [new_job() for _ in range(900)])
        with process.started(kind, address, queue, "churn", "4") as worker:
            done = await asyncio.to_thread(process.lines_until, worker, 40)
            worker.send_signal(signal.SIGKILL)
            rest = process.rest_of(worker)
        done += rest
        expired: list[ExpiredLease] = []
        # What it had sent may still be under way on a server.
        while any(count for state, count in (await store.reads.counts(queue)).items() if state in LIVE):
            await store.clock.advance_clock(LEASE_MS)
            late = await store.reads.expired(queue)
            await store.moves.expire(
                queue, [Expire(lease.id, lease.token, State.PENDING, FAULT) for lease in late]
            )
            jobs = await claim(store, queue, 1_000)
            await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])
            expired += late
        events = await store.events.read_events(queue, limit=100_000)
        completed = [event.job for event in events if event.move is Move.COMPLETE]

        assert len(expired) <= 4
        assert set(done) <= set(ids)
        assert sorted(job for job in completed if job) == sorted(ids)
        assert await store.health.check(queue) == []


@on(SERVED)
async def test_a_server_killed_in_a_burst_loses_nothing_accepted(
    kind: Kind, queue: QueueRef, tmp_path: Path
) -> None:
    """With its append-only file; the leases it knew of are still held."""
    path = BINARIES[kind.name]()
    assert path is not None, "there is no server to kill"
    with ExitStack() as stack:
        server, port = valkey.start(path, tmp_path, appendonly=True)
        stack.callback(valkey.stop, server)
        address = f"redis://127.0.0.1:{port}/0"
        async with opened(kind.connect(address)) as store:
            await enqueue(store, queue, [new_job(f"held-{n}") for n in range(3)])
            held = await claim(store, queue)
        with process.started(kind, address, queue, "burst", "10") as producer:
            accepted = await asyncio.to_thread(process.lines_until, producer, 15)
            server.kill()
            server.wait(PATIENCE)
            producer.kill()
            rest = process.rest_of(producer)
        server, _ = valkey.start(path, tmp_path, port=port, appendonly=True)
        stack.callback(valkey.stop, server)
        wanted = [f"{batch}-{n}" for batch in accepted + rest for n in range(10)]
        async with opened(kind.connect(address)) as store:
            states = await states_of(store, queue, wanted)
            settled = await store.moves.settle(queue, [Complete(job.id, job.token) for job in held])
            findings = await store.health.check(queue)

    assert states == [State.PENDING] * len(wanted)
    assert settled == [Applied(State.COMPLETED)] * 3
    assert findings == []
