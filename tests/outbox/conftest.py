"""A database with an outbox, and a store elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from penstock import Penstock
from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.outbox import OutboxRelay, open_outbox
from penstock.stores.outbox import OutboxSource
from penstock.stores.protocol import Store
from penstock.stores.values import Query
from penstock.tasks.task import Task
from tests.conformance.stores import STORES, Kind, Place, opened

DATABASE = next(kind for kind in STORES if kind.name == "postgres")
TARGETS = [kind for kind in STORES if kind.name in {"valkey", "sqlite"}]
DEFAULT = QueueRef("default", "default")


@pytest.fixture(params=TARGETS, ids=[kind.name for kind in TARGETS])
def target(request: pytest.FixtureRequest) -> Kind:
    """The kind of store that the jobs are for."""
    found: Kind = request.param
    why = found.missing()
    if why is not None:
        pytest.fail(f"no {found.name}: {why}", pytrace=False)
    return found


@pytest.fixture
def address(target: Kind, where: Place) -> str:
    """The address of an empty store."""
    return target.address(where)


@pytest.fixture
def database(where: Place) -> str:
    """The url of a PostgreSQL in which nobody has an outbox yet."""
    if (why := DATABASE.missing()) is not None:
        pytest.fail(f"no {DATABASE.name}: {why}", pytrace=False)
    url = DATABASE.address(where)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS penstock_outbox CASCADE")
    return url


@asynccontextmanager
async def outbox_in(url: str) -> AsyncIterator[OutboxSource]:
    """The outbox in a database, open."""
    outbox = open_outbox(url)
    await outbox.open()
    try:
        yield outbox
    finally:
        await outbox.close()


@asynccontextmanager
async def relaying(url: str, store: Store) -> AsyncIterator[OutboxRelay]:
    """A relay whose rounds the test makes."""
    async with outbox_in(url) as outbox, opened(store):
        yield OutboxRelay(outbox, store)


async def jobs_in(store: Store, queue: QueueRef = DEFAULT, *states: State) -> list[Job]:
    """The jobs of a queue, in the order they came."""
    page = await store.reads.find(queue, Query(limit=1_000, states=frozenset(states)))
    return list(reversed(page.jobs))


class Shop:
    """An app whose store is elsewhere; it is never opened here."""

    def __init__(self) -> None:
        self.app = Penstock("redis://127.0.0.1:1")
        self.outbox = self.app.outbox()
        self.send: Task[..., [str], None] = self.app.task(name="send")(_send)


def _send(to: str) -> None: ...


@pytest.fixture
def shop() -> Shop:
    """An app with one task."""
    return Shop()
