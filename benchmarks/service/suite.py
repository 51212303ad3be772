"""The sections of the benchmark of the service."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from benchmarks import machine
from benchmarks.cases import Section
from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.service.goals import verdicts
from benchmarks.service.hostile import hostile
from benchmarks.service.measures import creating, single, working
from benchmarks.service.plan import BATCH, CONNECTIONS, FULL, QUICK
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "Server": f"uvicorn {version('uvicorn')}, httptools {version('httptools')}",
        "PostgreSQL": postgres.version(),
        "Valkey": redis.version("valkey"),
    }
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "service",
    "Service",
    (
        Section("create", f"jobs created, {BATCH} in a request", creating),
        Section("work", "jobs worked off, claimed 50 at a time", working),
        Section("single", f"single requests over {CONNECTIONS} connections", single),
        Section("hostile", "another tenant beside a hostile one", hostile),
    ),
    _prepared,
    verdicts,
)
