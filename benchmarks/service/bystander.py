"""The process of a tenant that means no harm, and of a health check."""

import asyncio
import sys
import time
from typing import Final

from benchmarks.service.http import Client

RATE: Final = 40
"""Requests per second."""
CLIENTS: Final = 8
HEALTH_EVERY: Final = 0.1
LONGEST: Final = 20.0
"""Seconds after which an answer is waited for no more; that is the time it counts with."""
_JOB: Final = b'{"task":"noop","payload":{"n":1}}'


def observe(address: str, token: str, seconds: float) -> dict[str, float]:
    """Percentiles of creating a job, each from the moment it was due, and the worst health check; in ms."""
    return asyncio.run(_observe(address, token, seconds))


async def _observe(address: str, token: str, seconds: float) -> dict[str, float]:
    clients = [Client(address, token) for _ in range(CLIENTS)]
    await asyncio.gather(*map(_created, clients))
    took: list[float] = []
    failures: list[str] = []
    checks: list[float] = []
    unanswered: list[str] = []
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(_create_in_time(client, start + number / RATE, start + seconds, took, failures))
        group.create_task(_check(address, start + seconds, checks, unanswered))
    for each in {*failures, *unanswered}:
        print(each, file=sys.stderr)
    took.sort()
    return {
        "p50": took[len(took) // 2] * 1000,
        "p99": took[int(len(took) * 0.99)] * 1000,
        "failed": len(failures),
        "health": max(checks) * 1000,
        "unanswered": len(unanswered),
    }


async def _create_in_time(
    client: Client, due: float, end: float, took: list[float], failures: list[str]
) -> None:
    while due < end:
        await asyncio.sleep(due - time.perf_counter())
        if failure := await _created(client):
            failures.append(failure)
        took.append(time.perf_counter() - due)
        # What was due while the last one was late is left out, so that a run has an end.
        due = max(due + CLIENTS / RATE, time.perf_counter())


async def _created(client: Client) -> str | None:
    """Create a job; what went wrong, or None."""
    path = "/v1/queues/default/jobs"
    try:
        async with asyncio.timeout(LONGEST):
            try:
                status, said = await client.ask("POST", path, _JOB)
            except (OSError, EOFError):
                # A connection that was closed while it was idle: every client opens another one.
                status, said = await client.ask("POST", path, _JOB)
    except (OSError, EOFError) as error:
        return f"creating a job: {error!r}"
    return None if status == 201 else f"creating a job: {status}: {said.decode()}"


async def _check(address: str, end: float, checks: list[float], unanswered: list[str]) -> None:
    while (began := time.perf_counter()) < end:
        client = Client(address)
        try:
            async with asyncio.timeout(LONGEST):
                status, _ = await client.ask("GET", "/health/live")
            if status != 200:
                unanswered.append(f"health check: {status}")
        except (OSError, EOFError) as error:
            unanswered.append(f"health check: {error!r}")
        client.close()
        checks.append(time.perf_counter() - began)
        await asyncio.sleep(began + HEALTH_EVERY - time.perf_counter())
