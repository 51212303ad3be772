"""The sections: enqueues with idempotency keys, claims past deleted jobs, purges beside each other."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.bloom.places import TITLES, running
from benchmarks.bloom.plan import DUPLICATES, PAYLOADS, PURGERS, Plan
from benchmarks.cases import Case
from benchmarks.spawn import Figures, run

ON: Final = "on"
OFF: Final = "off"
_ROLES: Final = "benchmarks.bloom.roles"
_RATE: Final = {"rate": "jobs/s", "client": "client µs/job", "server": "server µs/job", "bytes": "bytes/job"}
_PASSED: Final = {
    "seconds": "s",
    "claims": "claims",
    "commands": "commands",
    "client": "client ms",
    "server": "server ms",
}
_PURGED: Final = {"rate": "jobs/s", "asked": "deletions/job", "client": "client ms", "server": "server ms"}


def keys(plan: Plan) -> Iterator[list[Case]]:
    """Unique keys, half of them duplicates, nearly all of them; small payloads and large ones."""
    for store in plan.stores:
        for size in PAYLOADS:
            for share in DUPLICATES:
                label = f"{TITLES[store]}, {share:.0%} duplicates of {size:,} bytes"
                yield [
                    Case("keys", "", way, label, partial(_keys, plan, store, size, share, way), _RATE)
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
        yield [
            Case("cleanup", "", way, label, partial(_cleanup, plan, store, way), _PURGED) for way in (OFF, ON)
        ]


def _keys(plan: Plan, store: str, size: int, share: float, way: str, folder: Path) -> Figures:
    jobs = min(plan.jobs, plan.bytes // size)
    with running(store, folder) as place:
        spent, received = place.spent(), place.received()
        found = run(
            _ROLES, "enqueue", url=place.url, jobs=jobs, size=size, duplicates=share, filtered=way == ON
        )
        found["server"] = (place.spent() - spent) / jobs * 1e6
        found["bytes"] = (place.received() - received) / jobs
        return found


def _ghosts(plan: Plan, way: str, folder: Path) -> Figures:
    with running("valkey", folder) as place:
        spent, calls = place.spent(), place.calls()
        found = run(_ROLES, "pass_over", url=place.url, ghosts=plan.ghosts, filtered=way == ON)
        found["server"] = (place.spent() - spent) * 1000
        found["commands"] = place.calls() - calls
        return found


def _cleanup(plan: Plan, store: str, way: str, folder: Path) -> Figures:
    with running(store, folder) as place:
        spent = place.spent()
        found = run(_ROLES, "purge", url=place.url, jobs=plan.purged, purgers=PURGERS, filtered=way == ON)
        found["server"] = (place.spent() - spent) * 1000
        return found
