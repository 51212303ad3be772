"""The edges: exit codes, one line per error, no tracebacks, and quickness where nothing is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Shell, use_module
from tests.kit.waiting import PATIENCE


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nosuch"], 2, "No such command 'nosuch'."),
        (["jobs", "lst"], 2, "No such command 'lst'. Did you mean 'list'?"),
        (["jobs", "list", "--bogus"], 2, "No such option: --bogus"),
        (["jobs", "list", "--limit", "many"], 2, "--limit: found 'many', wanted a whole number"),
        (["jobs", "list", "--limit", "0"], 2, "--limit: found '0', wanted a whole number from 1"),
        (["jobs", "list", "--limit", "9" * 20], 2, "wanted a whole number from 1 to 1000000000"),
        (
            ["jobs", "list", "--queue", "mail", "--after", "zzz"],
            2,
            "--after: found 'zzz', wanted the cursor",
        ),
        (["jobs", "list", "--queue", "mail", "--after", "9" * 20 + "/a"], 2, "wanted the cursor of a job"),
        (["events", "tail", "--limit", "9" * 20], 2, "Invalid value for '--limit'"),
        (["events", "tail", "--queue", "mail", "--after", "9" * 20], 2, "--after: found '99"),
        (["queues", "keys", "mail", "--first", "9" * 20], 2, "Invalid value for '--first'"),
        (["queues", "pause", "mail", "--for", "9" * 20 + "d"], 2, "--for: found '99"),
        (["schedules", "add", "a", "b", "--every", "9" * 20 + "d"], 2, "--every: found '99"),
        (["enqueue", "send", "--queue", "mail", "--run-at", "0001-01-01T00:00"], 2, "--run-at: found '0001"),
        (["--json"], 2, "Missing command."),
        (["jobs", "show"], 2, "Missing argument"),
        (["--tenant", "a/b", "queues", "list"], 2, "--tenant: found 'a/b'"),
        (["queues", "show", "mail"], 1, "no queue 'mail' of tenant 'default'; there are: none"),
        (["--config", "gone.toml", "queues", "list"], 2, "gone.toml: cannot be read as TOML"),
        (["--url", "carrier-pigeon://coop", "queues", "list"], 2, "carrier-pigeon"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    shell: Shell, arguments: list[str], code: int, said: str
) -> None:
    assert shell(*arguments) == code
    assert shell.err.startswith("penstock: error: ")
    assert said in shell.err
    assert shell.err.count("\n") == 1
    assert shell.out == ""


def test_without_a_store_the_three_ways_to_name_one_are_told(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_URL")

    assert shell("queues", "list") == 2
    assert "give --url, set PENSTOCK_URL, or put url in penstock.toml" in shell.err


def test_a_file_that_is_no_store_is_one_line(shell: Shell) -> None:
    shell.file.write_bytes(b"This is not a database, it only has its name." * 100)

    assert shell("queues", "list") == 1
    assert shell.err.startswith("penstock: error: ")
    assert shell.err.count("\n") == 1


def test_looking_at_a_file_that_is_not_there_does_not_make_it(shell: Shell) -> None:
    assert shell("doctor", "--url", "sqlite:///typo.db") == 2
    assert "sqlite:///typo.db: there is no such file" in shell.err
    assert not Path("typo.db").exists()


@pytest.mark.parametrize("command", [["doctor"], ["jobs", "list"], ["queues", "pause", "mail"]])
def test_looking_at_the_store_of_an_app_does_not_make_it_either(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("PENSTOCK_URL")
    use_module(monkeypatch, "elsewhere", "from penstock import Penstock\napp = Penstock('sqlite:///typo.db')")

    assert shell(*command, "--app", "elsewhere:app") == 2
    assert f"sqlite:///typo.db: there is no such file as {shell.directory / 'typo.db'}" in shell.err
    assert not Path("typo.db").exists()


def test_debug_shows_where(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("queues", "show", "mail", "--debug") == 1
    assert "Traceback" in shell.err
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert shell("queues", "show", "mail") == 1
    assert "Traceback" in shell.err


def test_an_error_of_our_own_is_a_line_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("penstock.cli.command_context.open_store", broken)

    assert shell("queues", "list") == 1
    assert shell.err.startswith("penstock: error: ZeroDivisionError: division by zero\n")
    assert "Traceback" not in shell.err


def test_settings_stand_before_and_after_the_command(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.enqueue("a")
    monkeypatch.delenv("PENSTOCK_URL")
    url = f"sqlite:///{shell.file}"

    assert shell("--url", url, "--json", "queues", "list") == 0
    before = shell.out
    assert shell("queues", "list", "--url", url, "--json") == 0
    assert before == shell.out
    Path("penstock.toml").write_text(f'url = "{url}"\njson = true')
    assert shell("queues", "list") == 0
    assert before == shell.out


def test_the_version_is_quick(shell: Shell) -> None:
    assert shell("--version") == 0
    assert shell.out.startswith("penstock 0.")
    code = "import sys; from penstock.cli.main import run; run(['--version']); print('typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_version_is_told_beside_other_options(shell: Shell) -> None:
    assert shell("--tenant", "acme", "--version") == 0
    assert shell.out.startswith("penstock 0.")
    assert shell("--version", "--json") == 0
    assert json.loads(shell.out)["version"].startswith("0.")


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("jobs list > /dev/full", 1, "penstock: error: [Errno 28] No space left on device\n"),
        ("doctor --json > /dev/full", 1, "penstock: error: [Errno 28] No space left on device\n"),
        ("doctor >&-", 0, ""),
        ("doctor --json <&- >&- 2>&-", 0, ""),
        ("queues show nosuch 2>&-", 1, ""),
    ],
)
def test_streams_that_are_closed_or_full_are_no_surprise(
    shell: Shell, closed: str, code: int, said: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m penstock.cli {closed}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_help_comes_with_nothing_and_names_the_variables(shell: Shell) -> None:
    assert shell() == 2
    assert (shell.out + shell.err).count("Usage: penstock") == 1
    assert shell("jobs", "list", "--help") == 0
    assert "PENSTOCK_URL" in shell.out
