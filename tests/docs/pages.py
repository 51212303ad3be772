"""Reading the documentation as data: its rules, its tables, its code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]

_RULE: Final = re.compile(r"- \*\*(S\d+\.\d+)\*\* ")
_SHOWN: Final = re.compile(r"`((?:tests|src/penstock/testing)/[\w/]+\.py)::(\w+)`")
_FENCE: Final = re.compile(r"^(```+)(.*)$")


class Rule(NamedTuple):
    """A numbered rule, and the tests that it says show it."""

    number: str
    text: str
    tests: list[tuple[str, str]]


class Block(NamedTuple):
    """A block of code in a page; `info` is what stands after the fence, such as `python run`."""

    page: Path
    line: int
    info: str
    code: str

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def rules(text: str) -> list[Rule]:
    """The rules of a page: bullets that begin with a bold number, up to the next text on the margin."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if _RULE.match(line):
            found.append([line])
            inside = True
        elif inside and (not line or line.startswith("  ")):
            found[-1].append(line)
        else:
            inside = False
    return [_rule("\n".join(lines)) for lines in found]


def _rule(text: str) -> Rule:
    start = _RULE.match(text)
    assert start is not None
    said, _, shown = text.partition("— shown by")
    return Rule(start[1], said, [(each[1], each[2]) for each in _SHOWN.finditer(shown)])


def section(text: str, name: str) -> str:
    """What stands between the comments that mark a generated part."""
    start = re.search(rf"<!-- {name}\b[^>]*-->\n", text)
    end = text.find(f"<!-- /{name} -->")
    assert start is not None, f"no part is marked {name}"
    assert end >= 0, f"the part marked {name} has no end"
    return text[start.end() : end].strip()


def faults(text: str, root: Path = ROOT) -> list[str]:
    """What is wrong with the rules of a page."""
    out: list[str] = []
    seen: list[str] = []
    for rule in rules(text):
        if rule.number in seen:
            out.append(f"{rule.number} stands there twice")
        seen.append(rule.number)
        if not rule.tests:
            out.append(f"{rule.number} names no test")
        out += [
            f"{rule.number}: there is no {path}::{name}"
            for path, name in rule.tests
            if name not in tests_in(root / path)
        ]
    in_order = sorted(dict.fromkeys(seen), key=_order)
    if list(dict.fromkeys(seen)) != in_order:
        out.append("the rules are not in the order of their numbers")
    return out


def _order(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in number.removeprefix("S").split("."))


@cache
def tests_in(path: Path) -> frozenset[str]:
    """The names of the tests in a file, without importing it."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def pages() -> list[Path]:
    """Every page of the documentation."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def blocks(page: Path) -> Iterator[Block]:
    """The code of a page."""
    fence, info, start, lines = "", "", 0, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        mark = _FENCE.match(line.strip())
        if not fence and mark:
            fence, info, start, lines = mark[1], mark[2].strip(), number, []
        elif fence and line.strip() == fence:
            yield Block(page, start, info, "\n".join(lines) + "\n")
            fence = ""
        elif fence:
            lines.append(line)
