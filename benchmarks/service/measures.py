"""The sections: jobs created and worked off through the service and beside it, and single requests."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.running import enqueue
from benchmarks.beside.side import Side
from benchmarks.beside.throughput import RATE, drained
from benchmarks.cases import OURS, Case
from benchmarks.service.place import TITLES, running
from benchmarks.service.plan import BATCH, CONNECTIONS, Plan
from benchmarks.spawn import Figures, run

DIRECT: Final = "direct"
HELLO: Final = "bare route"
REMOTE: Final = "remote store"
HTTP: Final = "POST /v1/jobs"
_ROLES: Final = "benchmarks.service.roles"
_APP: Final = "benchmarks.beside.ours"
_SIDE: Final = Side(
    OURS,
    Path(sys.executable).parent,
    _APP,
    ("penstock", "worker", f"{_APP}:app", "--concurrency", str(2 * 50), "--log-level", "warning"),
    "",
    0,
    0,
    "",
)
"""A worker claims for half of its slots at once where a server has the store."""


def creating(plan: Plan) -> Iterator[list[Case]]:
    """Jobs by the hundred, one request after the other."""
    for store in plan.stores:
        title = TITLES[store]
        yield [
            Case("create", "", DIRECT, title, partial(_create, plan, store, DIRECT), RATE),
            Case("create", "", OURS, f"{title}, {REMOTE}", partial(_create, plan, store, REMOTE), RATE),
            Case("create", "", OURS, f"{title}, {HTTP}", partial(_post, plan, store), RATE),
        ]


def working(plan: Plan) -> Iterator[list[Case]]:
    """Jobs enqueued beforehand, worked off by one worker."""
    for store in plan.stores:
        title = TITLES[store]
        yield [
            Case("work", "", DIRECT, title, partial(_work, plan, store, DIRECT), RATE),
            Case("work", "", OURS, f"{title}, {REMOTE}", partial(_work, plan, store, REMOTE), RATE),
        ]


def single(plan: Plan) -> Iterator[list[Case]]:
    """One job per request, and a route that does nothing, over many connections."""
    units = {"rate": "requests/s", "p99": "p99 ms"}
    for store in plan.stores:
        title = TITLES[store]
        yield [
            Case("single", "", HELLO, title, partial(_single, plan, store, "hello"), units),
            Case("single", "", OURS, title, partial(_single, plan, store, "create"), units),
        ]


def _create(plan: Plan, store: str, way: str, folder: Path) -> Figures:
    with running(store, folder) as place:
        url = place.direct.url if way == DIRECT else place.remote.url
        return run(_ROLES, "create", url=url, jobs=plan.jobs, batch=BATCH)


def _post(plan: Plan, store: str, folder: Path) -> Figures:
    with running(store, folder) as place:
        return run(_ROLES, "post", url=place.remote.url, jobs=plan.jobs, batch=BATCH)


def _work(plan: Plan, store: str, way: str, folder: Path) -> Figures:
    with running(store, folder) as place:
        enqueue(_SIDE, place.direct, "fill", jobs=plan.jobs)
        return {"rate": drained(place.direct if way == DIRECT else place.remote, _SIDE, folder, plan.jobs)}


def _single(plan: Plan, store: str, what: str, folder: Path) -> Figures:
    with running(store, folder) as place:
        return run(
            _ROLES, "single", url=place.remote.url, what=what, requests=plan.singles, connections=CONNECTIONS
        )
