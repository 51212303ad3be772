"""Tests of the PostgreSQL store run on the servers that there are."""

from pathlib import Path

import psycopg
import pytest

from tests.conformance.stores import STORES, Kind, Place
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
