"""Claims with a filter of jobs that are gone: what the filter asks the server for costs no job."""

from typing import Any

import pytest

from penstock.bloom.rotating import BloomSize, RotatingBloom
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")


async def test_a_look_that_fails_takes_no_job_from_its_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of the claim before it, nor those of the claim after it."""
    ghosts = RotatingBloom(BloomSize(1_000, 1e-6, 60.0))
    limits = ClaimLimits(claim_scan=10)
    async with opened(RedisStore(url, ghosts=ghosts)) as store:
        assert isinstance(store, RedisStore)
        ids = await enqueue(store, QUEUE, [new_job(f"j{number:02}") for number in range(40)])
        await store.moves.delete(QUEUE, ids[1:12])
        asked = store.backend.server.commands

        async def commands(given: Any, **options: Any) -> Any:
            if given[0][0] == "LRANGE":
                raise StoreUnavailableError("the server cannot be reached")
            return await asked(given, **options)

        monkeypatch.setattr(store.backend.server, "commands", commands)
        claimed = []
        for _ in range(10):
            claims = await store.moves.claim(QUEUE, worker="w", limit=5, lease_ms=30_000, limits=limits)
            claimed += [job.id for job in claims.jobs]

        assert claimed == [ids[0], *ids[12:]]
        assert len(await store.reads.leases(QUEUE)) == len(claimed)
