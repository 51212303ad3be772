"""Folders and stores that cannot be used are refused in one line, before a Java is started."""

import pytest

from penstock.cli import lake_audit, spark_run
from penstock.spark import run
from tests.cli.conftest import Shell


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is made."""

    def start(*given: object) -> None:
        pytest.fail("a Java would be started")

    for module in (spark_run, lake_audit):
        monkeypatch.setattr(module, "started", start)
    monkeypatch.setattr(run, "start_session", start)


def test_breaches_are_not_written_where_something_is(shell: Shell) -> None:
    """That is told before the audit, not after."""
    shell.enqueue("a")
    (shell.directory / "breaches").mkdir()

    assert shell("lake", "audit", "--out", "breaches") == 2
    assert shell.err.count("\n") == 1
    assert "--out: found 'breaches', wanted a folder that does not exist" in shell.err


def test_a_variable_that_is_not_set_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """As every other option that is wrong."""
    assert run.main(["--url-env", "PENSTOCK_NOPE", "--out", "tables", "--once"]) == 2
    assert "the environment variable PENSTOCK_NOPE is not set" in capsys.readouterr().err
