"""The roles of Huey: SqliteHuey with its consumer's thread workers, as its documentation sets them up."""

import itertools
import logging
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.idle import IdleCost

# Huey imports the Redis client wherever there is one; a queue on SQLite should not have to pay for that.
sys.modules["redis"] = None  # type: ignore[assignment]

from huey import SqliteHuey  # noqa: E402

_SYNCHRONOUS: Final = {"power": 2, "server": 1}
POLLING: Final[dict[str, dict[str, float]]] = {
    "default": {},
    "fast": {"initial_delay": 0.01, "max_delay": 0.01, "backoff": 1.0},
}
"""Huey's own delays, and a look every 10 ms without growing rests."""


def fill(path: str, jobs: int) -> dict[str, float]:
    """Put jobs in without measuring."""
    huey, noop = _with_noop(path, "server")
    _insert_at_once(huey, noop, jobs)
    return {}


def work(path: str, durability: str, jobs: int, workers: int) -> dict[str, float]:
    """Jobs per second of one consumer, from its start until the last job was executed."""
    # As `huey_consumer -q`: a line per job would cost the peer time that we do not spend either.
    logging.basicConfig(level=logging.WARNING)
    count = itertools.count(1)
    finished = threading.Event()

    def noop(n: int) -> None:
        if next(count) == jobs:
            finished.set()

    huey, _ = _with(path, durability, noop)
    consumer = huey.create_consumer(workers=workers)
    start = time.perf_counter()
    consumer.start()
    if not finished.wait(600):
        raise TimeoutError(f"not all of {jobs} jobs were executed")
    took = time.perf_counter() - start
    consumer.stop(graceful=True)
    return {"rate": jobs / took}


def single(path: str, durability: str, jobs: int, callers: int) -> dict[str, float]:
    """Jobs per second enqueued one at a time by so many threads."""
    _, noop = _with_noop(path, durability)
    noop(0)
    share = jobs // callers
    gate = threading.Barrier(callers + 1)

    def call() -> None:
        gate.wait()
        for number in range(share):
            noop(number)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return {"rate": share * callers / (time.perf_counter() - start)}


def bulk(path: str, durability: str, jobs: int) -> dict[str, float]:
    """Jobs per second by `task.map`: Huey has no call that takes many jobs in one transaction."""
    _, noop = _with_noop(path, durability)
    noop(0)
    start = time.perf_counter()
    noop.map([(number,) for number in range(jobs)])
    return {"rate": jobs / (time.perf_counter() - start)}


def bulk_by_hand(path: str, durability: str, jobs: int) -> dict[str, float]:
    """Jobs per second when a user writes Huey's own serialized tasks into its table in one transaction."""
    huey, noop = _with_noop(path, durability)
    noop(0)
    start = time.perf_counter()
    _insert_at_once(huey, noop, jobs)
    return {"rate": jobs / (time.perf_counter() - start)}


def consume(path: str, durability: str, polling: str, workers: int) -> dict[str, Any]:
    """Idle until told to stop; how long each job took from before its enqueue to its handler, in ms."""
    logging.basicConfig(level=logging.WARNING)
    waits: list[float] = []

    def stamped(sent: int) -> None:
        waits.append((time.monotonic_ns() - sent) / 1e6)

    huey, _ = _with(path, durability, stamped)
    consumer = huey.create_consumer(workers=workers, **POLLING[polling])
    consumer.start()
    print("ready", flush=True)
    time.sleep(0.5)
    cost = IdleCost()
    sys.stdin.readline()
    figures = cost.figures()
    consumer.stop(graceful=True)
    return figures | {"waits": waits}


def send(path: str, durability: str, samples: int, pause: float) -> dict[str, float]:
    """Enqueue stamped jobs one at a time, with uneven pauses around `pause` seconds."""

    def stamped(sent: int) -> None:
        raise NotImplementedError

    _, task = _with(path, durability, stamped)
    for _ in range(samples):
        time.sleep(pause * random.uniform(0.5, 1.5))
        task(time.monotonic_ns())
    time.sleep(1)
    return {}


def _with_noop(path: str, durability: str) -> tuple[Any, Any]:
    def noop(n: int) -> None:
        pass

    return _with(path, durability, noop)


def _with(path: str, durability: str, function: Callable[..., None]) -> tuple[Any, Any]:
    """The queue and the task. Huey writes in WAL mode by itself; `synchronous` is ours to make equal."""

    def connect(*args: Any, **keywords: Any) -> sqlite3.Connection:
        connection = sqlite3.Connection(*args, **keywords)
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        return connection

    huey = SqliteHuey("bench", filename=path, factory=connect)
    return huey, huey.task(name=function.__name__)(function)


def _insert_at_once(huey: Any, noop: Any, jobs: int) -> None:
    rows = [(huey.storage.name, huey.serialize_task(noop.s(number)), 0) for number in range(jobs)]
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
