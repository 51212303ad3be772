"""Claims by depth on every server at hand: what a million jobs cost depends on its hash tables."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.beside import depth
from benchmarks.cases import Case
from benchmarks.redis import server
from benchmarks.redis.plan import Plan


def claim(plan: Plan) -> Iterator[list[Case]]:
    """The server of the run, and the redis-server that is installed."""
    for name in dict.fromkeys([plan.server, *server.installed()]):
        for group in depth.claim(replace(plan, server=name)):
            yield [replace(case, label=f"{server.version(name)}: {case.label}") for case in group]
