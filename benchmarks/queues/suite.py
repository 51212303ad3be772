"""The benchmark of a worker over many queues."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.cases import OURS, Case, Section
from benchmarks.postgres import server as postgres
from benchmarks.queues.goals import verdicts
from benchmarks.queues.measure import measured
from benchmarks.queues.plan import FULL, QUICK, Plan
from benchmarks.queues.schedules import put_schedules
from benchmarks.redis import server as redis
from benchmarks.service.many_queues import store_url
from benchmarks.spawn import Figures
from benchmarks.suite import Prepared, Suite

_UNITS: Final = {
    "rss": "MiB",
    "cpu": "% of a core, idle",
    "descriptors": "descriptors",
    "threads": "threads",
    "p50": "ms",
    "p99": "ms",
}


def _cases(plan: Plan) -> Iterator[list[Case]]:
    yield [
        Case("idle", "", OURS, f"{name}, {plan.queues:,} queues", partial(_measure, kind, plan), _UNITS)
        for kind, name in (("valkey", "Valkey"), ("postgres", "PostgreSQL"))
    ]


def _schedule_cases(plan: Plan) -> Iterator[list[Case]]:
    yield [
        Case(
            "schedules",
            "",
            OURS,
            f"{name}, {plan.schedules:,} schedules",
            partial(_measure_schedules, kind, plan),
            {"put": "s to put them", "again": "s to put them again, unchanged"},
        )
        for kind, name in (("sqlite", "SQLite"), ("valkey", "Valkey"), ("postgres", "PostgreSQL"))
    ]


def _measure_schedules(kind: str, plan: Plan, folder: Path) -> Figures:
    with store_url(kind, folder) as url:
        return asyncio.run(put_schedules(url, plan.schedules))


def _measure(kind: str, plan: Plan, folder: Path) -> Figures:
    with store_url(kind, folder) as url:
        return measured(url, plan.queues, plan.jobs, plan.idle)


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {"Valkey": redis.version("valkey"), "PostgreSQL": postgres.version()}
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "queues",
    "Many queues",
    (
        Section("idle", "one worker process over idle queues", _cases),
        Section("schedules", "the schedules of an app", _schedule_cases),
    ),
    _prepared,
    verdicts,
)
