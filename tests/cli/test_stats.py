"""`stats`: what queues did, as text and as JSON."""

import pytest

from penstock.cli.stats_command import WIDTH, sparkline
from tests.cli.conftest import Shell


def test_jobs_in_and_out_are_shown_by_task(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.claim()

    (document,) = shell.json_lines("stats", "--since", "1h")

    assert (document["queue"], document["span_ms"]) == ("mail", 60_000)
    assert (document["total"]["enqueued"], document["total"]["claimed"]) == (2, 1)
    assert document["total"]["wait"]["jobs"] == 1
    assert sum(each["enqueued"] for each in document["tasks"].values()) == 2
    assert sum(each.get("enqueued", 0) for each in document["points"]) == 2
    assert document["gaps"] == []
    assert shell("stats", "--queue", "mail") == 0
    assert "wait p95" in shell.out
    assert "█" in shell.out


@pytest.mark.parametrize("since", ["0s", "31d", "soon"])
def test_a_time_that_cannot_be_is_refused(shell: Shell, since: str) -> None:
    shell.enqueue("a")

    assert shell("stats", "--since", since) != 0
    assert "--since" in shell.err


def test_a_queue_that_is_not_there_is_named(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("stats", "--queue", "nope") != 0
    assert "nope" in shell.err


def test_a_long_line_is_joined_and_an_empty_one_is_flat() -> None:
    assert len(sparkline(range(1_000))) <= WIDTH
    assert sparkline([0, 0, 0]) == "▁▁▁"
    assert sparkline([]) == ""
