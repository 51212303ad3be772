"""The sections of the Redis and Valkey benchmark."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from benchmarks import machine
from benchmarks.beside import cancelling, cpu, pickup, throughput
from benchmarks.cases import Section
from benchmarks.redis import bare, depths, memory, node, server
from benchmarks.redis.goals import verdicts
from benchmarks.redis.plan import FULL, QUICK
from benchmarks.redis.sides import NODE, PYTHON_PEERS
from benchmarks.suite import Prepared, Suite


@contextmanager
def _prepared(asked: argparse.Namespace) -> Iterator[Prepared]:
    chosen = QUICK if asked.quick else FULL
    with node.installed() as (side, said):
        plan = replace(chosen, server=asked.server)
        if side is not None:
            plan = replace(plan, sides=(*plan.sides, side))
        facts = machine.facts() | {
            "Server": server.version(asked.server),
            "Allocator": server.allocator(asked.server),
            "Persistence": ", ".join(f"{setting} {value}" for setting, value in server.PERSISTENCE.items()),
            **{
                peer.name: machine.version_in(peer.programs / "python", peer.package) for peer in PYTHON_PEERS
            },
            NODE: said,
        }
        yield Prepared(plan, facts)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        choices=("valkey", "redis"),
        default="valkey",
        help="the Valkey that comes as a wheel, or the redis-server that is installed",
    )


SUITE: Final = Suite(
    "redis",
    "Redis and Valkey",
    (
        Section("processing", "processing of no-op jobs", throughput.processing),
        Section("bulk", "bulk enqueue", throughput.bulk),
        Section("single", "100 concurrent single enqueues, each awaited", throughput.single),
        Section("pickup", "pick-up by an idle worker", pickup.pickup),
        Section("cancel", "cancel of a running job, until its handler hears", cancelling.cancel),
        Section("bare", "beside a bare loop over the same scripts", bare.bare),
        Section("claim", "claims of 100 jobs by depth of the queue", depths.claim),
        Section("memory", "memory of the server", memory.memory),
        Section("cpu", "processor time", cpu.cpu),
    ),
    _prepared,
    verdicts,
    _options,
    has_ratios=True,
)
