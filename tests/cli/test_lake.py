"""`penstock lake`: what it says of tables, and what it does to them. No Java is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import lake
from tests.cli.conftest import Shell
from tests.core.histories import told_history
from tests.spark.lake_kit import bring, event_rows, made

EVENTS = event_rows(told_history().events)


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is made."""
    monkeypatch.setattr(lake, "started", lambda *_given, **_conf: pytest.fail("a Java would be started"))


@pytest.fixture
def filled(shell: Shell) -> Path:
    """A lake of three batches."""
    folder = shell.directory / "lake"
    bring(made(folder), EVENTS[:20], EVENTS[20:40], EVENTS[40:])
    return folder


def documents(shell: Shell) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell.out.splitlines()]


def test_tables_are_listed_with_how_far_they_go(shell: Shell, filled: Path) -> None:
    assert shell("lake", "tables", "lake", "--json") == 0
    found = {each["table"]: each for each in documents(shell)}

    assert set(found) == {"events", "attempts", "jobs"}
    assert found["events"]["rows"] == len(EVENTS)
    assert {each["batch"] for each in found.values()} == {2}
    assert shell("lake", "tables", "lake") == 0
    assert "events" in shell.out


def test_versions_that_belong_together_are_listed(shell: Shell, filled: Path) -> None:
    assert shell("lake", "history", "lake", "--json", "--limit", "2") == 0

    assert [each["batch"] for each in documents(shell)] == [2, 1]
    assert {"events", "attempts", "jobs", "at", "batch", "figures"} == set(documents(shell)[0])
    assert documents(shell)[0]["figures"]["events"] == len(EVENTS) - 40


def test_files_are_joined_and_old_ones_removed(shell: Shell, filled: Path) -> None:
    assert shell("lake", "optimize", "lake", "--table", "events", "--json") == 0
    (done,) = documents(shell)
    assert (done["before"], done["after"]) == (3, 1)

    assert shell("lake", "vacuum", "lake", "--keep", "0h", "--dry-run", "--json") == 0
    told = {each["table"]: each["removed"] for each in documents(shell)}
    assert told["events"] == 3
    assert shell("lake", "vacuum", "lake", "--keep", "0h", "--json") == 0
    assert {each["table"]: each["removed"] for each in documents(shell)} == told
    assert shell("lake", "tables", "lake", "--json") == 0
    assert documents(shell)[0]["rows"] == len(EVENTS)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("tables", "nothing-here"), 1, "bronze/events: there is no table"),
        (("register", "nothing-here"), 1, "bronze/events: there is no table"),
        (
            ("optimize", "lake", "--table", "job"),
            2,
            "table: found 'job', wanted one of events, attempts, jobs",
        ),
        (("vacuum", "lake", "--keep", "90m"), 2, "--keep: found '90m', wanted whole hours, such as 24h"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    shell: Shell, filled: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert shell("lake", *arguments) == code

    assert shell.err.count("\n") == 1
    assert said in shell.err
    assert not (shell.directory / "nothing-here").exists()


def test_a_lake_of_the_old_layout_is_refused(shell: Shell) -> None:
    (shell.directory / "old" / "events" / "_manifests").mkdir(parents=True)

    assert shell("lake", "tables", "old") == 1
    assert "penstock spark run --out NEW --once" in shell.err
