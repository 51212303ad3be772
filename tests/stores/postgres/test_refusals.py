"""A server that refuses what it did before: that passes, and callers that can wait do."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest

from penstock import Penstock
from penstock.core.errors import ConfigError, StoreReadOnlyError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.faults import Faults
from penstock.stores.postgres.owner import SchemaOwner
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE

QUEUE = QueueRef("default", "q")
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
REFUSALS = {
    "the login": (["ALTER ROLE {role} NOLOGIN", END], ["ALTER ROLE {role} LOGIN"]),
    "writes": (
        ["ALTER ROLE {role} SET default_transaction_read_only = on", END],
        ["ALTER ROLE {role} RESET default_transaction_read_only"],
    ),
    "the rights": (
        ["REVOKE ALL ON ALL TABLES IN SCHEMA refusing FROM {role}"],
        ["GRANT ALL ON ALL TABLES IN SCHEMA refusing TO {role}"],
    ),
    "the tables": (["DROP SCHEMA refusing CASCADE"], []),
}


class Refusing:
    """A server that can be made to refuse what a role does in a schema."""

    def __init__(self, url: str, role: str) -> None:
        self._operator = url
        self._role = role
        self.url = f"{url.replace('postgres@', f'{role}@', 1)}?schema=refusing"

    async def run(self, *statements: str) -> None:
        """Statements of the user who owns everything; a deadlock with a worker is tried again."""
        async with await psycopg.AsyncConnection.connect(self._operator, autocommit=True) as operator:
            for each in statements:
                is_done = False
                while not is_done:
                    with suppress(psycopg.errors.DeadlockDetected):
                        await operator.execute(each.format(role=self._role).encode())
                        is_done = True

    async def put_back(self, what: str) -> None:
        """Let it be done again."""
        await self.run(*REFUSALS[what][1])
        if what == "the tables":
            await SchemaOwner(f"{self._operator}?schema=refusing").up([self._role])


@asynccontextmanager
async def refusing(url: str) -> AsyncIterator[Refusing]:
    """The schema and the role, gone after the block."""
    role = f"refused_{secrets.token_hex(4)}"
    server = Refusing(url, role)
    await server.run("DROP SCHEMA IF EXISTS refusing CASCADE", "CREATE ROLE {role} LOGIN")
    await SchemaOwner(f"{url}?schema=refusing").up([role])
    try:
        yield server
    finally:
        await server.run("DROP SCHEMA IF EXISTS refusing CASCADE", "DROP OWNED BY {role}", "DROP ROLE {role}")


async def _until_refused(store: PostgresStore) -> None:
    """Write until the server says why it does not have it; first it may only hang up."""
    while True:
        try:
            await store.queues.pause_queue(QUEUE, None)
        except StoreUnavailableError as error:
            if "worked before" in str(error):
                return


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_worker_and_a_producer_live_through_a_refusal_of(url: str, what: str) -> None:
    """Neither is started anew."""
    async with asyncio.timeout(PATIENCE), refusing(url) as server:
        app, store = Penstock(server.url, retry_timeout=PATIENCE), PostgresStore(server.url)

        @app.task
        async def double(number: int) -> int:
            return 2 * number

        async with app, opened(store):
            worker = app.worker(poll=0.05)
            working = asyncio.create_task(worker.run())
            await (await double.enqueue(1)).result(timeout=PATIENCE)
            await server.run(*REFUSALS[what][0])
            await _until_refused(store)
            meanwhile = asyncio.create_task(double.enqueue(2))
            for _ in range(20):
                await _until_refused(store)
            are_waiting = not meanwhile.done(), not working.done()
            await server.put_back(what)
            found = await (await meanwhile).result(timeout=PATIENCE)
            worker.stop()
            await working

    assert are_waiting == (True, True)
    assert found == 4


async def test_tables_made_anew_between_two_calls_are_not_taken_for_the_old_ones(url: str) -> None:
    """Their queues have other numbers."""
    async with asyncio.timeout(PATIENCE), refusing(url) as server:
        store = PostgresStore(server.url)
        async with opened(store):
            await enqueue(store, QueueRef("default", "other"), [new_job("a")])
            await enqueue(store, QUEUE, [new_job("a")])
            await server.run(*REFUSALS["the tables"][0])
            await server.put_back("the tables")
            await enqueue(store, QUEUE, [new_job("b")])
            found = [event.job for event in await store.events.read_events(QUEUE)]

    assert found == ["b"]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("REVOKE INSERT ON ALL TABLES IN SCHEMA refusing FROM {role}", ConfigError),
        ("ALTER ROLE {role} SET default_transaction_read_only = on", StoreReadOnlyError),
    ],
)
async def test_what_was_refused_from_the_start_is_not_waited_for(
    url: str, statement: str, error: type[Exception]
) -> None:
    """The url is wrong, or the rights are."""
    async with asyncio.timeout(PATIENCE), refusing(url) as server:
        await SchemaOwner(f"{url}?schema=refusing").up([])
        async with opened(PostgresStore(server.url)) as store:
            await store.queues.open_queue(QUEUE)
        await server.run(statement)
        async with opened(PostgresStore(server.url)) as store:
            with pytest.raises(error):
                await enqueue(store, QUEUE, [new_job("a")])


async def test_a_user_with_a_single_connection_is_refused_at_the_start(url: str) -> None:
    """One that listens and one for calls are needed: a worker would wait for the second for ever."""
    async with asyncio.timeout(PATIENCE), refusing(url) as server:
        await server.run("ALTER ROLE {role} CONNECTION LIMIT 1")
        with pytest.raises(ConfigError, match="CONNECTION LIMIT"):
            await PostgresStore(server.url).open()


def test_a_short_password_is_hidden_where_it_stands_alone() -> None:
    """And not within the words of the message."""
    faults = Faults("the server", ("s", "t0p"))
    said = str(faults.translate(psycopg.OperationalError("servers say 's' and t0p=1")))

    assert said == "the server cannot be reached: servers say '…' and …=1"


@pytest.mark.parametrize(
    "error", [psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName]
)
def test_a_pooler_that_takes_settings_and_shares_its_connections_is_found_out(
    error: type[psycopg.Error],
) -> None:
    """By statements that another one has prepared, or that this one has elsewhere."""
    found = Faults("the server").translate(error("prepared statement _pg3_0"))

    assert isinstance(found, ConfigError)
    assert "add pooler=transaction to the url" in str(found)
