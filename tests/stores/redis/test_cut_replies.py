"""Replies that are cut, or that stop, at every byte: no call gets what was meant for another."""

import pytest

from penstock.core.errors import StoreTimeoutError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Release
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import LEASE_MS, claim, claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import Proxy, proxied

OPTIONS = "?connections=1&idle_connections=0"
IMPATIENT = f"{OPTIONS}&answer_timeout=1s"


async def test_a_claim_whose_reply_is_cut_anywhere_loses_nothing(
    server: valkey.Server, queue: QueueRef
) -> None:
    """What it took is found as leases that nobody knows of, and given back."""
    async with proxied(server.port) as proxy, opened(RedisStore(proxy.url + OPTIONS)) as store:
        await enqueue(store, queue, [new_job("a"), new_job("b")])
        length = await _length_of_claim(proxy, store, queue)
        for after in range(length):
            proxy.cut(after)
            with pytest.raises(StoreUnavailableError):
                await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)

            await _works(store, queue)
            [lease] = await store.reads.leases(queue, "w")
            await store.moves.settle(queue, [Release(lease.id, lease.token)])

        assert sorted(job.id for job in await claim(store, queue, limit=5)) == ["a", "b"]
        assert await store.health.check(queue) == []


async def test_a_settle_whose_reply_is_cut_anywhere_is_answered_when_it_is_repeated(
    server: valkey.Server, queue: QueueRef
) -> None:
    """With what it did the first time."""
    async with proxied(server.port) as proxy, opened(RedisStore(proxy.url + OPTIONS)) as store:
        await _warmed(store, queue)
        await enqueue(store, queue, [new_job("first"), new_job("a")])
        first = await claim_one(store, queue)
        before = proxy.heard
        await store.moves.settle(queue, [Complete(first.id, first.token)])
        length = proxy.heard - before
        for after in range(length):
            held = await claim_one(store, queue)
            proxy.cut(after)
            with pytest.raises(StoreUnavailableError):
                await store.moves.settle(queue, [Complete(held.id, held.token)])

            await _works(store, queue)
            [again] = await store.moves.settle(queue, [Complete(held.id, held.token)])
            assert again.state is State.COMPLETED
            await enqueue(store, queue, [new_job(f"next-{after}")])

        assert await store.health.check(queue) == []


async def test_a_reply_that_stops_half_way_is_a_timeout(server: valkey.Server, queue: QueueRef) -> None:
    """The connection is closed: its rest, should it ever come, finds nobody."""
    async with proxied(server.port) as proxy, opened(RedisStore(proxy.url + IMPATIENT)) as store:
        await enqueue(store, queue, [new_job("a"), new_job("b")])
        length = await _length_of_claim(proxy, store, queue)
        for after in range(0, length, 1 + length // 10):
            proxy.cut(after, silent=True)
            with pytest.raises(StoreTimeoutError):
                await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)

            await _works(store, queue)
            [lease] = await store.reads.leases(queue, "w")
            await store.moves.settle(queue, [Release(lease.id, lease.token)])

        assert sorted(job.id for job in await claim(store, queue, limit=5)) == ["a", "b"]


async def test_jobs_of_a_claim_whose_reply_was_lost_come_back_by_expiry(
    server: valkey.Server, queue: QueueRef
) -> None:
    """Where the worker is gone too."""
    async with proxied(server.port) as proxy, opened(RedisStore(proxy.url + OPTIONS)) as store:
        await _warmed(store, queue)
        await enqueue(store, queue, [new_job("a")])
        proxy.cut(10)
        with pytest.raises(StoreUnavailableError):
            await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)

        await store.clock.advance_clock(LEASE_MS)

        assert [lease.id for lease in await store.reads.expired(queue)] == ["a"]


async def _works(store: Store, queue: QueueRef) -> None:
    """Each call gets its own answer."""
    found = await store.reads.get(queue, ["nobody", "a"])
    assert [None if job is None else job.id for job in found] == [None, "a"]
    assert sum((await store.reads.counts(queue)).values()) > 0


async def _warmed(store: Store, queue: QueueRef) -> None:
    """Let the server have the scripts: a call that has to bring its own is answered twice."""
    await enqueue(store, queue, [new_job("warm", priority=9)])
    held = await claim_one(store, queue)
    await store.moves.settle(queue, [Complete(held.id, held.token)])


async def _length_of_claim(proxy: Proxy, store: Store, queue: QueueRef) -> int:
    await _warmed(store, queue)
    before = proxy.heard
    held = await claim_one(store, queue)
    length = proxy.heard - before
    await store.moves.settle(queue, [Release(held.id, held.token)])
    return length
