"""How many connections there are, who waits for one, and how a dead one is told from a living one."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from penstock.core.errors import PoolTimeoutError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.retry_pause import RetryPause
from penstock.stores.redis import RedisStore
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.server import Server
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import proxied
from tests.kit.waiting import eventually
from tests.stores.redis.operating import tell

NAME = "under-test"


async def test_connections_are_bounded_however_many_calls_there_are(url: str, operator: Redis) -> None:
    """Calls share them, and wait for each other."""
    numbers = "connections=3&calls_per_connection=2&pool_timeout=60"
    async with opened(RedisStore(f"{url}?client_name={NAME}&{numbers}")) as store:
        await asyncio.gather(*(store.clock.now() for _ in range(200)))

        # One that was given up stands in the server's list for a moment longer; how many were needed is a
        # matter of how fast they were made.
        await _until(lambda: _has_at_most(operator, 3))


async def test_connections_to_keep_are_not_made_beside_those_that_calls_made(
    url: str, operator: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one more than are allowed."""
    monkeypatch.setattr("penstock.stores.redis.pool._PAUSE", RetryPause(0.2, 5.0))
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    numbers = "connections=3&calls_per_connection=2&pool_timeout=60"
    async with opened(RedisStore(f"{url}?client_name={NAME}&{numbers}")) as store:
        await asyncio.gather(*(store.clock.now() for _ in range(200)))
        await asyncio.sleep(0.4)  # real time: the pause before a connection to keep is over

        assert 1 <= await _connections(operator) <= 3


async def test_a_few_connections_are_kept_open(url: str, operator: Redis) -> None:
    """Made in the background, and made again when they are lost."""
    async with opened(RedisStore(f"{url}?client_name={NAME}&idle_connections=4")) as store:
        await _until(lambda: _has(operator, 4))
        await tell(operator, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await _until(lambda: _has(operator, 4))

        assert await store.clock.now() > 0


async def test_half_of_the_connections_are_kept_open_unless_it_is_said(url: str, operator: Redis) -> None:
    async with opened(RedisStore(f"{url}?client_name={NAME}&connections=6")):
        await _until(lambda: _has(operator, 3))


async def test_who_finds_no_room_in_time_is_told_that_nothing_was_sent(
    url: str, operator: Redis, queue: QueueRef
) -> None:
    """And the others get their answers."""
    options = "?connections=1&calls_per_connection=2&pool_timeout=50ms"
    async with opened(RedisStore(url + options)) as store:
        await enqueue(store, queue, [new_job("first")])
        await tell(operator, "CLIENT", "PAUSE", 300, "ALL")
        calls = [asyncio.create_task(enqueue(store, queue, [new_job(f"job-{n}")])) for n in range(4)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        found = await store.reads.get(queue, [f"job-{n}" for n in range(4)])

    refused = [isinstance(end, PoolTimeoutError) for end in ends]
    assert refused == [False, False, True, True]
    assert [job is None for job in found] == refused


async def test_room_that_a_cancelled_call_had_is_given_back(url: str, operator: Redis) -> None:
    """When its reply has come, and not before."""
    async with opened(RedisStore(f"{url}?connections=1&calls_per_connection=1")) as store:
        for _ in range(5):
            await tell(operator, "CLIENT", "PAUSE", 20, "ALL")
            call = asyncio.create_task(store.clock.now())
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])

        assert await store.clock.now() > 0


async def test_a_connection_that_was_quiet_is_asked_before_it_is_used(
    server: valkey.Server, queue: QueueRef
) -> None:
    """One that is dead without a word is replaced: the call is not sent into the void."""
    async with proxied(server.port) as proxy:
        options = "?idle_connections=0&idle_check=1ms"
        async with opened(RedisStore(proxy.url + options)) as store:
            await enqueue(store, queue, [new_job("a")])
            await asyncio.sleep(0.01)  # real time: the connection was quiet for longer than idle_check
            proxy.cut(0, silent=True)

            [job] = await store.reads.get(queue, ["a"])

    assert job is not None
    assert proxy.connections == 2


async def test_connections_are_bounded_also_while_one_is_asked(server: valkey.Server) -> None:
    """Whoever comes meanwhile waits for it."""
    async with proxied(server.port) as proxy:
        options = "?connections=1&idle_connections=1&idle_check=1ms"
        async with opened(RedisStore(proxy.url + options)) as store:
            for _ in range(5):
                await asyncio.sleep(0.01)  # real time: it was quiet for longer than idle_check
                await asyncio.gather(*(store.clock.now() for _ in range(20)))

    assert proxy.connections == 1


async def test_a_busy_connection_is_not_asked(url: str, operator: Redis) -> None:
    """A call is one command."""
    async with opened(RedisStore(url)) as store:
        await tell(operator, "CONFIG", "RESETSTAT")
        for _ in range(5):
            await store.reads.counts(QueueRef("t", "q"))
        stats = await operator.info("commandstats")

    assert "cmdstat_ping" not in stats


async def test_many_calls_to_a_server_that_is_away_make_one_attempt(server: valkey.Server) -> None:
    """And all hear why it failed."""
    async with proxied(server.port) as proxy:
        way = Server(proxy.url, Scripts())
        way.open()
        proxy.cut(0)
        ends = await asyncio.gather(*(way.command("PING") for _ in range(50)), return_exceptions=True)
        await way.close()

    assert all(isinstance(end, StoreUnavailableError) for end in ends)
    assert proxy.connections == 1


async def test_a_server_that_accepts_and_says_nothing_is_given_up(server: valkey.Server) -> None:
    """Connecting has an end too."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailableError, match=r"within 0\.1 s"):
            await RedisStore(f"{server.url}?connect_timeout=0.1").open()
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_opening_twice_leaves_nothing_behind(url: str, operator: Redis) -> None:
    """One close is enough."""
    store = RedisStore(f"{url}?client_name={NAME}&idle_connections=0")
    for _ in range(3):
        await store.open()
    before = await _connections(operator)
    await store.close()
    await _until(lambda: _has(operator, 0))

    assert before == 1


async def test_a_store_can_be_opened_again_after_it_was_closed(url: str) -> None:
    """With new connections."""
    store = RedisStore(url)
    for _ in range(2):
        async with opened(store):
            assert await store.clock.now() > 0


async def test_closing_ends_the_calls_under_way(url: str, operator: Redis) -> None:
    """With an error, and not with a cancel that nobody asked for."""
    store = RedisStore(url)
    await store.open()
    await tell(operator, "CLIENT", "PAUSE", 500, "ALL")
    call = asyncio.create_task(store.clock.now())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await store.close()

    with pytest.raises(StoreUnavailableError):
        await call


async def _connections(operator: Redis) -> int:
    return sum(client["name"] == NAME for client in await operator.client_list())


async def _has_at_most(operator: Redis, count: int) -> bool:
    return 1 <= await _connections(operator) <= count


async def _has(operator: Redis, count: int) -> bool:
    return await _connections(operator) == count


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    """The server tells nobody of connections that come and go."""
    await eventually(holds)
