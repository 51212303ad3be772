"""Jobs within a transaction of Django's."""

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import django
import pytest
from django.conf import settings
from django.db import connections, transaction

from penstock import Penstock, State
from penstock.core.errors import JobNotFoundError, TransactionError
from penstock.core.job import QueueRef
from penstock.outbox import OutboxRelay, open_outbox
from penstock.outbox.sources import tables_of
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Query
from penstock.tasks.task import Task


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    """A connection of Django's to the server of the test."""
    parts = urlsplit(url)
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    # What Django keeps of its settings; a server of the test comes and goes.
    connections.settings = connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.path.removeprefix("/"),
                "USER": parts.username,
                "HOST": parts.hostname,
                "PORT": parts.port,
            }
        }
    )
    yield connections["default"]
    connections.close_all()
    del connections["default"]


@pytest.fixture
def app(url: str) -> Penstock:
    """An app on the same server."""
    return Penstock(url)


@pytest.fixture
def send(app: Penstock) -> Task[..., [str], None]:
    """A task of the app."""

    @app.task
    def send(to: str) -> None: ...

    return send


def test_an_atomic_block_brings_the_job(app: Penstock, send: Task[..., [str], None], connection: Any) -> None:
    """At its end, not before."""
    with app.blocking as queue:
        with transaction.atomic():
            job = queue.enqueue_in(connection, send, "ada")
            with pytest.raises(JobNotFoundError):
                queue.status(job)

        assert queue.status(job) is State.PENDING


def test_an_atomic_block_that_fails_leaves_no_job(
    app: Penstock, send: Task[..., [str], None], connection: Any
) -> None:
    """Also an inner one, which is a savepoint."""
    with app.blocking as queue:
        with transaction.atomic():
            kept = queue.enqueue_in(connection, send, "kept")
            with transaction.atomic():
                lost = queue.enqueue_in(connection, send, "lost")
                transaction.set_rollback(True)

        assert queue.status(kept) is State.PENDING
        with pytest.raises(JobNotFoundError):
            queue.status(lost)


def test_the_connection_that_django_offers_everywhere_will_do(
    app: Penstock, send: Task[..., [str], None], connection: Any
) -> None:
    """`django.db.connection` stands for that of the thread."""
    from django.db import connection as default

    with app.blocking as queue:
        with transaction.atomic():
            job = queue.enqueue_in(default, send, "ada")

        assert queue.status(job) is State.PENDING


def test_without_an_atomic_block_it_is_refused(
    app: Penstock, send: Task[..., [str], None], connection: Any
) -> None:
    """Each statement would be a transaction of its own; and one that failed is over."""
    with app.blocking as queue:
        with pytest.raises(TransactionError, match=r"transaction\.atomic"):
            queue.enqueue_in(connection, send, "ada")
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(TransactionError, match="failed already"):
                queue.enqueue_in(connection, send, "ada")


async def _carried(url: str) -> list[str]:
    outbox = open_outbox(f"{url}?schema=letters")
    store = MemoryStore()
    await outbox.open(make=False)
    await OutboxRelay(outbox, store).carry()
    await outbox.close()
    page = await store.reads.find(QueueRef("default", "default"), Query())
    return [job.id for job in page.jobs]


def test_an_outbox_is_written_in_an_atomic_block(
    app: Penstock, send: Task[..., [str], None], connection: Any, url: str
) -> None:
    """Without a thread, and without the store."""
    with connection.cursor() as cursor:
        cursor.execute(tables_of(f"{url}?schema=letters"))
    outbox = app.outbox("letters").blocking
    with transaction.atomic():
        job = outbox.enqueue_in(connection, send, "ada")
    with transaction.atomic():
        outbox.enqueue_in(connection, send, "lost")
        transaction.set_rollback(True)
    found = asyncio.run(_carried(url))
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA letters CASCADE")

    assert found == [job.id]
