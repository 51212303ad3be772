"""`python -m benchmarks STORE`: measures, prints tables, and after a full run rewrites its figures."""

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.cases import OURS, Case
from benchmarks.progress import Steps, steps
from benchmarks.results import Row
from benchmarks.spawn import ROOT, Failed
from benchmarks.suite import Suite

SUITES: Final = sorted(path.parent.name for path in Path(__file__).parent.glob("*/suite.py"))
PAGE: Final = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    """Measure what was asked for."""
    suite, asked = _arguments()
    sections = [section for section in suite.sections if section.name in asked.only]
    rows: list[Row] = []
    with suite.prepare(asked) as prepared:
        plan, facts = prepared.plan, prepared.facts
        rounds = asked.rounds or plan.rounds
        groups = [group for section in sections for group in section.cases(plan)]
        with steps(rounds * sum(map(len, groups))) as progress:
            for group in groups:
                rows += _measured(group, rounds, progress)
    goals = suite.verdicts(rows)
    report.show(suite, sections, rows, goals)
    if asked.write:
        if len(sections) < len(suite.sections):
            rows, facts = report.renewed(PAGE, suite, facts, sections, rows, rounds)
            sections, goals = list(suite.sections), suite.verdicts(rows)
        report.write(PAGE, suite, facts, sections, rows, goals)


def _measured(group: Sequence[Case], rounds: int, progress: Steps) -> list[Row]:
    """A round takes every case once, so that noise meets all of them."""
    rows = [
        [
            Row(case.section, case.durability, case.side, case.label, figure, unit)
            for figure, unit in case.units.items()
        ]
        for case in group
    ]
    failed: set[int] = set()
    for number in range(rounds):
        for place, (case, kept) in enumerate(zip(group, rows, strict=True)):
            where = f"{case.section} {case.durability}".strip()
            progress.begin(f"{where}, {case.side} {case.label}, round {number + 1}")
            if place in failed:
                continue
            try:
                with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                    figures = case.measure(Path(folder))
            except Failed as error:
                if case.side == OURS:
                    raise
                # A peer that does not get through is a row that says so, not the end of a long run.
                print(error, file=sys.stderr)
                failed.add(place)
                continue
            if not kept:
                kept += _found(case, figures)
            for row in kept:
                row.values.append(figures[row.figure])
    for place in failed:
        for row in rows[place]:
            row.values.clear()
    return [row for kept in rows for row in kept]


def _found(case: Case, figures: dict[str, float]) -> list[Row]:
    """Rows of a case that cannot know its figures beforehand."""
    return [Row(case.section, case.durability, case.side, case.label, name, name) for name in figures]


def _arguments() -> tuple[Suite, argparse.Namespace]:
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("store", choices=SUITES)
    store, rest = chosen.parse_known_args()
    suite: Suite = importlib.import_module(f"benchmarks.{store.store}.suite").SUITE
    names = [section.name for section in suite.sections]
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {suite.name}", description=f"Measure Penstock on {suite.title}."
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: small amounts, one round")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each case is measured")
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument(
        "--write",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="rewrite the figures in docs, with --only those of these sections; by default after a full run",
    )
    suite.options(parser)
    asked = parser.parse_args(rest)
    asked.only = asked.only.split(",")
    unknown = [name for name in asked.only if name not in names]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(names)}")
    if asked.write is None:
        asked.write = not asked.quick and not asked.rounds and asked.only == names
    return suite, asked


if __name__ == "__main__":
    main()
