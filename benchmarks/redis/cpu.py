"""Processor time per job of the workers and of the server, for one and for two workers."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.redis import server as servers
from benchmarks.redis.depth import QUEUE
from benchmarks.redis.plan import Plan
from benchmarks.redis.running import enqueue, worker
from benchmarks.redis.sides import PENSTOCK
from benchmarks.spawn import Failed, Figures, run
from penstock.stores.protocol import Pause
from penstock.stores.redis.store import RedisStore

UNITS: Final = {"client": "µs of the workers per job", "server": "µs of the server per job", "rate": "jobs/s"}
_MODULE: Final = "benchmarks.redis.cpu"
_START_SECONDS: Final = 20.0
_REST_SECONDS: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu(plan: Plan) -> Iterator[list[Case]]:
    """The same jobs by one worker and by two."""
    jobs = plan.processing(PENSTOCK)
    yield [
        Case(
            "cpu",
            "",
            OURS,
            f"{count} worker{'s' * (count > 1)}",
            partial(_cost, server=plan.server, jobs=jobs, workers=count),
            UNITS,
        )
        for count in (1, 2)
    ]


def pause(url: str, is_paused: bool) -> Figures:
    """Stop claims from the queue, or let them go on."""

    async def work() -> None:
        store = RedisStore(url)
        await store.open()
        try:
            await store.pause(QUEUE, Pause(at=0) if is_paused else None)
        finally:
            await store.close()

    asyncio.run(work())
    return {}


def _cost(folder: Path, *, server: str, jobs: int, workers: int) -> Figures:
    with servers.running(server, folder) as running, ExitStack() as stack:
        enqueue(PENSTOCK, running, "fill", jobs=jobs)
        run(_MODULE, "pause", url=running.url, is_paused=True)
        started = [stack.enter_context(worker(PENSTOCK, running, folder, place)) for place in range(workers)]
        _await_listeners(running, workers)
        # What starting costs is not part of a job.
        pids = [each.process.pid for each in started]
        client, served = _spent(pids), _spent([running.pid])
        run(_MODULE, "pause", url=running.url, is_paused=False)
        start = started[0].wait_until(1)
        end = started[0].wait_until(jobs)
        client, served = _spent(pids) - client, _spent([running.pid]) - served
    return {"client": client / jobs * 1e6, "server": served / jobs * 1e6, "rate": jobs / (end - start)}


def _await_listeners(server: servers.Server, count: int) -> None:
    """Wait until so many workers listen for wake-ups, and have come to rest after that."""
    end = time.monotonic() + _START_SECONDS
    while True:
        channels = server.client.pubsub_channels()
        if max((heard for _, heard in server.client.pubsub_numsub(*channels)), default=0) >= count:
            break
        if time.monotonic() > end:
            raise Failed(f"{count} workers did not start in {_START_SECONDS:.0f} s")
        time.sleep(0.05)
    time.sleep(_REST_SECONDS)


def _spent(pids: Sequence[int]) -> float:
    """Seconds of user and system time of these processes, all their threads."""
    total = 0
    for pid in pids:
        # The name may have spaces; the fields after it do not.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS
