"""Jobs that are large are not moved about without need."""

import asyncio

import pytest

from penstock.cli.main import run
from penstock.core.job import QueueRef
from penstock.core.moves import Bury, Complete
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import FAULT, claim, enqueue, new_job
from tests.kit import valkey
from tests.kit.proxy import proxied

MAIL = QueueRef("default", "mail")
LARGE = b'"%s"' % (b"x" * 1_000_000)


@pytest.mark.parametrize(
    "line",
    [
        "jobs list",
        "jobs list --queue mail",
        "dlq list",
        "dlq redrive --yes",
        "dlq purge --yes",
        "queues purge mail --yes --state pending,completed,dead",
    ],
)
async def test_lists_and_purges_move_no_payloads(store: RedisStore, server: valkey.Server, line: str) -> None:
    """Nor results: the command hears less than one of them."""
    await enqueue(store, MAIL, [new_job(f"job-{number}", payload=LARGE) for number in range(3)])
    done, dead = await claim(store, MAIL, limit=2)
    await store.moves.settle(MAIL, [Complete(done.id, done.token, LARGE), Bury(dead.id, dead.token, FAULT)])
    async with proxied(server.port) as proxy:
        code = await asyncio.to_thread(run, [*line.split(), "--url", proxy.url])
        heard = proxy.heard

    assert code == 0
    assert heard < len(LARGE)
