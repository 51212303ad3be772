"""The sections of the PostgreSQL benchmark."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks import machine
from benchmarks.beside import cancelling, cpu, depth, pickup, throughput
from benchmarks.cases import Section
from benchmarks.postgres import server, snapshot
from benchmarks.postgres.goals import verdicts
from benchmarks.postgres.plan import FULL, QUICK
from benchmarks.postgres.sides import PEERS
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    facts = machine.facts() | {
        "Server": server.version(),
        "Settings": ", ".join(f"{setting} {value}" for setting, value in server.SETTINGS.items()),
        **{peer.name: machine.version_in(peer.programs / "python", peer.package) for peer in PEERS},
    }
    yield Prepared(QUICK if asked.quick else FULL, facts)


SUITE: Final = Suite(
    "postgres",
    "PostgreSQL",
    (
        Section("processing", "processing of no-op jobs", throughput.processing),
        Section("bulk", "bulk enqueue", throughput.bulk),
        Section("single", "100 concurrent single enqueues, each awaited", throughput.single),
        Section("pickup", "pick-up by an idle worker", pickup.pickup),
        Section("cancel", "cancel of a running job, until its handler hears", cancelling.cancel),
        Section("claim", "claims of 100 jobs by depth of the queue", depth.claim),
        Section("snapshot", "claims of 100 jobs while a transaction stays open", snapshot.snapshot),
        Section("cpu", "processor time", cpu.cpu),
    ),
    _prepared,
    verdicts,
    has_ratios=True,
)
