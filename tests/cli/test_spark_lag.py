"""`penstock spark lag`: how far behind readers are."""

import sqlite3
from contextlib import closing

import psycopg

from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.protocol import Store
from tests.cli.conftest import MAIL, Shell
from tests.conformance.having import on, shared
from tests.conformance.stores import STORES


@shared()
def test_readers_are_listed_with_what_they_have_not_read(shell: Shell) -> None:
    """By how many events, and since when."""

    async def read(store: Store) -> None:
        events = await store.events.read_events(MAIL)
        await store.readers.register_reader(MAIL, "nightly", events[0].cursor)
        await store.readers.register_reader(MAIL, "spark-1", events[2].cursor)
        await store.clock.advance_clock(60_000)

    shell.enqueue("a", "b", "c")
    shell.store(read)
    found = shell.json_lines("spark", "lag")
    code = shell("spark", "lag", "--queue", "mail", "--reader", "nightly")

    assert [(each["queue"], each["reader"], each["seq"], each["behind"]) for each in found] == [
        ("mail", "nightly", 1, 2),
        ("mail", "spark-1", 3, 0),
    ]
    assert found[0]["oldest_unread_ms"] >= 60_000
    assert "oldest_unread_ms" not in found[1]
    assert all(0 < each["lease_left_ms"] <= READER_LEASE_MS - 60_000 for each in found)
    assert code == 0
    assert "nightly" in shell.out
    assert "spark-1" not in shell.out


def test_a_reader_that_has_lost_events_is_named(shell: Shell) -> None:
    """With what it has lost, and with a lease that is over."""

    async def lose(store: Store) -> None:
        await store.readers.register_reader(MAIL, "slow", 1)
        await store.events.trim(MAIL, through=2)
        await store.clock.advance_clock(READER_LEASE_MS)

    shell.enqueue("a", "b", "c")
    shell.store(lose)
    [found] = shell.json_lines("spark", "lag")
    shell("spark", "lag")

    assert found["lost"] == "events 2 to 2 of queue mail were trimmed"
    assert "slow has lost its cursor: events 2 to 2" in shell.out
    assert "over" in shell.out


def test_without_readers_the_list_is_empty(shell: Shell) -> None:
    """And a queue that is not there is told in one line."""
    shell.enqueue("a")

    assert shell.json_lines("spark", "lag") == []
    assert shell("spark", "lag", "--queue", "nobody") == 1
    assert shell.err.count("\n") == 1
    assert "no queue 'nobody'" in shell.err


@on([kind for kind in STORES if kind.name == "postgres"])
def test_who_holds_all_readers_back_is_named(shell: Shell) -> None:
    """A transaction that stays open."""
    shell.enqueue("a")
    assert shell("events", "tail", "--queue", "mail", "--reader", "audit") == 0
    with psycopg.connect(shell.url, application_name="report") as connection:
        connection.execute("SELECT pg_current_xact_id()")
        held = shell.json("spark", "lag")["held_back"]
        shell("spark", "lag")

    assert "(report)" in held["who"]
    assert "newer events are held back" in shell.out


def test_an_older_file_is_refused_and_not_migrated(shell: Shell) -> None:
    """Looking changes nothing."""
    shell.enqueue("a")
    with closing(sqlite3.connect(shell.file)) as connection:
        connection.execute("PRAGMA user_version = 3")

    assert shell("spark", "lag") == 1
    assert "has schema version 3" in shell.err
    with closing(sqlite3.connect(shell.file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
