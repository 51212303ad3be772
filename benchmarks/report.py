"""The figures as tables for the terminal and for the page, and as JSON beside it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.cases import Section
from benchmarks.results import Row, Verdict

BEGIN: Final = "<!-- figures: written by `make bench` -->"
END: Final = "<!-- end of figures -->"
_GOAL_HEADS: Final = ("Durability", "Goal", "Against", "Ratio", "")
_HEADS: Final = ("Durability", "Side", "Case", "Figure", "Median", "Range")


def show(sections: Sequence[Section], rows: Sequence[Row], goals: Sequence[Verdict]) -> None:
    """On standard output."""
    console = Console(width=None if Console().is_terminal else 140)
    for section, found in _by_section(sections, rows):
        table = Table(*_HEADS, title=section.title, title_justify="left")
        for row in found:
            table.add_row(*_cells(row))
        console.print(table)
    table = Table(*_GOAL_HEADS, title="Goals", title_justify="left")
    for goal in goals:
        table.add_row(*_goal_cells(goal))
    console.print(table)


def write(
    page: Path,
    facts: dict[str, str],
    sections: Sequence[Section],
    rows: Sequence[Row],
    goals: Sequence[Verdict],
) -> None:
    """Into the page between its two marks, and into the JSON file of the same name beside it."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n\n{_markdown(facts, sections, rows, goals)}\n{END}{after}"
    page.write_text(text, "utf-8")
    found = {
        "machine": facts,
        "rows": [asdict(row) | {"median": row.median} for row in rows],
        "goals": [asdict(goal) | {"median": goal.median} for goal in goals],
    }
    page.with_suffix(".json").write_text(
        json.dumps(_rounded(found), indent=1, ensure_ascii=False) + "\n", "utf-8"
    )


def _markdown(
    facts: dict[str, str], sections: Sequence[Section], rows: Sequence[Row], goals: Sequence[Verdict]
) -> str:
    lines = ["## Goals", "", *_table(_GOAL_HEADS, map(_goal_cells, goals)), ""]
    for section, found in _by_section(sections, rows):
        lines += [f"## {section.title}", "", *_table(_HEADS, map(_cells, found)), ""]
    lines += ["## Machine and versions", "", *_table(("", ""), facts.items()), ""]
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    out = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return out + [f"| {' | '.join(cells)} |" for cells in rows]


def _by_section(sections: Sequence[Section], rows: Sequence[Row]) -> list[tuple[Section, list[Row]]]:
    named = {section.name: section for section in sections}
    return [(named[name], list(found)) for name, found in groupby(rows, key=lambda row: row.section)]


def _cells(row: Row) -> tuple[str, ...]:
    low, high = min(row.values), max(row.values)
    return (
        row.durability,
        row.side,
        row.label,
        row.figure if row.figure in {"p50", "p99"} else row.unit,
        f"{_number(row.median)}{' ms' if row.figure in {'p50', 'p99'} else ''}",
        f"{_number(low)} – {_number(high)}" if len(row.values) > 1 else "",
    )


def _goal_cells(goal: Verdict) -> tuple[str, ...]:
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
