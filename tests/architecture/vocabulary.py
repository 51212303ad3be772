"""The words that names, log messages and help texts do not use, with what is said instead.

`python -m tests.architecture.vocabulary` prints every name and text with such a word; `make check` runs it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
INSTEAD: Final = {
    "appetite": "claim size",
    "belfry": "notifier",
    "bell": "subscription",
    "bells": "subscriptions",
    "courier": "sender",
    "desk": "context, reader or catalog",
    "dial": "connect",
    "door": "admission or authenticator",
    "hang": "subscribe",
    "heard": "received",
    "kin": "child jobs",
    "parcel": "message",
    "patience": "timeout",
    "postoffice": "service",
    "rang": "notified",
    "ring": "notify",
    "rings": "notifications",
    "room": "backend or space",
    "shelf": "namespace",
    "shelves": "key-value entries",
    "stretch": "range",
    "stretches": "ranges",
    "tally": "stats",
    "twin": "clone",
    "wish": "create, update or request",
    "wishes": "options",
}
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_of(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return [word.lower() for word in _WORD.findall(name)]


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a module makes: of classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def texts_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts that users see: log messages, and help of the command line."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        shown = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
        if isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS:
            shown += node.args[:1]
        for each in shown:
            for part in ast.walk(each):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def findings(root: Path = ROOT) -> list[str]:
    """Each name and text in `src` with a word of the list, and what to say instead."""
    found = []
    for path in sorted((root / "src").rglob("*.py")):
        where = path.relative_to(root)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line, name in [(1, path.stem), *names_in(tree), *texts_in(tree)]:
            found += [
                f"{where}:{line}: {name}: say {INSTEAD[word]}" for word in words_of(name) if word in INSTEAD
            ]
    return sorted(set(found))


def main() -> int:
    """Print what was found; 1 where there is anything."""
    found = findings()
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
