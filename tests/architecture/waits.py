"""Refuses tests that wait for real time: bare sleeps, and bounds under ten seconds.

A busy machine breaks both. `python -m tests.architecture.waits` is part of `make check`. A line that has to
wait for real time says why in a comment, at its end or alone above it: `# real time: the reason`.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ("tests", "src/penstock/testing/conformance")
EXEMPT: Final = ("reliability",)
"""Folders whose tests wait for real processes that were killed: `make torture` has its own bounds."""
SHORTEST_BOUND: Final = 10.0
"""Seconds. A busy machine holds up a process for longer than anything below."""
ENDLESS: Final = 60.0
"""A sleep of so many seconds is never waited out; it stands for a handler that does not end."""
MARK: Final = "# real time: "

_CLOCKS: Final = {"monotonic", "perf_counter", "time", "process_time", "monotonic_ns", "perf_counter_ns"}
_BOUNDED: Final = {"timeout": 0, "timeout_at": 0, "wait_for": 1, "wait": 0, "join": 0, "result": 0, "get": -1}
"""Calls that give up after some seconds, with the position of these seconds; -1 where they are only named."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that waits for real time and does not say why."""

    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def findings(source: str, path: Path) -> list[Finding]:
    """What is wrong with the text of one module."""
    lines = source.splitlines()
    tree = ast.parse(source)
    constants = _constants(tree)
    found = {*_sleeps(tree), *_bounds(tree, constants), *_measured(tree)}
    return [Finding(path, line, what) for line, what in sorted(found) if not _is_explained(lines, line)]


def _is_explained(lines: list[str], line: int) -> bool:
    here, above = lines[line - 1], lines[line - 2].strip() if line > 1 else ""
    return _has_reason(here) or (above.startswith(MARK) and _has_reason(above))


def _has_reason(text: str) -> bool:
    _, mark, reason = text.partition(MARK)
    return bool(mark) and len(reason.split()) > 1


def _sleeps(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for call in _calls(tree):
        if _name(call) == "sleep" and call.args:
            seconds = _number(call.args[0])
            if seconds is None or 0 < seconds < ENDLESS:
                yield call.lineno, "a sleep: turn the clock, or wait for a condition"


def _bounds(tree: ast.AST, constants: dict[str, float]) -> Iterator[tuple[int, str]]:
    for call in _calls(tree):
        position = _BOUNDED.get(_name(call))
        if position is None:
            continue
        named = [each.value for each in call.keywords if each.arg == "timeout"]
        placed = call.args[position : position + 1] if position >= 0 else []
        for value in (*named, *placed):
            seconds = constants.get(value.id) if isinstance(value, ast.Name) else _number(value)
            if seconds is not None and 0 < seconds < SHORTEST_BOUND:
                yield call.lineno, f"gives up after {seconds:g} s: a busy machine needs longer"


def _measured(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Assertions that a measured time is below a number."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        times = _names_of_times(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and (small := _upper_bound(node.test, times)) is not None:
                yield node.lineno, f"asserts a time below {small:g} s: measure order instead of duration"


def _names_of_times(function: ast.AST) -> set[str]:
    """Names that hold a difference of two readings of a clock."""
    times: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if _is_duration(node.value, times):
                times |= {each.id for each in targets if isinstance(each, ast.Name)}
    return times


def _is_duration(node: ast.AST, times: set[str]) -> bool:
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) and _reads_clock(each):
            return True
        if isinstance(each, ast.Name) and each.id in times:
            return True
    return False


def _reads_clock(node: ast.AST) -> bool:
    return any(_name(call) in _CLOCKS and not call.args for call in _calls(node))


def _upper_bound(test: ast.AST, times: set[str]) -> float | None:
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            if isinstance(operator, ast.Gt | ast.GtE):
                left, right = right, left
            elif not isinstance(operator, ast.Lt | ast.LtE):
                continue
            small = _number(right)
            if small is not None and small < SHORTEST_BOUND and _is_duration(left, times):
                return small
    return None


def _constants(tree: ast.Module) -> dict[str, float]:
    """Numbers that the module gives a name to."""
    found: dict[str, float] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as value)):
                found[name] = float(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float() as value)):
                found[name] = float(value)
    return found


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _number(node: ast.AST) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case _:
            return None


def main() -> None:
    """Print every finding; exit with 1 if there is one."""
    found = [
        finding
        for folder in TESTS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.relative_to(ROOT / folder).parts[0] not in EXEMPT
        for finding in findings(path.read_text("utf-8"), path.relative_to(ROOT))
    ]
    for finding in found:
        print(finding, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
