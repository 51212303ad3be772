"""Every package says what it is for, and where to begin reading."""

import ast
import re
from pathlib import Path

import penstock

ROOT = Path(penstock.__path__[0])
SMALL = 2
"""Modules, with its `__init__`, of a package that needs no guide."""


def guides() -> dict[Path, str]:
    """What each package with several modules says of itself."""
    return {
        path.parent: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        for path in sorted(ROOT.rglob("__init__.py"))
        if path.parent != ROOT and len(list(path.parent.glob("*.py"))) > SMALL
    }


def test_every_package_says_where_to_begin_reading() -> None:
    silent = [
        str(package.relative_to(ROOT))
        for package, text in guides().items()
        if not re.search(r"[Bb]egin\s", text)
    ]

    assert silent == []


def test_every_module_that_a_package_names_is_there() -> None:
    missing = [
        f"{package.relative_to(ROOT)}: {name}"
        for package, text in guides().items()
        for name in re.findall(r"`([\w./]+\.py)`", text)
        if not any((folder / name).is_file() for folder in (package, ROOT))
    ]

    assert missing == []
