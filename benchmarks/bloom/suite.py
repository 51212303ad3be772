"""The sections of the benchmark of the Bloom filters."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from benchmarks import machine
from benchmarks.bloom.measures import cleanup, ghosts, keys
from benchmarks.bloom.plan import BATCH, FULL, QUICK
from benchmarks.cases import Section
from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.results import Row, Verdict
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "Filters": f"rbloom {version('rbloom')}",
        "PostgreSQL": postgres.version(),
        "Valkey": redis.version("valkey"),
    }
    yield Prepared(QUICK if asked.quick else FULL, facts)


def _verdicts(_: Sequence[Row]) -> list[Verdict]:
    """No goals: the figures decide what is on by default."""
    return []


SUITE: Final = Suite(
    "bloom",
    "Bloom filters",
    (
        Section("keys", f"jobs with idempotency keys, {BATCH} in a call", keys),
        Section("ghosts", "claims past jobs that were deleted while they waited", ghosts),
        Section("cleanup", "purges of one queue beside each other", cleanup),
    ),
    _prepared,
    _verdicts,
)
