"""Commands on PostgreSQL: what they make, what they refuse, and what they say of it."""

import psycopg
import pytest

from tests.cli.conftest import Shell
from tests.conformance.having import on
from tests.conformance.stores import STORES

pytestmark = on([kind for kind in STORES if kind.name == "postgres"])


def _run(shell: Shell, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(shell.url, autocommit=True) as connection:
        cursors = [connection.execute(each.encode()) for each in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


@pytest.mark.parametrize(
    "command", [("queues", "list"), ("events", "tail"), ("doctor",), ("queues", "pause", "mail")]
)
def test_looking_makes_no_schema(shell: Shell, command: tuple[str, ...]) -> None:
    """Its name may be misspelt."""
    code = shell(*command, "--url", f"{shell.url}?schema=no_such")
    found = _run(shell, "SELECT 1 FROM pg_namespace WHERE nspname = 'no_such'")

    assert (code, found) == (2, [])
    assert "there is no schema no_such" in shell.err


@pytest.mark.parametrize(
    ("query", "why"),
    [("bogus=1", "bogus"), ("role=nobody_at_all", "nobody_at_all"), ("role=pretended", "act as")],
)
def test_a_url_that_cannot_be_used_is_wrong_usage(shell: Shell, query: str, why: str) -> None:
    """Whether nobody knows what it says, or the server does not allow it."""
    shell.enqueue("a")
    _run(shell, "CREATE ROLE pretended", "CREATE ROLE plain LOGIN")
    try:
        plain = shell.url.replace("postgres@", "plain@", 1)
        code = shell("queues", "list", "--url", f"{plain}?{query}")
    finally:
        _run(shell, "DROP ROLE pretended", "DROP ROLE plain")

    assert code == 2, shell.err
    assert why in shell.err
    assert shell.err.count("\n") == 1


def test_granting_to_nobody_is_wrong_usage(shell: Shell) -> None:
    assert shell("migrate", "up", "--grant-to", "nobody_at_all") == 2
    assert "nobody_at_all" in shell.err


def test_doctor_says_that_it_sees_nothing_of_a_tenant(shell: Shell) -> None:
    """A role that was not admitted finds no job, and nothing wrong with any."""
    shell.enqueue("a")
    _run(shell, "CREATE ROLE insider LOGIN", "SELECT penstock.admit('insider', 'other')")
    try:
        insider = shell.url.replace("postgres@", "insider@", 1)
        report = shell.json("doctor", "--url", insider, code=1)
        mine = shell.json("doctor", "--url", insider, "--tenant", "other")
    finally:
        _run(shell, "DROP SCHEMA penstock CASCADE", "DROP OWNED BY insider", "DROP ROLE insider")

    [check] = [each for each in report["checks"] if each.get("findings")]
    assert "not admitted to the tenant default" in check["findings"][0]
    assert mine["healthy"] is True
