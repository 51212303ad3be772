"""Completion of commands and options in a shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.waiting import PATIENCE


def completed(words: str, count: int) -> list[str]:
    """What the program answers to the script of bash."""
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert {"queues", "quarantine"} <= set(completed("penstock qu", 1))
    assert {"limits", "list"} <= set(completed("penstock queues li", 2))
    assert "--absolute-times" in completed("penstock jobs list --abs", 3)


def test_completion_is_installed_for_the_shell_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = os.environ | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "--install-completion", "bash"],
        env=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert done.returncode == 0, done.stderr
    script = tmp_path / ".bash_completions" / "penstock.sh"
    assert "_PENSTOCK_COMPLETE=complete_bash" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()
