"""Folders and stores that cannot be used are refused in one line, before a Java is started."""

import pytest

from penstock.cli import spark_audit, spark_run
from penstock.spark import run
from tests.cli.conftest import Shell


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is made."""

    def start(*given: object) -> None:
        pytest.fail("a Java would be started")

    for module in (spark_run, spark_audit):
        monkeypatch.setattr(module, "started", start)
    monkeypatch.setattr(run, "start_session", start)


def test_breaches_are_not_written_where_something_is(shell: Shell) -> None:
    """That is told before the audit, not after."""
    shell.enqueue("a")
    (shell.directory / "breaches").mkdir()

    assert shell("spark", "audit", "--out", "breaches") == 2
    assert shell.err.count("\n") == 1
    assert "--out: found 'breaches', wanted a folder that is not there yet" in shell.err


@pytest.mark.parametrize("more", [(), ("--table", "jobs")])
def test_a_compaction_of_nothing_is_a_mistake(shell: Shell, more: tuple[str, ...]) -> None:
    """A folder that was mistyped has nothing to make smaller."""
    assert shell("spark", "compact", "--out", "nothing-here", *more) == 2
    assert shell.err.count("\n") == 1
    assert "--out: found 'nothing-here', wanted a folder with tables" in shell.err
    assert not (shell.directory / "nothing-here").exists()


def test_a_table_that_is_none_is_named_first(shell: Shell) -> None:
    assert shell("spark", "compact", "--out", "nothing-here", "--table", "job") == 2
    assert "table: found 'job', wanted one of events, attempts, jobs" in shell.err


def test_a_variable_that_is_not_set_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """As every other option that is wrong."""
    assert run.main(["--url-env", "PENSTOCK_NOPE", "--out", "tables", "--once"]) == 2
    assert "the environment variable PENSTOCK_NOPE is not set" in capsys.readouterr().err
