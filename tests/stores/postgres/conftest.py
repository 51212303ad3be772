"""Tests of the PostgreSQL store run on the servers that there are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import STORES, Kind, Place, opened
from tests.kit import postgres

KINDS = [kind for kind in STORES if kind.name.startswith("postgres")]


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of PostgreSQL; a missing one fails."""
    found: Kind = request.param
    why = found.missing()
    if why is not None:
        pytest.fail(f"no {found.name}: {why}", pytrace=False)
    return found


@pytest.fixture
def url(kind: Kind, where: Place) -> str:
    """The url of an empty store."""
    return kind.address(where)


def binaries_of(kind: Kind) -> Path:
    """The programs of such a server, for a test that starts and ends one of its own."""
    found = postgres.debian_binaries() if kind.name == "postgres-debian" else postgres.wheel_binaries()
    assert found is not None, f"there is no {kind.name} to start"
    return found


async def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Statements of an operator, each on its own; the rows of the last."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        found: list[tuple[object, ...]] = []
        for each in statements:
            cursor = await connection.execute(each.encode())
            found = await cursor.fetchall() if cursor.description else []
        return found


@pytest.fixture
def guarded(url: str) -> Iterator[str]:
    """The url of a schema whose owner is no superuser, and where `mail_app` may act for the tenant mail."""
    asyncio.run(build_guarded(url))
    yield url
    asyncio.run(remove_guarded(url))


async def build_guarded(url: str) -> None:
    """The schema `guarded` with its two roles, and a job of the tenant mail."""
    await run(
        url,
        "CREATE ROLE guarded_owner LOGIN",
        "CREATE ROLE mail_app LOGIN",
        f"GRANT CREATE ON DATABASE {url.rpartition('/')[2]} TO guarded_owner",
    )
    async with opened(PostgresStore(owner_of(url))) as owner:
        await enqueue(owner, QueueRef("mail", "q"), [new_job("a")])
    await run(as_role("guarded_owner", url), "SELECT guarded.admit('mail_app', 'mail')")


async def remove_guarded(url: str) -> None:
    """All of it gone."""
    await run(
        url,
        "DROP SCHEMA guarded CASCADE",
        "DROP OWNED BY mail_app, guarded_owner",
        "DROP ROLE mail_app, guarded_owner",
    )


def as_role(role: str, url: str) -> str:
    """The url of another role."""
    return url.replace("//postgres@", f"//{role}@")


def owner_of(url: str) -> str:
    """The url of the store for the owner of its schema."""
    return f"{as_role('guarded_owner', url)}?schema=guarded"
