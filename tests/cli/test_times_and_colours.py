"""What people see in tables: times relative to now, or in full on request, and states in colours."""

import io
import re

from rich.console import Console

from penstock.cli.output import Output, Styled
from penstock.core.states import State
from tests.cli.conftest import Shell


def on_a_terminal(out: Output) -> io.StringIO:
    """What the output writes, as a terminal with colours gets it."""
    screen = io.StringIO()
    out.console = Console(file=screen, force_terminal=True, color_system="standard", width=80)
    return screen


def test_tables_show_how_long_ago_something_was(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("jobs", "list") == 0
    assert re.search(r"\d+(\.\d)? m?s ago", shell.out)


def test_absolute_times_come_from_the_flag_or_the_setting(shell: Shell) -> None:
    shell.enqueue("a")
    in_full = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}")

    assert shell("jobs", "list", "--absolute-times") == 0
    assert in_full.search(shell.out)
    assert shell("--absolute-times", "jobs", "list") == 0
    assert in_full.search(shell.out)
    (shell.directory / "penstock.toml").write_text("absolute_times = true")
    assert shell("jobs", "list") == 0
    assert in_full.search(shell.out)


def test_states_have_colours_on_a_terminal_only(shell: Shell) -> None:
    out = Output(json=False)
    screen = on_a_terminal(out)
    out.table(["state"], [(State.DEAD,), (State.COMPLETED,), (Styled("ok", "green"),), ("dead",)])
    out.fields([("state", State.ACTIVE)])
    shell.dead("a")

    assert screen.getvalue().count("\x1b[1;31mdead") == 1
    assert "\x1b[32mcompleted\x1b[0m" in screen.getvalue()
    assert "\x1b[32mok" in screen.getvalue()
    assert "\x1b[33mactive\x1b[0m" in screen.getvalue()
    assert shell("jobs", "list") == 0
    assert "\x1b" not in shell.out


def test_a_list_is_one_object_per_line_and_nothing_when_it_is_empty(shell: Shell) -> None:
    assert shell.json_lines("jobs", "list") == []
    shell.enqueue("a", "b")

    assert sorted(job["id"] for job in shell.json_lines("jobs", "list")) == ["a", "b"]
    assert [queue["queue"] for queue in shell.json_lines("queues", "list")] == ["mail"]
