"""`events tail`: the newest, after a cursor, and following."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from penstock.core.job import QueueRef
from tests.cli.conftest import MAIL, Shell


def test_the_newest_events_over_all_queues_are_json_lines(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.enqueue("c", queue=QueueRef("default", "web"))
    shell.settle("complete")

    assert shell("events", "tail", "--json") == 0
    events = [json.loads(line) for line in shell.out.splitlines()]
    assert [(event["queue"], event["move"]) for event in events].count(("mail", "enqueue")) == 2
    assert events[-1]["move"] == "complete"
    assert shell("events", "tail", "--json", "--limit", "1") == 0
    assert json.loads(shell.out)["move"] == "complete"


def test_one_readable_line_per_event(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("retry")

    assert shell("events", "tail") == 0
    assert len(shell.out.splitlines()) == 3
    assert "mail#3" in shell.out
    assert "active → delayed" in shell.out
    assert "ERROR: ValueError: boom 7" in shell.out


def test_a_cursor_goes_on_where_it_was(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")

    assert shell("events", "tail", "--queue", "mail", "--after", "1", "--json") == 0
    assert [json.loads(line)["seq"] for line in shell.out.splitlines()] == [2, 3]
    assert shell("events", "tail", "--queue", "mail", "--after", "1", "--limit", "1", "--json") == 0
    assert json.loads(shell.out)["seq"] == 2


def test_a_trimmed_cursor_is_a_clear_error(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    shell.store(lambda store: store.trim(MAIL, through=2))

    assert shell("events", "tail", "--queue", "mail", "--after", "0") == 1
    assert shell.err.startswith("penstock: error: ")
    assert "trimmed" in shell.err


def test_a_cursor_needs_its_queue(shell: Shell) -> None:
    assert shell("events", "tail", "--after", "3") == 2
    assert "--queue" in shell.err


def test_following_sees_what_comes_and_stops_at_its_limit(shell: Shell) -> None:
    shell.enqueue("a")
    late = threading.Timer(0.5, lambda: shell.enqueue("b", "c"))
    late.start()

    assert (
        shell("events", "tail", "--queue", "mail", "--after", "1", "--follow", "--limit", "2", "--json") == 0
    )
    late.join()

    assert [json.loads(line)["job"] for line in shell.out.splitlines()] == ["b", "c"]


def test_following_begins_with_as_many_as_were_asked_for_and_goes_on(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    command = [sys.executable, "-m", "penstock.cli", "events", "tail", "--follow", "--limit", "2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["job"] for _ in range(2)]
        shell.enqueue("d", "e", "f")
        seen += [json.loads(process.stdout.readline())["job"] for _ in range(3)]
        process.send_signal(signal.SIGINT)

        assert process.wait(10) == 130
        assert seen == ["b", "c", "d", "e", "f"]


@pytest.mark.parametrize("queue", [[], ["--queue", "mail"]])
def test_ctrl_c_ends_following_quietly(shell: Shell, queue: list[str]) -> None:
    shell.enqueue("a")
    command = [sys.executable, "-m", "penstock.cli", "events", "tail", "--follow", *queue]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"enqueue" in process.stdout.readline()
        process.send_signal(signal.SIGINT)

        assert process.wait(10) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_went_away_is_no_error(shell: Shell) -> None:
    shell.enqueue(*(f"j{number}" for number in range(3_000)))
    command = f"{sys.executable} -m penstock.cli events tail --queue mail --after 0 | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=os.environ, timeout=30)

    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
