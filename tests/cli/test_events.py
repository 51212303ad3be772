"""`events`: the newest, after a cursor, for a reader, and following."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from penstock.core.job import QueueRef
from penstock.stores.sqlite.readers import SqliteReaders
from penstock.stores.values import Reader
from tests.cli.conftest import MAIL, Shell
from tests.kit.waiting import PATIENCE


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


def test_json_lines_have_the_cursor_to_go_on_from(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    assert shell("events", "tail", "--queue", "mail", "--limit", "2", "--json") == 0
    cursor = json.loads(shell.out.splitlines()[0])["cursor"]

    assert shell("events", "tail", "--queue", "mail", "--after", cursor, "--json") == 0
    assert json.loads(shell.out)["seq"] == 3


def test_a_cursor_of_another_log_is_a_clear_error(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("events", "tail", "--queue", "mail", "--after", "1-00000000") == 1
    assert "cursor 1-00000000 is not of this log" in shell.err
    assert shell("events", "tail", "--queue", "mail", "--after", "2-00000000") == 1
    assert "beyond event 1" in shell.err


@pytest.mark.parametrize("text", ["yesterday", "-1", "1-x"])
def test_a_text_that_is_no_cursor_is_named(shell: Shell, text: str) -> None:
    shell.enqueue("a")

    assert shell("events", "tail", "--queue", "mail", "--after", text) == 2
    assert repr(text) in shell.err


def test_a_trimmed_cursor_is_a_clear_error(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    shell.store(lambda store: store.events.trim(MAIL, through=2))

    assert shell("events", "tail", "--queue", "mail", "--after", "0") == 1
    assert shell.err.startswith("penstock: error: ")
    assert "trimmed" in shell.err


@pytest.mark.parametrize("option", [["--after", "3"], ["--reader", "audit"]], ids=["after", "reader"])
def test_a_cursor_and_a_reader_need_their_queue(shell: Shell, option: list[str]) -> None:
    assert shell("events", "tail", *option) == 2
    assert "--queue" in shell.err


def test_a_reader_goes_on_where_it_was(shell: Shell) -> None:
    shell.enqueue("a", "b")
    assert _read(shell, "audit") == ["a", "b"]
    assert _read(shell, "audit") == []
    shell.enqueue("c", "d")

    assert _read(shell, "audit", "--limit", "1") == ["c"]
    assert _read(shell, "audit") == ["d"]
    assert _read(shell, "copy") == ["a", "b", "c", "d"]


def test_a_new_reader_begins_with_the_oldest_event_or_where_it_is_put(shell: Shell) -> None:
    shell.enqueue("a", "b", "c", "d")
    shell.store(lambda store: store.events.trim(MAIL, through=1))

    assert _read(shell, "audit") == ["b", "c", "d"]
    assert _read(shell, "late", "--after", "3") == ["d"]
    assert _read(shell, "audit", "--after", "2") == ["c", "d"]
    assert _read(shell, "audit") == []


def test_a_reader_that_dies_before_its_lines_are_written_gets_them_again(shell: Shell) -> None:
    shell.enqueue(*(f"j{number}" for number in range(3_000)))
    command = f"{sys.executable} -m penstock.cli events tail --queue mail --reader audit --json | head -n 1"
    subprocess.run(["sh", "-c", command], capture_output=True, env=os.environ, timeout=PATIENCE, check=False)

    seen = _read(shell, "audit")
    assert seen == [f"j{number}" for number in range(3_000 - len(seen), 3_000)]
    assert len(seen) >= 2_000


def test_a_reader_that_lost_events_is_told_which_and_can_be_put_after_them(shell: Shell) -> None:
    shell.enqueue("a", "b", "c", "d")
    assert _read(shell, "audit", "--limit", "1") == ["a"]
    shell.store(lambda store: store.events.trim(MAIL, through=3))

    assert shell("events", "tail", "--queue", "mail", "--reader", "audit") == 1
    assert "events 2 to 3 of queue mail were trimmed" in shell.err
    assert _read(shell, "audit", "--after", "3") == ["d"]


def test_a_reader_that_follows_keeps_its_place(shell: Shell) -> None:
    shell.enqueue("a")
    late = threading.Timer(0.5, lambda: shell.enqueue("b"))
    late.start()

    assert _read(shell, "audit", "--follow", "--limit", "2") == ["a", "b"]
    late.join()
    assert _read(shell, "audit") == []


def test_reading_renews_the_lease_also_when_there_is_nothing_new(shell: Shell) -> None:
    shell.enqueue("a")
    _read(shell, "audit")
    (before,) = shell.store(lambda store: store.readers.list_readers(MAIL))
    shell.store(lambda store: store.clock.advance_clock(60_000))
    _read(shell, "audit")
    (after,) = shell.store(lambda store: store.readers.list_readers(MAIL))

    assert after.cursor == before.cursor
    assert after.kept_until >= before.kept_until + 60_000


def test_a_reader_that_follows_renews_its_lease_though_nothing_comes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.events.event_printer.RENEW_SECONDS", 0.0)
    monkeypatch.setattr("penstock.cli.events.event_printer.POLL_SECONDS", 0.05)
    shell.enqueue("a")
    _read(shell, "audit")
    (before,) = shell.store(lambda store: store.readers.list_readers(MAIL))
    late = threading.Timer(0.5, lambda: shell.enqueue("b"))
    kept: list[int] = []
    original = SqliteReaders.register_reader

    async def noted(self: SqliteReaders, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        reader = await original(self, queue, name, cursor)
        kept.append(reader.kept_until)
        return reader

    monkeypatch.setattr(SqliteReaders, "register_reader", noted)
    late.start()
    assert _read(shell, "audit", "--follow", "--limit", "1") == ["b"]
    late.join()

    assert len(kept) > 2
    assert kept[0] > before.kept_until


def test_readers_are_listed_and_forgotten(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    _read(shell, "audit", "--limit", "1")

    (listed,) = shell.json_lines("events", "readers")
    assert (listed["queue"], listed["name"], listed["seq"], listed["behind"]) == ("mail", "audit", 1, 2)
    assert listed["cursor"].startswith("1-")
    assert listed["kept_until"].endswith("Z")
    assert shell("events", "readers", "--queue", "mail") == 0
    assert "audit" in shell.out
    assert shell("events", "forget", "audit", "--queue", "mail") == 0
    assert shell("events", "forget", "audit", "--queue", "mail") == 2
    assert "there are: none" in shell.err
    assert shell.json_lines("events", "readers") == []


def test_a_reader_with_an_impossible_name_is_refused(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("events", "tail", "--queue", "mail", "--reader", "a b") == 2
    assert "reader" in shell.err


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

        assert process.wait(PATIENCE) == 130
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

        assert process.wait(PATIENCE) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_went_away_is_no_error(shell: Shell) -> None:
    shell.enqueue(*(f"j{number}" for number in range(3_000)))
    command = f"{sys.executable} -m penstock.cli events tail --queue mail --after 0 | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=os.environ, timeout=PATIENCE
    )

    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def _read(shell: Shell, reader: str, *options: str) -> list[str]:
    """The jobs of the events that the reader gets."""
    assert shell("events", "tail", "--queue", "mail", "--reader", reader, *options, "--json") == 0, shell.err
    return [json.loads(line)["job"] for line in shell.out.splitlines()]
