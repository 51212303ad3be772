"""The section in which one tenant is hostile: what another one and health checks notice of it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.service.place import TITLES, Place, running
from benchmarks.service.plan import ATTACKS, IDLE, QUEUES, Plan
from benchmarks.spawn import Figures, run, service

QUIET: Final = "quiet"
_ATTACKER: Final = "benchmarks.service.attacker"
_BYSTANDER: Final = "benchmarks.service.bystander"
_UNITS: Final = {
    "p50": "p50 ms",
    "p99": "p99 ms",
    "failed": "requests without success",
    "health": "worst health check, ms",
    "unanswered": "health checks without answer",
}


def hostile(plan: Plan) -> Iterator[list[Case]]:
    """The same tenant without and with a hostile one beside it."""
    attacked = _UNITS | {"attacks": "hostile requests answered/s"}
    for store in plan.hostile_stores:
        title = TITLES[store]
        yield [
            Case("hostile", "", QUIET, title, partial(_quiet, plan, store), _UNITS),
            Case("hostile", "", OURS, title, partial(_attacked, plan, store), attacked),
        ]


def _quiet(plan: Plan, store: str, folder: Path) -> Figures:
    with running(store, folder) as place:
        return _observed(plan, place)


def _attacked(plan: Plan, store: str, folder: Path) -> Figures:
    def prepare(url: str) -> None:
        run(_ATTACKER, "prepare", url=url, queues=QUEUES)

    with running(store, folder, prepare) as place:
        token = place.token_of("hostile")
        with service(
            _ATTACKER, "attack", address=place.address, token=token, connections=IDLE, rate=ATTACKS
        ) as attack:
            found = _observed(plan, place)
            return found | attack.stop()


def _observed(plan: Plan, place: Place) -> Figures:
    return run(
        _BYSTANDER, "observe", address=place.address, token=place.token_of("other"), seconds=plan.seconds
    )
