"""`python -m benchmarks`: measures, prints tables, and after a full run rewrites the page of figures."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import keyed, light, machine, pickup, report, throughput
from benchmarks.cases import Case, Section
from benchmarks.plan import FULL, QUICK
from benchmarks.progress import Steps, steps
from benchmarks.results import Row, verdicts
from benchmarks.spawn import ROOT

SECTIONS: Final = (
    Section("processing", "Processing of no-op jobs", throughput.processing),
    Section("single", "Single enqueues, each awaited", throughput.single),
    Section("bulk", "Bulk enqueue", throughput.bulk),
    Section("pickup", "Pick-up by an idle worker", pickup.pickup),
    Section("claim", "Claims of 100 jobs by depth of the queue", light.claim),
    Section("keyed", "Keys, limits and delays", keyed.keyed),
    Section("idle", "An idle worker", pickup.idle),
    Section("import", "Time to import", light.imports),
)
PAGE: Final = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    """Measure what was asked for."""
    asked = _arguments()
    plan = QUICK if asked.quick else FULL
    sections = [section for section in SECTIONS if section.name in asked.only]
    facts = machine.facts()
    groups = [group for section in sections for group in section.cases(plan)]
    rows: list[Row] = []
    with steps(plan.rounds * sum(map(len, groups))) as progress:
        for group in groups:
            rows += _measured(group, plan.rounds, progress)
    goals = verdicts(rows)
    report.show(sections, rows, goals)
    if asked.write:
        report.write(PAGE, facts, sections, rows, goals)


def _measured(group: Sequence[Case], rounds: int, progress: Steps) -> list[Row]:
    """A round takes every case once, so that noise meets all of them."""
    rows = [
        [
            Row(case.section, case.durability, case.side, case.label, figure, unit)
            for figure, unit in case.units.items()
        ]
        for case in group
    ]
    for number in range(rounds):
        for case, kept in zip(group, rows, strict=True):
            where = f"{case.section} {case.durability}".strip()
            progress.begin(f"{where}, {case.side} {case.label}, round {number + 1}")
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                figures = case.measure(Path(folder))
            for row in kept:
                row.values.append(figures[row.figure])
    return [row for kept in rows for row in kept]


def _arguments() -> argparse.Namespace:
    names = [section.name for section in SECTIONS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Penstock beside Huey.")
    parser.add_argument("--quick", action="store_true", help="a smoke run: small amounts, one round")
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument(
        "--write",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="rewrite docs/benchmarks.md and .json; by default only after a full run",
    )
    asked = parser.parse_args()
    asked.only = asked.only.split(",")
    unknown = [name for name in asked.only if name not in names]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(names)}")
    if asked.write is None:
        asked.write = not asked.quick and asked.only == names
    return asked


if __name__ == "__main__":
    main()
