"""Records and events of plain jobs are joined from packed parts, as a packer would have written them."""

from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from penstock.core.job import NewJob, Options, QueueRef
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.records import Record
from penstock.stores.redis.scripts import loaded_sources
from tests.conformance.arrange import new_job
from tests.conformance.stores import opened

JOINED = "if state == 'pending' and not extra then"
TIME_OF_RECORD = Record.__struct_fields__.index("enqueued_at")
TIME_OF_EVENT = 2


@pytest.mark.parametrize(
    "job",
    [
        new_job("a"),
        new_job("a", priority=9, key="k", idempotency_key="once"),
        new_job(
            "an id that is longer than thirty-one bytes",
            task="t" * 100,
            key="ключ\0",
            idempotency_key="x" * 300,
        ),
        new_job("a", options=Options(max_attempts=70_000, retention_ms=10**12, key_retention_ms=0)),
    ],
    ids=["plain", "key", "long", "numbers"],
)
async def test_joined_parts_are_the_bytes_of_a_packer(url: str, operator: Redis, job: NewJob) -> None:
    written = loaded_sources()["enqueue.lua"]
    assert written.count(JOINED) == 1
    found = []
    for name, text in (("joined", written), ("packed", written.replace(JOINED, "if false then"))):
        queue = QueueRef("default", name)
        async with opened(RedisStore(url, sources={"enqueue.lua": text})) as store:
            await store.enqueue(queue, [job])
        found.append(await _found(operator, queue, job.id))

    assert found[0] == found[1]


async def _found(operator: Any, queue: QueueRef, job: str) -> list[bytes]:
    """The record and the event, byte by byte but for their times."""
    keys = keys_of(queue)
    [(_, entry)] = await operator.xrange(keys.events)
    [event] = entry.values()
    return [
        _timeless(await operator.hget(keys.records, job), TIME_OF_RECORD),
        _timeless(event, TIME_OF_EVENT),
    ]


def _timeless(packed: bytes, at: int) -> bytes:
    time = msgspec.msgpack.decode(packed)[at]
    return packed.replace(msgspec.msgpack.encode(time), b"now")
