"""The check of records and indexes holds few jobs in memory, and misses nothing for it."""

from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Bury, Complete, Fault, Release
from penstock.stores.redis import RedisStore
from penstock.stores.redis.inspection import inspector, key_pages
from penstock.stores.redis.inspection.close_look import CloseLook
from penstock.stores.redis.inspection.key_pages import PageReader
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.server import Server
from penstock.stores.values import Finding
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.stores.redis.operating import tell

MANY = 60
BOOM = Fault("ERROR", "ValueError: boom", "f00")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pages, and many close looks."""
    monkeypatch.setattr(key_pages, "PAGE", 7)
    monkeypatch.setattr(key_pages, "CHUNK", 7)
    monkeypatch.setattr(inspector, "JOBS_AT_ONCE", 16)


def names(many: int = MANY) -> list[str]:
    return [f"job-{number:03d}" for number in range(many)]


async def of_every_state(store: RedisStore, queue: QueueRef, **fields: Any) -> None:
    await enqueue(store, queue, [new_job(f"first-{name}", **fields) for name in names(10)])
    jobs = (await store.moves.claim(queue, worker="w", limit=10, lease_ms=60_000)).jobs
    await store.moves.settle(queue, [Release(job.id, job.token) for job in jobs[:2]])
    await store.moves.settle(queue, [Complete(job.id, job.token, b"1") for job in jobs[2:5]])
    await store.moves.settle(queue, [Bury(job.id, job.token, BOOM) for job in jobs[5:7]])
    await enqueue(store, queue, [new_job(name, **fields) for name in names()])
    await enqueue(store, queue, [new_job(f"later-{n}", delay_ms=60_000, **fields) for n in names(20)])
    await store.moves.cancel(queue, names()[::3])
    await store.moves.redrive(queue, names()[::6])
    await store.moves.delete(queue, names()[1::6])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_keyed", [False, True])
async def test_a_healthy_queue_needs_no_close_look(
    store: RedisStore, queue: QueueRef, monkeypatch: pytest.MonkeyPatch, is_keyed: bool
) -> None:
    if is_keyed:
        await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=20))
    await of_every_state(store, queue, **({"key": "ada"} if is_keyed else {}))

    async def refuse(look: CloseLook) -> None:
        raise AssertionError("the sums differ")

    monkeypatch.setattr(CloseLook, "take", refuse)
    assert await store.health.check(queue) == []


@pytest.mark.usefixtures("small")
async def test_every_job_that_is_wrong_is_named(store: RedisStore, operator: Redis, queue: QueueRef) -> None:
    await of_every_state(store, queue)
    await tell(operator, "HDEL", keys_of(queue).payloads, *names()[2:20:6])
    await tell(operator, "HSET", keys_of(queue).results, "ghost", "1")
    await tell(operator, "ZADD", keys_of(queue).active, 1, "ghost")

    assert set(await store.health.check(queue)) == {
        *(Finding("a record without a payload", job) for job in names()[2:20:6]),
        Finding("one of the results without a record", "ghost"),
        Finding("an entry among the active that no record backs", "ghost"),
    }


@pytest.mark.usefixtures("small")
async def test_where_most_is_wrong_a_part_of_it_is_named(
    store: RedisStore, operator: Redis, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "MOST_FINDINGS", 5)
    await enqueue(store, queue, [new_job(name) for name in names()])
    await tell(operator, "DEL", keys_of(queue).payloads)

    assert 5 <= len(await store.health.check(queue)) < MANY


@pytest.mark.usefixtures("small")
async def test_a_list_that_claims_take_from_meanwhile_is_read_to_its_end(
    store: RedisStore, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job(name) for name in names()])
    seen: list[str] = []
    taken: set[str] = set()
    async for _, page in PageReader(store.backend.server).lists([keys_of(queue).pending(5)]):
        seen += [entry.decode().partition(" ")[2] for entry in page]
        taken |= {job.id for job in await claim(store, queue, limit=3)}

    assert 0 < len(taken) < MANY
    assert set(seen) >= set(names()) - taken
    assert len(seen) == len(set(seen))


@pytest.mark.usefixtures("small")
async def test_a_sorted_set_with_one_score_is_read_to_its_end(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    members = [part for name in names() for part in (5, name)]
    await tell(operator, "ZADD", keys_of(queue).cooling, *members)
    pages = [page async for page in PageReader(store.backend.server).scores(keys_of(queue).cooling)]

    assert [entry for page in pages for entry in page] == [(name.encode(), 5) for name in names()]
    await tell(operator, "DEL", keys_of(queue).cooling)


async def test_a_server_that_cannot_leave_out_values_is_checked_as_well(
    store: RedisStore, operator: Redis, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    await of_every_state(store, queue)
    await tell(operator, "HSET", keys_of(queue).payloads, "ghost", "1")
    command = Server.command

    async def older(server: Server, *arguments: Any) -> Any:
        if "NOVALUES" in arguments:
            raise StoreError("the server failed: ERR syntax error")
        return await command(server, *arguments)

    monkeypatch.setattr(Server, "command", older)
    assert await store.health.check(queue) == [Finding("one of the payloads without a record", "ghost")]
