"""The reference pages name everything there is: commands, options, settings, errors, fields, names."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import typer

import penstock
import penstock.testing
from penstock import settings
from penstock.cli.commands import build
from penstock.cli.options import GLOBAL
from penstock.core import errors
from penstock.core.errors import PenstockError
from penstock.core.events import Event
from penstock.service.egress import errors as egress_errors
from penstock.service.webhooks import errors as webhook_errors
from penstock.spark import errors as spark_errors
from penstock.tasks.context import JobContext
from penstock.tasks.options import CallOptions
from tests.docs.pages import ROOT, section

REFERENCE: Final = ROOT / "docs" / "reference"
CLI: Final = REFERENCE / "cli.md"


def text_of(page: str) -> str:
    return (REFERENCE / page).read_text("utf-8")


def test_every_command_and_option_of_the_command_line_is_on_its_page() -> None:
    assert section(text_of("cli.md"), "commands") == commands_part()


def test_every_setting_is_on_its_page_with_its_flag_and_variable() -> None:
    text = text_of("settings.md")

    for name in settings.names():
        # Whoever lists processes sees what stands on a command line: a secret has no flag.
        flag = (
            "–"
            if name in {"token", "secret_key"} or name.startswith("bloom.")
            else f"`{settings.flag_of(name)}`"
        )
        row = f"| `{name}` | {flag} | `{settings.variable_of(name)}` | {default_of(name)} |"
        assert f"\n{row}" in text


def test_every_error_is_on_its_page() -> None:
    text = text_of("errors.md")
    own = {
        name
        for module in (errors, egress_errors, webhook_errors, spark_errors)
        for name, each in vars(module).items()
        if inspect.isclass(each) and issubclass(each, PenstockError)
    }

    assert sorted(name for name in own if f"`{name}`" not in text) == []
    assert sorted(own - set(penstock.__all__)) == []


def test_every_field_of_an_event_is_on_its_page() -> None:
    fields = {each.encode_name for each in msgspec.structs.fields(Event)}
    listed = re.findall(r"^\| `(\w+)` \|", text_of("events.md"), re.MULTILINE)

    assert set(listed) == fields
    assert len(listed) == len(fields)


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    text = text_of("api.md")
    public = [name for name in penstock.__all__ if not name.endswith("Error")]
    fields = [name for name in JobContext.__slots__ if not name.startswith("_")]
    wanted = [*public, *penstock.testing.__all__, *fields, *CallOptions.__annotations__]

    assert [name for name in wanted if not re.search(rf"`{name}\b", text)] == []


def default_of(name: str) -> str:
    value: Any = settings.Settings()
    for part in name.split("."):
        value = getattr(value, part)
    return "–" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def commands_part() -> str:
    """All commands and options as they stand on the page."""
    root = typer.main.get_command(build())
    parts = [
        "Global options go before or after a command. `worker` and `scheduler` take the app as an argument.",
        options_table([each for each in root.params if each.name in GLOBAL]),
    ]
    for words, command in commands(root, ["penstock"]):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        everywhere = {*GLOBAL, "help"}
        own = [each for each in command.params if each in arguments or each.name not in everywhere]
        usage = " ".join([*words, *(_argument(each) for each in arguments)])
        parts += [f"## {' '.join(words)}", str(command.help).strip(), f"```text\n{usage} [OPTIONS]\n```"]
        if len(arguments) < len(own):
            parts.append(options_table([each for each in own if each not in arguments]))
    return "\n\n".join(parts)


def commands(group: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    """Every command with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, [*words, name])
        else:
            yield [*words, name], command


def options_table(options: list[Any]) -> str:
    rows = []
    for option in options:
        names = ", ".join(f"`{each}`" for each in [*option.opts, *option.secondary_opts])
        takes = "" if option.is_flag else f" {option.metavar or 'TEXT'}"
        rows.append(f"| {names}{takes} | {re.sub('[|]', '/', option.help or '')} |")
    return "\n".join(["| option | |", "| --- | --- |", *rows])


def _argument(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper()).strip("[]…")
    return f"{name if argument.required else f'[{name}]'}{'…' if argument.nargs == -1 else ''}"


if __name__ == "__main__":
    text = CLI.read_text("utf-8")
    start, end = text.index("-->\n", text.index("<!-- commands")) + 4, text.index("<!-- /commands -->")
    CLI.write_text(f"{text[:start]}{commands_part()}\n{text[end:]}", "utf-8")
