"""The benchmark of readers of the event log, on every store."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from benchmarks import machine
from benchmarks.cases import OURS, Case, Section
from benchmarks.events.goals import LABELS, verdicts
from benchmarks.events.plan import FULL, QUICK, Plan
from benchmarks.events.reading import ALL, RECORDS, measured
from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.suite import Prepared, Suite

_UNITS: Final = {ALL: "events/s into Arrow", RECORDS: "events/s as records"}


def _cases(plan: Plan) -> Iterator[list[Case]]:
    for size, jobs in ((100, plan.jobs), (1, plan.single_jobs)):
        yield [
            Case(
                "reading",
                "",
                OURS,
                f"{store}, {LABELS[size]}",
                partial(measured, store=store, jobs=jobs, size=size),
                _UNITS,
            )
            for store in plan.stores
        ]


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    servers = ["valkey", *redis.installed()]
    facts = machine.facts() | {"PostgreSQL": postgres.version()}
    facts |= {name: f"{redis.version(name)}, {redis.allocator(name)}" for name in servers}
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "events",
    "Events",
    (Section("reading", "events of a log that is filled, by one process", _cases),),
    _prepared,
    verdicts,
)
