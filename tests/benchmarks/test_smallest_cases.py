"""One small case of each suite of benchmarks runs, so that a change which breaks them is noticed.

Peers are left out: their environments are made by the targets that measure them.
"""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import SUITES
from benchmarks.beside.side import Side
from benchmarks.bloom.plan import QUICK as BLOOM
from benchmarks.cases import OURS, Case
from benchmarks.events.plan import QUICK as EVENTS
from benchmarks.execution.plan import QUICK as EXECUTION
from benchmarks.postgres.plan import QUICK as POSTGRES
from benchmarks.queues.plan import QUICK as QUEUES
from benchmarks.redis.plan import QUICK as REDIS
from benchmarks.service.plan import QUICK as SERVICE
from benchmarks.spark.plan import QUICK as SPARK
from benchmarks.sqlite.plan import QUICK as SQLITE
from benchmarks.sqlite.plan import Amounts
from benchmarks.suite import Suite

SLOW = {"spark"}
"""A session of Spark takes longer to start than all the others to run."""


def _only_ours(plan: Any) -> Any:
    """The smallest amounts, in the environment of the tests."""
    programs = Path(sys.executable).parent
    sides: tuple[Side, ...] = tuple(
        replace(side, programs=programs) for side in plan.sides if side.name == OURS
    )
    return replace(plan, share=0, sides=sides, extras=())


SMALLEST: dict[str, Any] = {
    "bloom": replace(BLOOM, jobs=100, bytes=10_000, stores=("sqlite",)),
    "events": replace(EVENTS, jobs=200, single_jobs=20, stores=("sqlite",)),
    "execution": _only_ours(EXECUTION),
    "postgres": _only_ours(POSTGRES),
    "queues": replace(QUEUES, queues=20, jobs=5, idle=0.5),
    "redis": _only_ours(REDIS),
    "service": replace(SERVICE, jobs=200, stores=("sqlite",)),
    "spark": replace(SPARK, enqueues=200),
    "sqlite": replace(SQLITE, amounts=dict.fromkeys(SQLITE.amounts, Amounts(100, 100, 100))),
}


def test_every_suite_has_a_smallest_case() -> None:
    assert sorted(SMALLEST) == SUITES


@pytest.mark.parametrize("name", [name for name in SUITES if name not in SLOW])
def test_the_smallest_case_of_a_suite_runs(name: str, tmp_path: Path) -> None:
    """The first case of Penstock's own, in the first section."""
    case = _first(name)
    figures = case.measure(tmp_path)

    assert figures
    assert set(case.units) <= set(figures)
    assert any(figure > 0 for figure in figures.values())


@pytest.mark.parametrize("name", SUITES)
def test_the_sections_of_a_suite_can_be_planned(name: str) -> None:
    """Nothing is measured."""
    suite = _suite(name)

    assert all(list(section.cases(SMALLEST[name])) for section in suite.sections)


def _suite(name: str) -> Suite:
    suite: Suite = import_module(f"benchmarks.{name}.suite").SUITE
    return suite


def _first(name: str) -> Case:
    section = _suite(name).sections[0]
    cases = [case for group in section.cases(SMALLEST[name]) for case in group]
    return next((case for case in cases if case.side == OURS), cases[0])
