"""The sections of the SQLite benchmark."""

import argparse
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.cases import Section
from benchmarks.sqlite import keyed, light, pickup, throughput
from benchmarks.sqlite.goals import verdicts
from benchmarks.sqlite.plan import FULL, PEER, QUICK
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "SQLite": sqlite3.sqlite_version,
        PEER: machine.version_in(Path(sys.executable), "huey"),
    }
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "sqlite",
    "SQLite",
    (
        Section("processing", "processing of no-op jobs", throughput.processing),
        Section("single", "single enqueues, each awaited", throughput.single),
        Section("bulk", "bulk enqueue", throughput.bulk),
        Section("pickup", "pick-up by an idle worker", pickup.pickup),
        Section("claim", "claims of 100 jobs by depth of the queue", light.claim),
        Section("keyed", "keys, limits and delays", keyed.keyed),
        Section("idle", "an idle worker", pickup.idle),
        Section("import", "time to import", light.imports),
    ),
    _prepared,
    verdicts,
)
