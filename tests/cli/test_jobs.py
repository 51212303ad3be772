"""`jobs`: list, show, cancel, retry, and how ids are found."""

import pytest

from penstock.core.job import Options, QueueRef
from tests.cli.conftest import MAIL, Shell


def test_jobs_are_listed_newest_first_with_filters(shell: Shell) -> None:
    shell.enqueue("a")
    shell.enqueue("b", task="draw", delay_ms=60_000)
    shell.enqueue("c", queue=QueueRef("default", "web"))

    def ids(*filters: str) -> list[str]:
        return [job["id"] for job in shell.json_lines("jobs", "list", *filters)]

    assert sorted(ids()) == ["a", "b", "c"]
    assert sorted(ids("--queue", "mail")) == ["a", "b"]
    assert ids("--state", "delayed") == ["b"]
    assert ids("--task", "draw") == ["b"]
    assert len(ids("--limit", "1")) == 1


def test_a_page_says_where_the_next_begins(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    first = shell.json_lines("jobs", "list", "--queue", "mail", "--limit", "2")
    second = shell.json_lines(
        "jobs", "list", "--queue", "mail", "--limit", "2", "--after", first[-1]["cursor"]
    )

    assert [len(first), len(second)] == [2, 1]
    assert sorted(job["id"] for job in first + second) == ["a", "b", "c"]
    assert shell("jobs", "list", "--queue", "mail", "--limit", "2") == 0
    assert f"more with: --after {first[-1]['cursor']}" in shell.out


def test_pages_need_a_queue(shell: Shell) -> None:
    assert shell("jobs", "list", "--after", "1/a") == 2
    assert "--after needs --queue" in shell.err


def test_an_unknown_state_names_the_known_ones(shell: Shell) -> None:
    assert shell("jobs", "list", "--state", "asleep") == 2
    assert shell.err.startswith("penstock: error: --state: found 'asleep', wanted some of blocked, pending")


def test_show_hides_the_payload_unless_asked_and_never_shows_the_token(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()
    token = shell.store(lambda store: store.reads.get(MAIL, ["a"]))[0]

    assert shell("jobs", "show", "a") == 0
    assert "ada" not in shell.out
    assert token is not None
    assert (token.token or "") not in shell.out
    assert "lease until" in shell.out
    assert shell("jobs", "show", "a", "--payload") == 0
    assert '{"to":"ada"}' in shell.out
    assert shell.json("jobs", "show", "a", "--payload")["payload"] == {"to": "ada"}


def test_show_has_error_traceback_and_events(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("fail")

    document = shell.json("jobs", "show", "mail/a")

    assert [event["move"] for event in document["events"]] == ["enqueue", "claim", "fail"]
    assert document["events_complete"] is True
    assert document["error"].startswith("ValueError: boom 7\nTraceback")
    assert document["enqueued_at"].endswith("Z")
    assert shell("jobs", "show", "mail/a") == 0
    assert "Traceback" in shell.out
    assert "active → failed" in shell.out


def test_what_a_handler_wrote_cannot_steer_the_terminal(shell: Shell) -> None:
    shell.enqueue("a", idempotency_key="\x1b[31mred[bold]")

    assert shell("jobs", "show", "a") == 0
    assert "\x1b" not in shell.out
    assert "␛[31mred[bold]" in shell.out


def test_a_bare_generated_id_finds_its_queue(shell: Shell) -> None:
    assert shell("enqueue", "send", "--queue", "other", "--declare") == 0
    assert shell("enqueue", "send", "--queue", "mail", "--declare") == 0
    job = shell.out.strip()

    assert shell.json("jobs", "show", job)["queue"] == "mail"


def test_an_id_in_two_queues_must_be_written_with_its_queue(shell: Shell) -> None:
    shell.enqueue("a")
    shell.enqueue("a", queue=QueueRef("default", "web"))

    assert shell("jobs", "show", "a") == 2
    assert "mail/a, web/a" in shell.err
    assert shell.json("jobs", "show", "web/a")["queue"] == "web"


def test_a_missing_job_and_a_missing_queue_are_one_line_each(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("jobs", "show", "nope") == 1
    assert shell.err.startswith("penstock: error: no job nope in any queue")
    assert shell("jobs", "show", "web/a") == 1
    assert shell.err == "penstock: error: no queue 'web' of tenant 'default'; there are: mail\n"
    assert shell("jobs", "show", "mail/../x") == 2
    assert shell("jobs", "show", "a b") == 2


def test_another_tenants_job_is_not_there(shell: Shell) -> None:
    shell.enqueue("a", queue=QueueRef("acme", "mail"))

    assert shell("jobs", "show", "a") == 1
    assert shell("--tenant", "acme", "jobs", "show", "a") == 0
    assert shell("jobs", "show", "a", "--tenant", "acme") == 0


def test_retry_gives_a_dead_job_a_new_drive(shell: Shell) -> None:
    shell.dead("a")

    assert shell.json_lines("jobs", "retry", "a") == [
        {"id": "a", "queue": "mail", "applied": True, "state": "pending"}
    ]
    assert shell.json("jobs", "show", "a")["drive"] == 2


def test_a_job_in_the_wrong_state_is_refused_and_the_others_are_done(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("complete")
    shell.enqueue("b")

    assert shell("jobs", "cancel", "a", "b") == 1
    assert shell.out == "mail/b is cancelled\n"
    assert shell.err == "penstock: error: mail/a is completed: only live jobs can be cancelled\n"


def test_attempts_are_those_without_success_in_tables_as_in_json(shell: Shell) -> None:
    shell.enqueue("done", options=Options(max_attempts=5))
    shell.settle("complete")
    shell.enqueue("again", options=Options(max_attempts=5))
    shell.settle("retry")
    shell.enqueue("runs", options=Options(max_attempts=5))
    shell.claim()
    shell.enqueue("waits", options=Options(max_attempts=5))

    assert shell("jobs", "list") == 0
    shown = {line.split()[0]: line.split()[4] for line in shell.out.splitlines() if "/5" in line}
    assert shown == {"done": "0/5", "again": "1/5", "runs": "0/5", "waits": "0/5"}
    told = {job["id"]: f"{job['attempts']}/5" for job in shell.json_lines("jobs", "list")}
    assert told == shown
    assert shell("jobs", "show", "again") == 0
    assert "1 of 5 used" in shell.out


def test_on_a_narrow_terminal_the_error_stays_and_what_had_no_room_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.dead("a" * 26)
    monkeypatch.setenv("COLUMNS", "80")

    assert shell("jobs", "list") == 0
    assert max(map(len, shell.out.splitlines())) <= 80
    assert "ERROR    ValueError: boom 7" in shell.out
    assert shell.out.endswith("no room for attempts, enqueued: --json has all\n")
