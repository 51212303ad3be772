"""The sections of the benchmark of the HTTP service."""

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from benchmarks import machine
from benchmarks.cases import Section
from benchmarks.http.creating import creating, single
from benchmarks.http.goals import verdicts
from benchmarks.http.plan import FULL, QUICK
from benchmarks.http.working import working
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "Store": f"SQLite {sqlite3.sqlite_version}, one file",
        "Server": f"uvicorn {version('uvicorn')}, httptools {version('httptools')}",
    }
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "http",
    "HTTP",
    (
        Section("create", "jobs in batches", creating),
        Section("single", "one job in a request", single),
        Section("worker", "a worker beside its store and far from it", working),
    ),
    _prepared,
    verdicts,
    has_ratios=True,
)
