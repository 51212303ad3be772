"""The sections of the benchmark of executors."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks import machine
from benchmarks.beside import throughput
from benchmarks.cases import OURS, Section
from benchmarks.execution.goals import verdicts
from benchmarks.execution.plan import FULL, QUICK
from benchmarks.execution.sides import SIDES
from benchmarks.redis import server
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "Server": server.version("valkey"),
        **{
            side.name: machine.version_in(side.programs / "python", side.package)
            for side in SIDES
            if side.name != OURS
        },
    }
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "execution",
    "Execution",
    (Section("processing", "processing of no-op jobs", throughput.processing),),
    _prepared,
    verdicts,
)
