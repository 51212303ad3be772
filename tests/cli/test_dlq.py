"""`dlq`: filters, groups, redrive and purge; and that a condition can only read."""

import time

import pytest

from penstock.client.where import Where
from penstock.core.errors import OptionError
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Fault
from penstock.core.states import State
from tests.cli.conftest import MAIL, Shell, Terminal
from tests.conformance.having import shared

TIMEOUT = Fault("TIMEOUT", "Timeout: 3 s", "aaa")
WEB = QueueRef("default", "web")

pytestmark = shared()


@pytest.fixture
def dead(shell: Shell) -> Shell:
    """Three dead jobs of two kinds in two queues."""
    shell.dead("a")
    shell.dead("b", fault=TIMEOUT, task="draw")
    shell.dead("c", queue=WEB, fault=TIMEOUT)
    return shell


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ([], ["a", "b", "c"]),
        (["--queue", "mail"], ["a", "b"]),
        (["--task", "draw"], ["b"]),
        (["--reason", "TIMEOUT"], ["b", "c"]),
        (["--where", "error like 'Timeout%'"], ["b", "c"]),
        (["--where", "error like 'Timeout%' and queue = 'web' -- all of them"], ["c"]),
        (
            ["--where", "json_extract(payload, '$.to') = 'ada' and age < 3600 and attempts = 1"],
            ["a", "b", "c"],
        ),
        (["--where", "ended_at < '2020'"], []),
        (["--limit", "1", "--queue", "web"], ["c"]),
        (["--since", "1h"], ["a", "b", "c"]),
        (["--since", "2099-01-31T12:00Z"], []),
        (["--key", "k"], []),
    ],
)
def test_filters(dead: Shell, filters: list[str], ids: list[str]) -> None:
    assert sorted(job["id"] for job in dead.json_lines("dlq", "list", *filters)) == ids


def test_kinds_of_errors_are_counted_by_fingerprint(dead: Shell) -> None:
    dead.dead("d", "e", queue=WEB, fault=TIMEOUT)

    first, *_ = groups = dead.json_lines("dlq", "list", "--group")

    assert (first["count"], first["fingerprint"], first["queue"]) == (3, "aaa", "web")
    assert len(groups) == 3
    assert dead("dlq", "list", "--group") == 0


def test_groups_are_told_in_the_readers_time(dead: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all other tables; JSON has UTC."""
    last = dead.json_lines("dlq", "list", "--group", "--limit", "1")[0]["last_at"]
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TZ", "XXX-05:30")
    time.tzset()
    try:
        assert dead("dlq", "list", "--group", "--limit", "1", "--absolute-times") == 0
    finally:
        monkeypatch.undo()
        time.tzset()

    assert last.endswith("Z")
    assert "+05:30" in dead.out


def test_a_dry_run_counts_and_shows_and_changes_nothing(dead: Shell) -> None:
    document = dead.json("dlq", "redrive", "--where", "error like 'Timeout%'", "--dry-run")

    assert (document["count"], len(document["sample"])) == (2, 2)
    assert len(dead.json_lines("dlq", "list")) == 3
    assert dead("dlq", "redrive", "--dry-run") == 0
    assert dead.out.startswith("3 dead jobs would be redriven, such as\n")


def test_redrive_takes_what_the_filters_say_and_no_more_than_the_limit(dead: Shell) -> None:
    assert dead.json("dlq", "redrive", "--reason", "TIMEOUT", "--limit", "1")["redriven"] == 1
    assert dead.json("dlq", "redrive", "--queue", "web", "--yes")["redriven"] == 1
    assert [job["id"] for job in dead.json_lines("dlq", "list")] == ["a"]


def test_many_are_redriven_over_pages(shell: Shell) -> None:
    ids = [f"j{number}" for number in range(1_100)]
    shell.enqueue(*ids)
    shell.settle("bury", len(ids))

    assert shell("dlq", "redrive", "--yes") == 0

    assert shell.out == "1100 jobs redriven\n"
    assert "redriven: 1100 of 1100" in shell.err
    assert shell.store(lambda store: store.reads.counts(MAIL))[State.PENDING] == 1_100


def test_redriven_jobs_keep_the_order_in_which_they_died(shell: Shell) -> None:
    ids = [f"j{number:04}" for number in range(1_003)]
    shell.enqueue(*ids)
    shell.settle("bury", len(ids))

    assert shell("dlq", "redrive", "--yes") == 0

    claims = shell.store(lambda store: store.moves.claim(MAIL, worker="w1", limit=len(ids), lease_ms=30_000))
    assert [job.id for job in claims.jobs] == ids


def test_all_dead_jobs_are_redriven_only_after_a_question(
    dead: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dead("dlq", "redrive") == 2
    assert "Run 3 dead jobs again? Standard input is no terminal to ask at: use --yes" in dead.err
    assert dead("dlq", "redrive", "--queue", "mail") == 2

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert dead("dlq", "redrive") == 1
    assert len(dead.json_lines("dlq", "list")) == 3

    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert dead("dlq", "redrive", "--queue", "mail") == 0
    assert dead.err == "Run 2 dead jobs again? [y/N]: "
    assert dead.json("dlq", "redrive", "--yes")["redriven"] == 1


def test_purge_deletes_for_good_and_asks_first(dead: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))

    assert dead("dlq", "purge", "--queue", "web") == 0
    assert dead.err == "Delete 1 dead jobs for good? [y/N]: "
    assert dead.json("dlq", "purge", "--yes")["deleted"] == 2
    assert dead.json_lines("dlq", "list") == []


def test_show_is_for_dead_jobs(dead: Shell) -> None:
    dead.enqueue("live")

    assert dead.json("dlq", "show", "a")["state"] == "dead"
    assert dead("dlq", "show", "live") == 1
    assert "is pending, not dead" in dead.err


@pytest.mark.parametrize(
    "condition",
    [
        "colour = 'red'",
        "1=1; DELETE FROM jobs",
        "1=1) ; DROP TABLE jobs --",
        "id IN (SELECT name FROM sqlite_master)",
        "load_extension('x')",
        "id = (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT max(x) FROM n)",
        "",
        "length(zeroblob(100000000)) > 1",
        "id = '\0'",
    ],
)
def test_a_condition_that_is_none_or_wants_more_than_to_read_is_refused(shell: Shell, condition: str) -> None:
    shell.dead("a")

    with pytest.raises(OptionError, match="wanted an SQL condition over id, queue, task"):
        Where(condition).matching(_jobs(shell), 0)


def test_a_bad_condition_is_one_line_even_without_jobs(shell: Shell) -> None:
    assert shell("dlq", "redrive", "--where", "colour = 'red'") == 2
    assert shell.err.startswith("penstock: error: --where: found \"colour = 'red'\"")
    assert "no such column: colour" in shell.err


def _jobs(shell: Shell) -> list[Job]:
    return [job for job in shell.store(lambda store: store.reads.get(MAIL, ["a"])) if job is not None]
