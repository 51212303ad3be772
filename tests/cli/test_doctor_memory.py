"""`doctor` reads queues of any length: its memory hardly grows with the number of jobs."""

import gc
import json
import re
import sys
import tracemalloc

import pytest

from penstock.cli.doctor import history_checks
from penstock.cli.jobs.job_pages import PAGE
from penstock.core.history import lines, scratch
from penstock.stores.redis import events as redis_events
from tests.cli.conftest import Shell, Terminal
from tests.conformance.having import shared

pytestmark = shared()

BYTES_PER_JOB = 40
"""A job's id alone takes twice as much in a Python list."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and what stays in memory are small beside the number of jobs."""
    assert PAGE >= scratch.HOT
    monkeypatch.setattr(history_checks, "PAGE", 500)
    monkeypatch.setattr(history_checks, "CHUNK", 500)
    monkeypatch.setattr(scratch, "HOT", 500)
    monkeypatch.setattr(lines, "CHUNK", 100)
    monkeypatch.setattr(redis_events, "PAGE", 500)


def fill(shell: Shell, first: int, last: int) -> None:
    for start in range(first, last, 1_000):
        shell.enqueue(*(f"job-{number:08d}" for number in range(start, start + 1_000)))


def examine(shell: Shell) -> None:
    """All is well with the queue, whatever the server's settings are."""
    shell("doctor", "--json")
    checks = json.loads(shell.out)["checks"]
    assert [check for check in checks if "queue" in check and check.get("findings")] == []


def peak_of_doctor(shell: Shell) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        examine(shell)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("small")
def test_memory_hardly_grows_with_the_number_of_jobs(shell: Shell) -> None:
    shell.register_worker("mail")
    fill(shell, 0, 1_000)
    examine(shell)
    fill(shell, 1_000, 4_000)
    few = peak_of_doctor(shell)
    fill(shell, 4_000, 12_000)
    many = peak_of_doctor(shell)

    assert (many - few) / 8_000 < BYTES_PER_JOB


def test_long_work_says_how_far_it_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_checks, "QUIET_UNDER", 100)
    shell.register_worker("mail")
    fill(shell, 0, 1_000)

    shell("doctor")

    assert re.search(r"^reading the live jobs of mail: 1000 of 1000$", shell.err, re.MULTILINE)
    assert re.search(r"^checking the events of mail: 1000 of 1000$", shell.err, re.MULTILINE)


def test_a_terminal_gets_a_bar_instead(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_checks, "QUIET_UNDER", 100)
    shell.register_worker("mail")
    fill(shell, 0, 1_000)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    shell("doctor")

    assert "━" in terminal.getvalue()
    assert " of 1000" not in terminal.getvalue()
