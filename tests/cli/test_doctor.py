"""`doctor` finds nothing in a healthy store, and what is wrong in one that is not."""

import sqlite3
from contextlib import closing

from tests.cli.conftest import MAIL, Shell


def names(document: dict[str, list[dict[str, object]]]) -> list[object]:
    return [check["name"] for check in document["checks"] if check.get("findings")]


def test_a_store_with_all_kinds_of_jobs_is_healthy(shell: Shell) -> None:
    shell.enqueue("a", "b", "c", "d")
    shell.settle("complete")
    shell.settle("retry")
    shell.settle("fail")
    shell.claim()
    shell.dead("f")
    shell.enqueue("e", delay_ms=60_000)

    assert shell.json("doctor")["healthy"] is True


def test_an_empty_store_is_healthy(shell: Shell) -> None:
    shell.store(lambda store: store.info())

    document = shell.json("doctor")

    assert document["healthy"] is True
    assert document["store"]["kind"] == "sqlite"
    assert shell("doctor") == 0
    assert shell.out.endswith("healthy\n")


def test_a_turned_clock_is_a_finding(shell: Shell) -> None:
    shell.store(lambda store: store.turn(3_000))

    document = shell.json("doctor", code=1)

    assert names(document) == ["clock offset", "host and store clock"]


def test_leases_that_nobody_recovers_are_a_finding(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()
    shell.store(lambda store: store.turn(60_000))

    assert "leases" in names(shell.json("doctor", code=1))
    assert shell("doctor") == 1
    assert "1 ran out up to 30 s ago and were not recovered" in shell.out


def test_a_job_taken_out_of_the_file_is_a_finding(shell: Shell) -> None:
    shell.enqueue("a", "b")
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        base.execute("DELETE FROM job WHERE id = 'a'")

    document = shell.json("doctor", code=1)

    assert names(document) == ["history"]
    assert shell("doctor") == 1
    assert "not-in-store: queue mail, job a, pending by the log, and not in the store" in shell.out
    assert shell("doctor", "--no-history") == 0


def test_a_trimmed_log_is_checked_from_where_it_begins(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.settle("complete", 2)
    shell.store(lambda store: store.trim(MAIL, through=3))

    document = shell.json("doctor")

    (history,) = [check for check in document["checks"] if check["name"] == "history"]
    assert history["seen"].endswith("the log begins at 4")
