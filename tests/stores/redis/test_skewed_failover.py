"""A failover that loses the newest writes, to a server whose clock is behind: fences rise all the same."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import Claimed, QueueRef
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import loaded_sources
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import proxied
from tests.kit.waiting import PATIENCE

HOUR = 3_600
BEHIND = "behind"
_TIME = "local clock = redis.call('TIME')\n"


def skewed() -> dict[str, str]:
    """The scripts, with a clock that is as many seconds behind as the server was told."""
    meta = loaded_sources()["shared/meta.lua"]
    assert meta.count(_TIME) == 1
    skew = f"clock[1] = clock[1] - (redis.call('GET', '{BEHIND}') or 0)\n"
    return {"shared/meta.lua": meta.replace(_TIME, _TIME + skew)}


@pytest.fixture
def replica(binary: Path, tmp_path: Path, server: valkey.Server) -> Iterator[valkey.Server]:
    """A replica of the server."""
    with BlockingRedis.from_url(server.url) as primary:
        primary.config_set("repl-diskless-sync-delay", 0)
    of = ["--replicaof", f"127.0.0.1 {server.port}"]
    with valkey.running(binary, tmp_path / "replica", settings=of) as running:
        yield running


async def fail_over(server: valkey.Server, replica: valkey.Server, seconds: int) -> tuple[Claimed, Claimed]:
    """The leases that a store gets of one job: of a primary whose replica misses it, and of that replica."""
    queue = QueueRef("default", "q")
    promoted = Redis.from_url(replica.url)
    async with proxied(server.port) as proxy, opened(RedisStore(proxy.url, sources=skewed())) as store:
        await enqueue(store, queue, [new_job("a")])
        async with asyncio.timeout(PATIENCE):
            while not await promoted.exists(keys_of(queue).records):
                pass
        await promoted.replicaof("NO", "ONE")
        before = await store.moves.claim(queue, worker="w", limit=1, lease_ms=30_000)
        await promoted.set(BEHIND, seconds)
        proxy.point_to(replica.port)
        proxy.drop()
        after = None
        while after is None:
            # The first calls find connections that were cut.
            with suppress(StoreUnavailableError):
                after = await store.moves.claim(queue, worker="w", limit=1, lease_ms=30_000)
    await promoted.aclose()
    return before.jobs[0], after.jobs[0]


@pytest.mark.parametrize("seconds", [10, 50, 50 * 60])
async def test_fences_rise_over_a_failover_to_a_clock_that_is_behind(
    server: valkey.Server, replica: valkey.Server, seconds: int
) -> None:
    before, after = await fail_over(server, replica, seconds)

    assert (before.delivery, after.delivery) == (1, 1)
    assert after.fence > before.fence


async def test_a_clock_that_is_hours_behind_ignores_the_floor_and_the_log_says_so(
    server: valkey.Server, replica: valkey.Server, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = await fail_over(server, replica, 2 * HOUR)

    assert after.fence < before.fence
    assert "fence floor ignored" in caplog.text
