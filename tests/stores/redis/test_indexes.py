"""Entries of jobs that left their list otherwise than by a claim, and indexes that disagree with records."""

from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.core.job import Options, QueueRef
from penstock.core.states import State
from penstock.stores.bounds import CLAIM_SCAN
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.redis import RedisStore
from penstock.stores.redis.codec.jobs import Record
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.reads import CHUNK
from penstock.stores.values import Query
from penstock.testing.conformance.arrange import claim, claim_one, enqueue, new_job
from tests.stores.redis.operating import tell


async def test_a_job_that_came_back_is_claimed_once_and_at_its_new_place(
    store: RedisStore, queue: QueueRef
) -> None:
    """Its old entry stands for nothing."""
    await enqueue(store, queue, [new_job("a"), new_job("b"), new_job("c")])
    for _ in range(2):
        await store.moves.cancel(queue, ["a"])
        await store.moves.redrive(queue, ["a"])
    counted = (await store.reads.counts(queue))[State.PENDING]
    ahead = await store.reads.ahead(queue, "a")

    assert counted == 3
    assert ahead == 2
    assert [job.id for job in await claim(store, queue)] == ["b", "c", "a"]
    assert await store.health.check(queue) == []


async def test_an_id_that_is_used_again_is_not_claimed_by_the_old_entry(
    store: RedisStore, queue: QueueRef
) -> None:
    """A deleted job's entry may be first in the list."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await store.moves.delete(queue, ["a"])
    await enqueue(store, queue, [new_job("a")])

    assert [job.id for job in await claim(store, queue)] == ["b", "a"]
    assert await store.health.check(queue) == []


async def test_a_claim_passes_over_a_bounded_number_of_gone_jobs_and_says_to_come_back(
    store: RedisStore, queue: QueueRef
) -> None:
    """One call does not clear away a million entries, and no worker sleeps on a job behind them."""
    gone = [f"gone-{number}" for number in range(CLAIM_SCAN + 10)]
    await enqueue(store, queue, [*(new_job(name) for name in gone), new_job("a")])
    await store.moves.cancel(queue, gone)
    first = await store.moves.claim(queue, worker="w", limit=5, lease_ms=30_000)
    second = await store.moves.claim(queue, worker="w", limit=5, lease_ms=30_000)

    assert (first.jobs, first.is_more) == ([], True)
    assert [job.id for job in second.jobs] == ["a"]
    assert not second.is_more
    assert (await store.reads.counts(queue))[State.PENDING] == 0
    assert await store.health.check(queue) == []


async def test_a_claim_passes_over_as_many_gone_jobs_as_it_is_told(
    store: RedisStore, queue: QueueRef
) -> None:
    gone = [f"gone-{number}" for number in range(7)]
    await enqueue(store, queue, [*(new_job(name) for name in gone), new_job("a")])
    await store.moves.cancel(queue, gone)
    limits = ClaimLimits(claim_scan=3)
    found = [
        await store.moves.claim(queue, worker="w", limit=5, lease_ms=30_000, limits=limits) for _ in range(3)
    ]

    assert [claims.is_more for claims in found] == [True, True, False]
    assert [[job.id for job in claims.jobs] for claims in found] == [[], [], ["a"]]


async def test_lists_of_jobs_of_the_same_age_are_walked_to_the_end(
    store: RedisStore, queue: QueueRef
) -> None:
    """More of them than one look brings."""
    ids = [f"job-{number:05}" for number in range(2 * CHUNK + 50)]
    await enqueue(store, queue, [new_job(name) for name in ids])
    found: list[str] = []
    after = None
    while True:
        page = await store.reads.find(queue, Query(limit=400, after=after, task="task"))
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break

    assert found == sorted(ids, reverse=True)


async def test_free_text_cannot_leave_its_place(store: RedisStore, operator: Redis, queue: QueueRef) -> None:
    """Idempotency keys, concurrency keys, workers and payloads of any content."""
    texts = ["}", "{", "a:b", "\0", "\n", "x y z", "*", "ü€𝄞", "penstock:{default/q}:meta"]
    jobs = [
        new_job(f"job-{number}", idempotency_key=text, key=text, payload=b"\xff\x00" + text.encode())
        for number, text in enumerate(texts)
    ]
    await enqueue(store, queue, jobs)
    again = await store.moves.enqueue(
        queue, [new_job(f"other-{number}", idempotency_key=text) for number, text in enumerate(texts)]
    )
    records = await store.reads.get(queue, [job.id for job in jobs])
    claimed = await claim(store, queue, worker="w } \0")

    tag = f"{{{queue.tenant}/{queue.name}}}".encode()
    allowed = (b"penstock:store", b"penstock:queues", f"penstock:{{{queue.tenant}}}:queues".encode())
    assert [each.id for each in again if hasattr(each, "id")] == [job.id for job in jobs]
    assert [record.key for record in records if record] == texts
    assert [job.payload for job in claimed] == [job.payload for job in jobs]
    assert all(tag in key or key in allowed for key in await operator.keys("*"))


async def test_numbers_over_fifty_three_bits_are_the_payload_s_own(
    store: RedisStore, queue: QueueRef
) -> None:
    """Nothing in the server reads a payload."""
    payload = b'{"n":9007199254740993,"empty":[],"none":{}}'
    await enqueue(store, queue, [new_job("a", payload=payload, options=Options(max_attempts=2))])

    job = await claim_one(store, queue)

    assert job.payload == payload
    assert job.options == Options(max_attempts=2)


async def test_a_sound_queue_has_no_findings(store: RedisStore, queue: QueueRef) -> None:
    """With jobs in every state, and entries of jobs that are gone."""
    await _of_every_kind(store, queue)

    assert await store.health.check(queue) == []


SPOIL = """
local record = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))
record[tonumber(ARGV[2])] = ARGV[3] ~= '' and ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(record))
"""
STATE, TOKEN = (Record.__struct_fields__.index(name) + 1 for name in ("state", "token"))
DAMAGE: dict[str, tuple[Any, ...]] = {
    "a record without its entry among the jobs": ("ZREM", "{jobs}", "pending"),
    "an entry among the jobs without a record": ("ZADD", "{jobs}", 1, "ghost"),
    "a record without its payload": ("HDEL", "{payloads}", "pending"),
    "a payload without its record": ("HSET", "{payloads}", "ghost", "1"),
    "a pending job that stands nowhere": ("DEL", "{pending:5}"),
    "a pending entry without a job": ("RPUSH", "{pending:5}", "77 ghost"),
    "a gone entry that was forgotten": ("DEL", "{gone:5}"),
    "a delayed job that never becomes due": ("DEL", "{delayed}"),
    "a lease nobody recovers": ("ZREM", "{active}", "active"),
    "a lease without a record": ("ZADD", "{active}", 1, "ghost"),
    "an active job without a token": ("EVAL", SPOIL, 1, "{records}", "active", TOKEN, ""),
    "an ended job that is not counted": ("DEL", "{ended:cancelled}"),
    "an ended job that is never pruned": ("DEL", "{prunable}"),
    "a state that is not the record's": ("EVAL", SPOIL, 1, "{records}", "pending", STATE, "dead"),
    "a number that was used": ("HINCRBY", "{meta}", "seq", -1),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_the_check_finds(store: RedisStore, operator: Redis, queue: QueueRef, damage: str) -> None:
    """Each disagreement of records and indexes."""
    await _of_every_kind(store, queue)
    start = keys_of(queue).meta.removesuffix("meta")
    command = [
        f"{start}{part[1:-1]}" if isinstance(part, str) and part.startswith("{") else part
        for part in DAMAGE[damage]
    ]
    await tell(operator, *command)

    assert await store.health.check(queue) != []


async def _of_every_kind(store: RedisStore, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("active", priority=9)])
    await claim_one(store, queue)
    await enqueue(
        store,
        queue,
        [new_job("pending"), new_job("delayed", delay_ms=5_000), new_job("cancelled"), new_job("deleted")],
    )
    await store.moves.cancel(queue, ["cancelled"])
    await store.moves.delete(queue, ["deleted"])
