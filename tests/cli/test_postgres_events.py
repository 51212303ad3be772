"""`events` and `doctor` on PostgreSQL, where a transaction that stays open holds readers back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from penstock.cli.doctor import reader_checks
from penstock.cli.events import event_printer
from tests.cli.conftest import Shell
from tests.conformance.having import on
from tests.conformance.stores import STORES

pytestmark = on([kind for kind in STORES if kind.name.startswith("postgres")])

READ = ("events", "tail", "--queue", "mail", "--reader", "audit", "--json")


@pytest.fixture(autouse=True)
def worker(shell: Shell) -> None:
    """Somebody serves the queue."""
    shell.register_worker("mail")


def _read(shell: Shell) -> list[tuple[str, int]]:
    assert shell(*READ) == 0, shell.err
    events = [json.loads(line) for line in shell.out.splitlines()]
    return [(event["job"], event["seq"]) for event in events]


@contextmanager
def _began(shell: Shell) -> Iterator["psycopg.Connection[Any]"]:
    """A transaction that has its number, and commits with the block."""
    with psycopg.connect(shell.url, application_name="report") as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield connection


def _write(connection: "psycopg.Connection[Any]", job: str) -> None:
    """Enqueue a job as a statement of the store would, within this transaction."""
    connection.execute(
        "WITH made AS ("
        "INSERT INTO penstock.job (queue, priority, max_attempts, place, stamp, enqueued_at, retention_ms, "
        "key_held_ms, state, id, nonce, task, options, payload) "
        "SELECT job.queue, priority, max_attempts, nextval(queue.numbers), pg_current_xact_id(), "
        "enqueued_at, retention_ms, key_held_ms, 'pending', %s, nonce, task, options, payload "
        "FROM penstock.job JOIN penstock.queue ON queue.n = job.queue WHERE id = 'a' RETURNING *) "
        "INSERT INTO penstock.event "
        "(queue, stamp, seq, at, move, job, version, drive, target, task, priority, max_attempts) "
        "SELECT queue, stamp, place, enqueued_at, 'enqueue', id, 1, 1, state, task, priority, max_attempts "
        "FROM made",
        (job,),
    )


def test_a_reader_misses_nothing_of_one_who_came_first_and_commits_last(shell: Shell) -> None:
    """Numbers are out of order then, and doctor finds nothing wrong with that."""
    shell.enqueue("a")
    first = _read(shell)
    with _began(shell) as late:
        shell.enqueue("b")
        _write(late, "late")
        shell.enqueue("c")
        waits = _read(shell)
    rest = _read(shell)

    assert first == [("a", 1)]
    assert waits == []
    assert rest == [("late", 3), ("b", 2), ("c", 4)]
    assert _read(shell) == []
    assert shell.json("doctor")["healthy"] is True


def test_readers_and_doctor_name_who_holds_them_back(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment is no fault; what cannot be read yet is not held against the jobs."""
    shell.enqueue("a")
    _read(shell)
    with _began(shell) as late:
        shell.enqueue("b")
        who = f"process {late.info.backend_pid} of postgres on database postgres (report)"
        held = shell.json_lines("events", "readers")[0]["held_back"]
        lines = shell("events", "readers"), shell.out
        moment = shell.json("doctor")
        monkeypatch.setattr(reader_checks, "HOLDUP_GRACE_MS", -1)
        report = shell.json("doctor", code=1)
    (after,) = shell.json_lines("events", "readers")

    assert held["who"] == who
    assert held["age_ms"] >= 0
    assert f"by a transaction of {who}" in lines[1]
    assert moment["healthy"] is True
    [check] = [each for each in report["checks"] if each.get("findings")]
    assert check["name"] == "newest events"
    assert who in check["findings"][0]
    assert "held_back" not in after


def test_a_tail_says_beside_the_events_that_newer_ones_are_held_back(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, and not among them; a moment is not worth a word."""
    shell.enqueue("a")
    monkeypatch.setattr(event_printer, "HELD_MS", 3_600_000)
    with _began(shell):
        shell.enqueue("b")
        shell("events", "tail")
        moment = shell.err
        monkeypatch.setattr(event_printer, "HELD_MS", 0)
        shell("events", "tail", "--json")
        lines, said = shell.out.splitlines(), shell.err
    shell("events", "tail")

    assert moment == shell.err == ""
    assert [json.loads(line)["job"] for line in lines] == ["a"]
    assert said.count("\n") == 1
    assert "newer events are held back" in said
