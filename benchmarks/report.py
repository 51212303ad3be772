"""The figures as tables for the terminal and for the page, and as JSON beside it."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.cases import OURS, Section
from benchmarks.results import Row, Verdict, first, ratios
from benchmarks.suite import Suite

_GOAL_HEADS: Final = ("Durability", "Goal", "Against", "Ratio", "")
_HEADS: Final = ("Durability", "Side", "Case", "Figure", "Median", "Range", f"{OURS} ÷ it")
Cells = tuple[str, ...]


def show(suite: Suite, sections: Sequence[Section], rows: Sequence[Row], goals: Sequence[Verdict]) -> None:
    """On standard output."""
    console = Console(width=None if Console().is_terminal else 160)
    for title, heads, cells in _tables(suite, sections, rows, goals):
        table = Table(*heads, title=title, title_justify="left")
        for each in cells:
            table.add_row(*each)
        console.print(table)


def write(
    page: Path,
    suite: Suite,
    facts: dict[str, str],
    sections: Sequence[Section],
    rows: Sequence[Row],
    goals: Sequence[Verdict],
) -> None:
    """Into the page between the suite's two marks, and into the JSON file of its name beside it."""
    found = {
        "machine": facts,
        "rows": [asdict(row) | {"median": row.median} for row in rows],
        "goals": [asdict(goal) | {"median": goal.median} for goal in goals],
    }
    _beside(page, suite).write_text(json.dumps(_rounded(found), indent=1, ensure_ascii=False) + "\n", "utf-8")
    begin, end = f"<!-- {suite.name} figures: written by the run -->", f"<!-- end of {suite.name} figures -->"
    before, begun, rest = page.read_text("utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise SystemExit(f"{page.name} has no place for the figures of {suite.name}")
    lines: list[str] = []
    for title, heads, cells in _tables(suite, sections, rows, goals):
        lines += [f"### {suite.title}: {title}", "", *_markdown(heads, cells), ""]
    lines += [f"### {suite.title}: machine and versions", "", *_markdown(("", ""), facts.items()), ""]
    page.write_text(before + "\n".join([begin, "", *lines, end]) + after, "utf-8")


def renewed(
    page: Path,
    suite: Suite,
    facts: dict[str, str],
    sections: Sequence[Section],
    rows: Sequence[Row],
    rounds: int,
) -> tuple[list[Row], dict[str, str]]:
    """The rows on the page with those of these sections measured anew, and what each was made with."""
    before = json.loads(_beside(page, suite).read_text("utf-8"))
    fields = [field.name for field in dataclass_fields(Row)]
    old = [Row(**{name: row[name] for name in fields}) for row in before["rows"]]
    names = {section.name for section in sections}
    kept = [row for row in old if row.section not in names]
    order = [section.name for section in suite.sections]
    found = sorted([*kept, *rows], key=lambda row: order.index(row.section))
    machine: dict[str, str] = before["machine"]
    said = "; ".join(f"{name} {facts[name]}" for name in facts if machine.get(name) != facts[name])
    titles = ", ".join(section.name for section in sections)
    return found, machine | {f"Anew: {titles}": f"{said or facts['Date']}; {rounds} rounds"}


def _beside(page: Path, suite: Suite) -> Path:
    return page.with_name(f"{page.stem}-{suite.name}.json")


def _tables(
    suite: Suite, sections: Sequence[Section], rows: Sequence[Row], goals: Sequence[Verdict]
) -> list[tuple[str, Cells, list[Cells]]]:
    """Title, heads and cells of each; columns that would be empty are left out."""
    tables = [("goals", *_without_empty(_GOAL_HEADS, map(_goal_cells, goals)))] if goals else []
    titles = {section.name: section.title for section in sections}
    for name, found in groupby(rows, key=lambda row: row.section):
        each = [_cells(row, rows if suite.has_ratios else ()) for row in found]
        tables.append((titles[name], *_without_empty(_HEADS, each)))
    return tables


def _without_empty(heads: Cells, rows: Iterable[Cells]) -> tuple[Cells, list[Cells]]:
    found = list(rows)
    kept = [place for place, head in enumerate(heads) if not head or any(cells[place] for cells in found)]
    return tuple(heads[place] for place in kept), [tuple(cells[place] for place in kept) for cells in found]


def _markdown(heads: Sequence[str], rows: Iterable[Cells]) -> list[str]:
    out = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return out + [f"| {' | '.join(cells)} |" for cells in rows]


def _cells(row: Row, beside: Sequence[Row]) -> Cells:
    is_wait = row.figure in {"p50", "p99"}
    figure = row.figure if is_wait else row.unit
    if row.median is None:
        return row.durability, row.side, row.label, figure, "did not get through", "", ""
    ours = first(beside, row.section, OURS, row.figure)
    ratio = ""
    if ours is not None and row.side != OURS:
        ratio = f"{statistics.median(ratios(ours, row)):.2f} ×"
    return (
        row.durability,
        row.side,
        row.label,
        figure,
        f"{_number(row.median)}{' ms' if is_wait else ''}",
        f"{_number(min(row.values))} – {_number(max(row.values))}" if len(row.values) > 1 else "",
        ratio,
    )


def _goal_cells(goal: Verdict) -> Cells:
    spread = f" ({min(goal.ratios):.2f} – {max(goal.ratios):.2f})" if len(goal.ratios) > 1 else ""
    said = "pass" if goal.is_met else "miss"
    return goal.durability, goal.goal, goal.against, f"{goal.median:.2f} ×{spread}", said


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
