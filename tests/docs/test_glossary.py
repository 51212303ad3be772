"""The glossary names each word once, and every public class."""

import re
from pathlib import Path

import penstock

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "glossary.md"


def rows() -> dict[str, list[str]]:
    """The words of each table, by its title."""
    found: dict[str, list[str]] = {}
    for title, body in re.findall(
        r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL
    ):
        found[title] = re.findall(r"^\| `?([^|`]+?)`? \|(?! ---)", body, flags=re.MULTILINE)[1:]
    return found


def test_every_public_class_is_named_and_nothing_else() -> None:
    classes = [name for name in penstock.__all__ if name[0].isupper()]

    assert rows()["Public classes"] == sorted(classes)


def test_each_word_stands_once_and_in_order() -> None:
    tables = rows()
    words = tables["Domain"] + tables["Machinery"]

    assert len(words) == len(set(words))
    assert tables["Domain"] == sorted(tables["Domain"])
    assert tables["Machinery"] == sorted(tables["Machinery"])
