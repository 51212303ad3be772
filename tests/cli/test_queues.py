"""`queues`: counts, pause, resume, purge."""

import io

import pytest

from penstock.cli.jobs import job_pages
from penstock.cli.queues import queue_commands
from penstock.core.job import QueueRef
from tests.cli.conftest import MAIL, Shell, Terminal


def test_counts_by_state(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.enqueue("c", delay_ms=60_000)

    (queue,) = shell.json_lines("queues", "list")

    assert queue["queue"] == "mail"
    assert (queue["counts"]["pending"], queue["counts"]["delayed"]) == (2, 1)
    assert shell("queues", "list") == 0
    assert shell.out.split()[0] == "queue"


def test_a_narrow_terminal_gets_fewer_columns_and_their_names(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.enqueue("a")
    monkeypatch.setenv("COLUMNS", "60")

    assert shell("queues", "list") == 0

    assert max(map(len, shell.out.splitlines())) <= 60
    assert "pending" in shell.out
    table, _, rest = shell.out.partition("no room for ")
    assert "blocked" not in table
    assert " ".join(rest.split()) == "blocked, completed, failed, cancelled, mode: --json has all"


def test_the_mode_is_shown(shell: Shell) -> None:
    assert shell("queues", "declare", "mail", "--mode", "keyed") == 0

    assert shell.json_lines("queues", "list")[0]["mode"] == "keyed"
    for command in (["list"], ["show", "mail"]):
        assert shell("queues", *command) == 0
        assert "keyed" in shell.out


def test_show_names_leases_and_workers(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()

    document = shell.json("queues", "show", "mail")

    assert (document["leases"], document["workers"], document["expired_leases"]) == (1, ["w1"], 0)
    assert document["events"] == {"first": 1, "last": 2}


def test_pause_and_resume(shell: Shell) -> None:
    shell.enqueue("a")

    paused = shell.json("queues", "pause", "mail", "--reason", "down", "--by", "ada", "--for", "10m")["pause"]
    assert (paused["reason"], paused["by"]) == ("down", "ada")
    assert shell.store(lambda store: store.moves.claim(MAIL, worker="w", limit=1, lease_ms=1_000)).jobs == []
    assert "pause" not in shell.json("queues", "resume", "mail")
    assert (
        len(shell.store(lambda store: store.moves.claim(MAIL, worker="w", limit=1, lease_ms=1_000)).jobs) == 1
    )


def test_a_pause_needs_a_duration_that_is_one(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("queues", "pause", "mail", "--for", "soon") == 2
    assert shell.err.startswith("penstock: error: --for: found 'soon', wanted seconds, or a duration")
    assert shell("queues", "pause", "mail", "--for", "0") == 2


def test_purge_deletes_what_waits_and_leaves_the_rest(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("complete")
    shell.enqueue("b", "c")
    shell.claim()
    shell.enqueue("d", delay_ms=60_000)

    assert shell.json("queues", "purge", "mail", "--yes") == {"queue": "mail", "deleted": 2, "kept": 0}
    counts = shell.json_lines("queues", "list")[0]["counts"]
    assert {state: count for state, count in counts.items() if count} == {"active": 1, "completed": 1}


def test_purge_goes_through_pages_in_smaller_batches(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_commands, "PAGE", 5)
    monkeypatch.setattr(job_pages, "BATCH", 2)
    shell.enqueue(*(f"j{n}" for n in range(12)))

    assert shell.json("queues", "purge", "mail", "--yes")["deleted"] == 12
    assert shell.json("queues", "show", "mail")["counts"]["pending"] == 0


def test_lists_say_how_long_the_oldest_job_waits(shell: Shell) -> None:
    shell.enqueue("a")
    shell.enqueue("b", queue=QueueRef("default", "later"), delay_ms=60_000)
    shell.store(lambda store: store.clock.advance_clock(7_200_000))
    shell.store(lambda store: store.moves.promote(QueueRef("default", "later")))
    found = [each["queue"] for each in shell.json_lines("queues", "list") if "oldest_at" in each]
    shell("queues", "list")
    listed = shell.out
    shell("queues", "show", "mail")

    assert found == ["later", "mail"]
    assert listed.count("2 h") == 2
    assert shell.out.count("2 h") == 1
    shell.claim()
    assert "oldest_at" not in shell.json("queues", "show", "mail")


def test_purge_asks_first(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.enqueue("a")
    monkeypatch.setattr("sys.stdin", Terminal("\ny\n"))

    assert shell("queues", "purge", "mail", "--json") == 1
    asked = "Delete up to 1 blocked, delayed, pending jobs of queue 'mail' for good? [y/N]: "
    assert shell.err == f"{asked}penstock: aborted\n"
    assert shell.out == ""
    assert shell.json_lines("queues", "list")[0]["counts"]["pending"] == 1
    assert shell.json("queues", "purge", "mail")["deleted"] == 1


@pytest.mark.parametrize("command", [["queues", "purge", "mail"], ["dlq", "purge"]])
def test_purge_without_a_terminal_names_the_option(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    shell.dead("b")
    shell.enqueue("a")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    assert shell(*command, "--json") == 2
    assert "for good? Standard input is no terminal to ask at: use --yes" in shell.err
    assert shell.out == ""


def test_what_runs_cannot_be_purged(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("queues", "purge", "mail", "--state", "active", "--yes") == 2
    assert "running jobs cannot be deleted" in shell.err


def test_many_jobs_are_purged_in_pages_with_progress(shell: Shell) -> None:
    shell.enqueue(*(f"j{number}" for number in range(1_200)))

    assert shell("queues", "purge", "mail", "--yes") == 0
    assert shell.out.startswith("deleted 1200 ")
    assert "deleting: 1200 of 1200" in shell.err


def test_an_empty_queue_is_deleted(shell: Shell) -> None:
    shell.store(lambda store: store.queues.open_queue(MAIL))

    assert shell("queues", "delete", "mail", "--yes") == 0
    assert shell.out == "deleted queue 'mail'\n"
    assert shell.json_lines("queues", "list") == []
    assert shell("queues", "delete", "mail", "--yes") == 1
    assert shell.err == "penstock: error: no queue 'mail' of tenant 'default'; there are: none\n"


def test_a_queue_with_jobs_is_kept_and_says_why(shell: Shell) -> None:
    shell.dead("b")
    shell.enqueue("a")

    assert shell("queues", "delete", "mail", "--yes") == 1
    assert shell.err == (
        "penstock: error: queue 'mail' was not deleted: found 1 pending job and 1 dead job; "
        "first cancel or purge the jobs that wait, purge the jobs that ended\n"
    )
    counts = shell.json_lines("queues", "list")[0]["counts"]
    assert (counts["pending"], counts["dead"]) == (1, 1)


def test_ended_jobs_are_purged_before_a_queue_is_deleted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.dead("b")
    shell.enqueue("a")
    shell.settle("complete")
    monkeypatch.setattr("sys.stdin", Terminal("\n"))

    assert shell("queues", "delete", "mail", "--purge") == 1
    assert shell.err == "Delete queue 'mail' and 2 ended jobs for good? [y/N]: penstock: aborted\n"
    assert shell.json("queues", "delete", "mail", "--purge", "--yes") == {"queue": "mail", "deleted_jobs": 2}
    assert shell.json_lines("queues", "list") == []


def test_a_purge_leaves_what_waits_and_the_queue_with_it(shell: Shell) -> None:
    shell.dead("b")
    shell.enqueue("a")

    assert shell("queues", "delete", "mail", "--purge", "--yes") == 1
    assert "found 1 pending job; first cancel or purge the jobs that wait" in shell.err
    assert shell.json_lines("queues", "list")[0]["counts"]["pending"] == 1
