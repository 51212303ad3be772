"""`migrate`: tables brought to this version, and shown before that."""

import sqlite3

import psycopg

from tests.cli.conftest import Shell
from tests.conformance.stores import STORES, Place

POSTGRES = next(kind for kind in STORES if kind.name == "postgres")


def test_a_file_is_brought_up_to_date(shell: Shell) -> None:
    """Looking makes nothing."""
    url = f"sqlite:///{shell.directory / 'new.db'}"
    before = shell.json("migrate", "status", "--url", url, code=1)
    was_made = (shell.directory / "new.db").exists()
    up = shell.json("migrate", "up", "--url", url)
    after = shell.json("migrate", "status", "--url", url)

    assert (before["version"], before["current"], was_made) == (0, False, False)
    assert (up["from"], up["version"]) == (0, before["newest"])
    assert after["current"]


def test_the_sql_for_a_file_makes_the_same_file(shell: Shell) -> None:
    """Run by hand, it leaves nothing to do."""
    assert shell("migrate", "sql", "--url", "sqlite:///by-hand.db") == 0
    base = sqlite3.connect("by-hand.db")
    base.executescript(shell.out)
    base.close()

    assert shell.json("migrate", "status", "--url", "sqlite:///by-hand.db")["current"]


def test_stores_without_tables_say_so(shell: Shell) -> None:
    """Nothing is reached for that."""
    for command in ("up", "status", "sql"):
        assert shell("migrate", command, "--url", "redis://127.0.0.1:1") == 0
        assert "nothing to migrate" in shell.out


def test_a_schema_is_made_and_granted(shell: Shell, where: Place) -> None:
    """Once more, there is nothing to do; `sql` needs no server when told the version."""
    url = f"{POSTGRES.address(where)}?schema=by_command"
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS by_command CASCADE")
    before = shell.json("migrate", "status", "--url", url, code=1)
    first = shell.json("migrate", "up", "--url", url, "--grant-to", "postgres")
    again = shell.json("migrate", "up", "--url", url)
    left = shell.json("migrate", "sql", "--url", url)
    shell("migrate", "sql", "--from", "0", "--grant-to", "app", "--url", "postgresql://127.0.0.1:1/x")
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute("DROP SCHEMA by_command CASCADE")

    assert before["version"] == 0
    assert (first["from"], again["from"]) == (0, first["version"])
    assert left["sql"].startswith("--")
    assert "CREATE TABLE penstock.job" in shell.out
    assert 'TO "app"' in shell.out


def test_sqlite_knows_no_roles(shell: Shell) -> None:
    """The option is refused, not ignored."""
    assert shell("migrate", "up", "--grant-to", "app") == 2
    assert "--grant-to" in shell.err
