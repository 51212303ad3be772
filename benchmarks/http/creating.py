"""Jobs in batches of 100 and one by one, beside the direct client and a route that does nothing."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.http.plan import Plan
from benchmarks.http.serving import Connection, file_url, served
from benchmarks.spawn import Figures, run
from penstock import Penstock

DIRECT: Final = "Direct client"
HELLO: Final = "Bare route"
BATCH: Final = 100
CONNECTIONS: Final = 50
ARGUMENTS: Final = {"to": "ada@example.org", "body": "hello " * 8}
_MODULE: Final = "benchmarks.http.creating"
_RATE: Final = {"rate": "jobs/s"}
_SINGLE: Final = {"rate": "requests/s", "p50": "ms", "p99": "ms"}


def creating(plan: Plan) -> Iterator[list[Case]]:
    """100 jobs in a request, one request after the other, beside `enqueue_many` of 100."""
    label = f"{BATCH} jobs each time"
    yield [
        Case("create", "", OURS, f"over HTTP, {label}", partial(_over_http, "create_many", plan), _RATE),
        Case("create", "", DIRECT, label, partial(_direct, plan), _RATE),
    ]


def single(plan: Plan) -> Iterator[list[Case]]:
    """One job in a request over many connections, beside a route that touches no store."""
    label = f"{CONNECTIONS} connections"
    yield [
        Case("single", "", OURS, label, partial(_over_http, "create_single", plan), _SINGLE),
        Case("single", "", HELLO, label, partial(_over_http, "say_hello", plan), _SINGLE),
    ]


def _over_http(role: str, plan: Plan, folder: Path) -> Figures:
    with served(folder) as (address, token):
        return run(_MODULE, role, address=address, token=token, jobs=plan.jobs, seconds=plan.seconds)


def _direct(plan: Plan, folder: Path) -> Figures:
    return run(_MODULE, "enqueue_many", url=file_url(folder), jobs=plan.jobs)


def create_many(address: str, token: str, jobs: int, seconds: float) -> Figures:
    """`POST /v1/jobs`, over one connection."""
    wish = {"queue": "bench", "task": "send", "payload": ARGUMENTS}
    body = json.dumps({"jobs": [wish] * BATCH}).encode()

    async def work() -> float:
        async with Connection(address, token) as connection:
            await connection.ask("POST", "/v1/jobs", body)
            began = time.perf_counter()
            for _ in range(jobs // BATCH):
                await connection.ask("POST", "/v1/jobs", body)
            return jobs / (time.perf_counter() - began)

    return {"rate": asyncio.run(work())}


def enqueue_many(url: str, jobs: int) -> Figures:
    """The same by the client, in the process of the producer."""

    async def work() -> float:
        app = Penstock(url)

        @app.queue("bench").task
        async def send(to: str, body: str) -> None:
            raise NotImplementedError

        async with app:
            await send.enqueue_many([ARGUMENTS] * BATCH)
            began = time.perf_counter()
            for _ in range(jobs // BATCH):
                await send.enqueue_many([ARGUMENTS] * BATCH)
            return jobs / (time.perf_counter() - began)

    return {"rate": asyncio.run(work())}


def create_single(address: str, token: str, jobs: int, seconds: float) -> Figures:
    """`POST /v1/queues/bench/jobs`, over many connections."""
    body = json.dumps({"task": "send", "payload": ARGUMENTS}).encode()
    return asyncio.run(_storm(address, token, seconds, "POST", "/v1/queues/bench/jobs", body))


def say_hello(address: str, token: str, jobs: int, seconds: float) -> Figures:
    """`GET /health/live`, over many connections."""
    return asyncio.run(_storm(address, token, seconds, "GET", "/health/live", b""))


async def _storm(address: str, token: str, seconds: float, method: str, path: str, body: bytes) -> Figures:
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        async with Connection(address, token) as connection:
            while (began := time.perf_counter()) < end:
                await connection.ask(method, path, body)
                waits.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    waits.sort()
    return {
        "rate": len(waits) / seconds,
        "p50": waits[len(waits) // 2],
        "p99": waits[len(waits) * 99 // 100],
    }
