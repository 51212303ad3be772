"""What a role that was admitted to a tenant can hold up for others, and what it cannot."""

from contextlib import suppress

import psycopg
import pytest

from penstock.core.errors import StoreTimeoutError
from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import as_role, owner_of

MAIL, SHOP = QueueRef("mail", "q"), QueueRef("shop", "q")


_REFUSED = [
    *(
        f"LOCK TABLE guarded.{table} IN ROW SHARE MODE"
        for table in ("queue", "meta", "member", "record", "number_1")
    ),
    "TRUNCATE guarded.job",
    "SELECT 1 FROM guarded.meta FOR KEY SHARE",
    "SELECT setval('guarded.number_1', 1)",
    "CREATE TABLE guarded.other ()",
    "CREATE INDEX ON guarded.job (id)",
]


async def test_a_role_locks_no_table_that_its_moves_delete_nothing_from(guarded: str) -> None:
    """The right to delete rows is the right to lock their table, by PostgreSQL's rules."""
    allowed: list[str] = []
    async with await psycopg.AsyncConnection.connect(as_role("mail_app", guarded)) as connection:
        for statement in _REFUSED:
            with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType):
                await connection.execute(statement.encode())
                allowed.append(statement)
            await connection.rollback()

    assert allowed == []


async def test_a_role_locks_rows_of_its_own_tenant_alone(guarded: str) -> None:
    async with opened(PostgresStore(owner_of(guarded))) as shop:
        await enqueue(shop, SHOP, [new_job("s")])
        async with await psycopg.AsyncConnection.connect(as_role("mail_app", guarded)) as held:
            for table in ("queue", "job", "event"):
                await held.execute(f"SELECT 1 FROM guarded.{table} FOR UPDATE".encode())
            taken = [job.id for job in await claim(shop, SHOP)]

    assert taken == ["s"]


async def test_whom_a_locked_table_holds_up_is_told_in_time_and_goes_on_after(guarded: str) -> None:
    """The wall does not keep a role from it: calls of others fail after a part of their answer_timeout."""
    async with opened(PostgresStore(f"{owner_of(guarded)}&answer_timeout=1s")) as shop:
        await enqueue(shop, SHOP, [new_job("s")])
        async with await psycopg.AsyncConnection.connect(as_role("mail_app", guarded)) as held:
            await held.execute("LOCK TABLE guarded.job")
            with pytest.raises(StoreTimeoutError, match="locked"):
                await claim(shop, SHOP)
        taken = [job.id for job in await claim(shop, SHOP)]

    assert taken == ["s"]
