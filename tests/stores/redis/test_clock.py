"""The clock of the test kit, which stands with every queue."""

from typing import Any

import pytest

from penstock.core.job import QueueRef
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import STORE, keys_of
from penstock.stores.redis.server import Server

QUEUE = QueueRef("default", "q")


async def test_queues_are_turned_ahead_of_the_clock_of_all(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was told the new time moves nothing at the old one."""
    seen: list[int] = []
    command = Server.command

    async def watched(self: Server, *words: Any) -> Any:
        if words[:2] == ("HINCRBY", STORE):
            seen.append(int(await command(self, "HGET", keys_of(QUEUE).meta, "offset_ms")))
        return await command(self, *words)

    await store.queues.open_queue(QUEUE)
    monkeypatch.setattr(Server, "command", watched)
    await store.clock.advance_clock(5_000)
    await store.clock.advance_clock(1_000)

    assert seen == [5_000, 6_000]
