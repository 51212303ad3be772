"""The sections: enqueues with idempotency keys, claims past deleted jobs, purges beside each other."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.bloom.places import TITLES, running
from benchmarks.bloom.plan import DUPLICATES, PAYLOADS, PURGERS, Plan
from benchmarks.cases import Case
from benchmarks.spawn import Figures, run, service

ON: Final = "on"
OFF: Final = "off"
_ROLES: Final = "benchmarks.bloom.roles"
_CLIENT: Final = {"rate": "jobs/s", "client": "client µs/job"}
_SERVER: Final = _CLIENT | {"server": "server µs/job"}
_RATES: Final = {
    "sqlite": _CLIENT,
    "postgres": _SERVER,
    "valkey": _SERVER | {"bytes": "bytes/job", "commands": "commands/1,000 jobs"},
}
"""What is measured of an enqueue: SQLite has no server, and only Valkey counts what it receives."""
_PASSED: Final = {
    "seconds": "s",
    "claims": "claims",
    "commands": "commands",
    "client": "client ms",
    "server": "server ms",
}
_PURGED: Final = {"rate": "jobs/s", "asked": "deletions/job", "client": "client ms"}


def keys(plan: Plan) -> Iterator[list[Case]]:
    """Unique keys, half of them duplicates, nearly all of them; small payloads and large ones."""
    for store in plan.stores:
        for size in PAYLOADS:
            for share in DUPLICATES:
                label = f"{TITLES[store]}, {share:.0%} duplicates of {size:,} bytes"
                yield [
                    Case("keys", "", way, label, partial(_keys, plan, store, size, share, way), _RATES[store])
                    for way in (OFF, ON)
                ]


def ghosts(plan: Plan) -> Iterator[list[Case]]:
    """Deleted ids in the list of a Valkey queue; other stores leave none."""
    label = f"Valkey, {plan.ghosts:,} deleted ids"
    yield [Case("ghosts", "", way, label, partial(_ghosts, plan, way), _PASSED) for way in (OFF, ON)]


def cleanup(plan: Plan) -> Iterator[list[Case]]:
    """Purges of one queue at once."""
    for store in plan.stores:
        label = f"{TITLES[store]}, {PURGERS} at once"
        units = _PURGED if store == "sqlite" else _PURGED | {"server": "server ms"}
        yield [
            Case("cleanup", "", way, label, partial(_cleanup, plan, store, way), units) for way in (OFF, ON)
        ]


def _keys(plan: Plan, store: str, size: int, share: float, way: str, folder: Path) -> Figures:
    jobs = min(plan.jobs, plan.bytes // size)
    with running(store, folder) as place:
        spent, received, calls = place.spent(), place.received(), place.calls()
        found = run(
            _ROLES, "enqueue", url=place.url, jobs=jobs, size=size, duplicates=share, filtered=way == ON
        )
        found["server"] = (place.spent() - spent) / jobs * 1e6
        found["bytes"] = (place.received() - received) / jobs
        found["commands"] = (place.calls() - calls) / jobs * 1_000
        return found


def _ghosts(plan: Plan, way: str, folder: Path) -> Figures:
    with (
        running("valkey", folder) as place,
        service(_ROLES, "pass_over", url=place.url, ghosts=plan.ghosts, filtered=way == ON) as role,
    ):
        spent, calls = place.spent(), place.calls()
        found = role.stop()
        found["server"] = (place.spent() - spent) * 1000
        found["commands"] = place.calls() - calls
        return found


def _cleanup(plan: Plan, store: str, way: str, folder: Path) -> Figures:
    with (
        running(store, folder) as place,
        service(
            _ROLES, "purge", url=place.url, jobs=plan.purged, purgers=PURGERS, filtered=way == ON
        ) as role,
    ):
        spent = place.spent()
        found = role.stop()
        found["server"] = (place.spent() - spent) * 1000
        return found
