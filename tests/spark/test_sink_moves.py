"""Rows as redrives, cancels and deletes: done once, harmless when done again, and counted."""

from pathlib import Path
from typing import Any

import pytest

from penstock.core.job import NewJob
from penstock.core.moves import Bury, Fault
from penstock.core.states import State
from penstock.stores.protocol import Store
from tests.spark.conftest import SparkPlace
from tests.spark.sink_kit import QUEUE, Sink, quarantined, rows


def moves(place: SparkPlace, operation: str, **options: Any) -> Sink:
    return Sink(place, operation=operation, task=None, keyColumns=None, **options)


async def enqueue(store: Store, *ids: str) -> None:
    await store.queues.open_queue(QUEUE)
    await store.moves.enqueue(
        QUEUE, [NewJob(id=each, nonce=each, task="send", payload=b"{}") for each in ids]
    )


async def bury(store: Store, *ids: str) -> None:
    """Let these jobs be claimed and die; all that is pending is claimed."""
    claims = await store.moves.claim(QUEUE, worker="w", limit=100, lease_ms=60_000)
    dying = [Bury(id=job.id, token=job.token, fault=Fault("FAILED")) for job in claims.jobs if job.id in ids]
    await store.moves.settle(QUEUE, dying)


async def states(store: Store, *ids: str) -> list[State | None]:
    return [job.state if job else None for job in await store.reads.get(QUEUE, ids)]


def test_dead_jobs_are_redriven_and_others_left_alone(place: SparkPlace) -> None:
    """What waits or runs has its life already; what succeeded or is gone is refused."""

    async def prepare(store: Store) -> None:
        await enqueue(store, "dead", "runs")
        await bury(store, "dead")
        await enqueue(store, "waits")

    place.run(prepare)
    done = moves(place, "redrive").write(rows(job=["dead", "runs", "waits", "gone"]))

    assert (done.applied, done.already, done.refused) == (1, 2, {"missing": 1})
    assert place.run(lambda store: states(store, "dead", "runs")) == [State.PENDING, State.ACTIVE]


def test_a_job_that_died_again_is_not_redriven_by_an_old_row(place: SparkPlace) -> None:
    """With the drive that the row was read in, a redrive is made once; rows of `dlq` have it."""

    async def prepare(store: Store) -> None:
        await enqueue(store, "a")
        await bury(store, "a")

    place.run(prepare)
    old = rows(id=["a"], queue=["mail"], tenant=["default"], drive=[1], state=["dead"])
    first = moves(place, "redrive").write(old)
    place.run(lambda store: bury(store, "a"))
    again = moves(place, "redrive").write(old)

    assert (first.applied, again.applied, again.already) == (1, 0, 1)
    assert place.run(lambda store: states(store, "a")) == [State.DEAD]
    new = moves(place, "redrive").write(rows(id=["a"], drive=[2]))
    assert new.applied == 1


def test_waiting_jobs_are_cancelled_once(place: SparkPlace) -> None:
    """What runs is asked to stop; what ended otherwise is refused."""

    async def prepare(store: Store) -> None:
        await enqueue(store, "dead", "runs")
        await bury(store, "dead")
        await enqueue(store, "waits")

    place.run(prepare)
    first = moves(place, "cancel").write(rows(job=["waits", "dead", "runs"]))
    again = moves(place, "cancel").write(rows(job=["waits", "dead"]))

    assert (first.applied, first.refused) == (2, {"dead": 1})
    assert (again.applied, again.already, again.refused) == (0, 1, {"dead": 1})
    assert place.run(lambda store: states(store, "waits", "runs")) == [State.CANCELLED, State.ACTIVE]


def test_deleted_jobs_are_gone_and_stay_so(place: SparkPlace) -> None:
    """What runs is refused."""

    async def prepare(store: Store) -> None:
        await enqueue(store, "runs")
        await bury(store)
        await enqueue(store, "waits")

    place.run(prepare)
    first = moves(place, "delete").write(rows(job=["waits", "runs"]), again=1)
    again = moves(place, "delete").write(rows(job=["waits"]))

    assert first.applied + first.already == 1
    assert first.refused == {"active": 1}
    assert (again.applied, again.already) == (0, 1)
    assert place.run(lambda store: states(store, "waits", "runs")) == [None, State.ACTIVE]


@pytest.mark.parametrize("operation", ["redrive", "cancel", "delete"])
def test_a_dry_run_of_a_move_says_what_it_would_do(place: SparkPlace, operation: str) -> None:
    """And then it does just that."""

    async def prepare(store: Store) -> None:
        await enqueue(store, "dead", "runs")
        await bury(store, "dead")
        await enqueue(store, "waits")

    place.run(prepare)
    every = rows(job=["dead", "runs", "waits", "gone"])
    dry = moves(place, operation, dryRun="true").write(every)
    was = place.run(lambda store: states(store, "dead", "runs", "waits"))
    wet = moves(place, operation).write(every)

    assert was == [State.DEAD, State.ACTIVE, State.PENDING]
    assert dry == wet


def test_rows_that_name_no_job_are_bad(place: SparkPlace, tmp_path: Path) -> None:
    """The others go on."""
    place.run(lambda store: enqueue(store, "a"))
    given = {"quarantine": str(tmp_path), "queue": None, "declare": "false"}
    done = moves(place, "cancel", **given).write(
        rows(job=["a", None, "no good", "a"], _queue=["mail", "mail", "mail", "mial"])
    )

    assert (done.applied, done.bad) == (1, {"job": 2, "_queue": 1})
    assert [row["field"] for row in quarantined(tmp_path)] == ["_queue", "job", "job"]
