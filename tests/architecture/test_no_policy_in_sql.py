"""The files of the stores' languages decide nothing: numbers and reasons come to them as arguments.

Migrations are no such files: they stay as they were shipped, also where
a function that they define has a constant.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

import pytest

from penstock.core import decide, events
from penstock.stores.postgres.sources import CONSTANTS, load_sources, own_statements

FOLDERS: Final = {"postgres": "sql", "sqlite": "sql", "redis": "lua"}
_UNITS: Final = re.compile(r"\+ 999\) / 1000\b|[*/] 1000(000)?\b")
"""Between microseconds, milliseconds and seconds."""
_NUMBER: Final = re.compile(r"(?<![\w$.\\%])\d{3,}\b")
_CAPITALS: Final = re.compile(r"'([A-Z][A-Z_]+)'")
_REASONS: Final = frozenset(
    value
    for module in (decide, events)
    for value in vars(module).values()
    if isinstance(value, str) and re.fullmatch("[A-Z][A-Z_]+", value)
)
"""Words in capitals that the core decides on. Lua has others: those of the server's commands."""


def _lines(folder: Any) -> Iterator[tuple[str, str]]:
    """Where each line stands, and its code without the comment."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _lines(each)
        else:
            for number, line in enumerate(each.read_text("utf-8").splitlines(), 1):
                yield f"{each.name}:{number}", line.partition("-- ")[0]


@pytest.mark.parametrize("store", FOLDERS)
def test_no_file_has_a_number_or_a_reason_of_its_own(store: str) -> None:
    """They stand in the core, once for all stores."""
    found = [
        f"{where}: {line.strip()}"
        for where, line in _lines(files(f"penstock.stores.{store}") / FOLDERS[store])
        for code in [_UNITS.sub("", line)]
        if _NUMBER.search(code) or _reasons(store, code)
    ]

    assert found == []


def _reasons(store: str, code: str) -> set[str]:
    found = set(_CAPITALS.findall(code))
    return found & _REASONS if store == "redis" else found


def test_every_constant_of_postgresql_is_used() -> None:
    """One that no file names is left over."""
    text = "\n".join(load_sources().values())

    assert [name for name in CONSTANTS if f"{{{name}}}" not in text] == []


def test_no_statement_of_postgresql_lacks_an_argument() -> None:
    """What stands in braces has its value before the server sees it."""
    unfilled = re.compile(r"\{[a-z_]+\}")

    assert [name for name, text in own_statements("penstock").items() if unfilled.search(text)] == []
