"""A scaler of processes over a store: what it reads, what it does, and what is kept of it."""

import asyncio
import os
import socket
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.scaling import Direction, Rules
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import WorkerEntry, WorkerState
from penstock.testing.conformance.arrange import enqueue, new_job
from penstock.worker.processes import scaler as scaling
from penstock.worker.processes.measuring import Measuring
from penstock.worker.processes.scaler import ProcessScaler
from penstock.worker.processes.scaling_log import RETENTION_MS, ScalingLog
from tests.kit.waiting import until
from tests.worker.kit import StoppedClock


class Processes:
    """The processes of a supervisor, without any."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.idle: list[int] = []

    @property
    def pids(self) -> list[int]:
        return list(range(1, self.wanted + 1))

    def resize(self, wanted: int, idle: Collection[int] = ()) -> None:
        self.wanted, self.idle = wanted, sorted(idle)


def worker(pid: int, taken: int, host: str = "", **more: Any) -> WorkerEntry:
    return WorkerEntry(
        f"w{pid}{host}",
        host or socket.gethostname(),
        pid,
        "0.1",
        {"q": 10},
        ("send",),
        instance=f"i{pid}{host}",
        state=WorkerState.BUSY if taken else WorkerState.IDLE,
        slots=10,
        taken=taken,
        busy={"q": taken} if taken else {},
        **more,
    )


async def test_processes_follow_the_backlog_and_every_decision_is_kept(store: Store, queue: QueueRef) -> None:
    """On every store: two processes here and one on another host share the backlog."""
    processes: Any = Processes(2)
    clock = StoppedClock()
    scaler = ProcessScaler(store, queue.tenant, {"q": 10}, processes, Rules(most=6), clock=clock)
    for entry in (worker(1, 10), worker(2, 10), worker(1, 10, "elsewhere")):
        await store.workers.register_worker(queue.tenant, entry, 3_600_000)
    await enqueue(store, queue, [new_job(f"job-{number}") for number in range(400)])

    up = await scaler.step()
    again = await scaler.step()
    entries = await ScalingLog(store, queue.tenant).latest()

    assert up is not None
    assert (up.direction, up.units, up.wanted) == (Direction.UP, 2, 3)
    assert up.reason == "q: 400 waiting for 30 slots, more than 10 a slot"
    assert again is None, "the pause between two decisions"
    assert processes.wanted == 3
    (kept,) = entries
    assert (kept.unit, kept.units, kept.wanted, kept.reason) == ("processes", 2, 3, up.reason)
    assert kept.scaler == f"{socket.gethostname()}:{os.getpid()}"


async def test_idle_processes_are_named_when_some_are_stopped() -> None:
    store, clock = MemoryStore(), StoppedClock()
    processes: Any = Processes(4)
    scaler = ProcessScaler(store, "default", {"q": 10}, processes, Rules(most=6), clock=clock)
    for pid, taken in ((1, 0), (2, 3), (3, 0), (4, 0)):
        await store.workers.register_worker("default", worker(pid, taken), 3_600_000)

    assert await scaler.step() is None
    clock.turn(60)
    assert await scaler.step() is None
    clock.turn(60)
    down = await scaler.step()

    assert down is not None
    assert (down.direction, down.wanted, down.reason) == (Direction.DOWN, 3, "3 of 4 idle for 120 s")
    assert processes.idle == [1, 3, 4]


async def test_workers_that_shut_down_are_no_slots() -> None:
    store, clock = MemoryStore(), StoppedClock()
    measuring = Measuring(store, "default", {"q": 10}, clock)
    leaving = msgspec.structs.replace(worker(7, 5), state=WorkerState.SHUTTING_DOWN)

    sample = await measuring.sample([worker(1, 10), leaving], [worker(1, 10)], 1)

    assert sample.loads[0].all_slots == 10


async def test_arrivals_and_service_time_follow_from_two_samples() -> None:
    """Of workers that stand in both: one that started in between tells nothing of the time before."""
    store, clock = MemoryStore(), StoppedClock()
    ref = QueueRef("default", "q")
    measuring = Measuring(store, "default", {"q": 10}, clock)
    first = worker(1, 4, done={"q": (100, 50_000)})
    await measuring.sample([first], [first], 1)
    clock.turn(10)
    await enqueue(store, ref, [new_job(f"job-{number}") for number in range(6)])
    later = worker(1, 8, done={"q": (120, 60_000)})
    sample = await measuring.sample([later, worker(2, 0, done={"q": (9, 9)})], [later], 1)

    (load,) = sample.loads
    assert load.arrivals == pytest.approx((6 + 4 + 20) / 10)
    assert load.service == pytest.approx(10_000 / 1000 / 20)


async def test_decisions_are_kept_for_thirty_days() -> None:
    store, clock = MemoryStore(), StoppedClock()
    processes: Any = Processes(1)
    scaler = ProcessScaler(store, "default", {"q": 10}, processes, Rules(most=9), clock=clock)
    await enqueue(store, QueueRef("default", "q"), [new_job(f"job-{number}") for number in range(900)])
    await store.workers.register_worker("default", worker(1, 10), 3_600_000)
    await scaler.step()
    await store.clock.advance_clock(RETENTION_MS + 1)
    clock.turn(60)
    await scaler.step()

    assert [entry.units for entry in await ScalingLog(store, "default").latest()] == [2]


async def test_a_store_that_is_away_changes_nothing_and_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryStore):
        calls = 0

        async def open(self) -> None:
            self.calls += 1
            raise StoreUnavailableError("away")

    store, processes = Away(), Processes(2)
    monkeypatch.setattr(scaling, "ANSWER", 60.0)
    made: Any = processes
    scaler = ProcessScaler(store, "default", {"q": 1}, made, Rules(), check=0.0)
    run = asyncio.create_task(scaler.run())
    await until(lambda: store.calls > 5)
    run.cancel()
    await asyncio.wait([run])

    assert processes.wanted == 2
    assert [record.getMessage() for record in caplog.records] == [
        "the autoscaler cannot use the store, retrying: away"
    ]
