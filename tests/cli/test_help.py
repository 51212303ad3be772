"""The help of every command: each option tells its default, and no flag shows a type."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from penstock.cli.commands import build
from tests.cli.conftest import Shell

TOLD = re.compile(r"(Default: [^.].*\.|No default\.|Required\.)( \[PENSTOCK_\w+\])?$")


def commands_below(group: Any, words: str) -> Iterator[tuple[str, Any]]:
    yield words, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_below(command, f"{words} {name}")


def test_every_option_tells_its_default_or_that_there_is_none() -> None:
    root = typer.main.get_command(build())
    silent = [
        f"{words} {option.opts[0]}: {option.help}"
        for words, command in commands_below(root, "penstock")
        for option in command.params
        # --help, --version and --install-completion are actions.
        if option.param_type_name == "option"
        and option.expose_value
        and not option.is_eager
        and not TOLD.search(option.help or "")
    ]

    assert silent == []


def test_every_option_that_takes_a_value_names_it_and_no_flag_has_a_type(shell: Shell) -> None:
    root = typer.main.get_command(build())
    unnamed = [
        f"{words} {option.opts[0]}"
        for words, command in commands_below(root, "penstock")
        for option in command.params
        if option.param_type_name == "option" and not option.is_flag and not option.metavar
    ]

    assert unnamed == ["penstock queues declare --mode"], "its choices are shown instead"
    for words, _ in commands_below(root, ""):
        assert shell(*words.split(), "--help") == 0
        assert "<bool>" not in shell.out


def test_the_default_of_a_setting_is_that_of_the_setting(shell: Shell) -> None:
    assert shell("serve", "--help") == 0
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", shell.out).split())
    assert "Port to listen on; 0 picks a free port. Default: 8640. [PENSTOCK_SERVE_PORT]" in text
