"""What a pending job with a payload of 100 bytes takes of the server's memory, and which keys it is in."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.redis import server as servers
from benchmarks.redis.plan import Plan
from benchmarks.spawn import Figures, run
from penstock import Penstock

TOTAL: Final = "bytes per job, all together"
PAYLOAD_BYTES: Final = 100
_CHUNK: Final = 10_000
_FLUSH_SECONDS: Final = 2.0


def memory(plan: Plan) -> Iterator[list[Case]]:
    """Its event included; the keys as the server says what they use."""
    label = f"{plan.memory_jobs:,} pending, payload {PAYLOAD_BYTES} bytes"
    measure = partial(_memory, server=plan.server, jobs=plan.memory_jobs)
    # Which keys there are is the store's to say.
    yield [Case("memory", "", OURS, label, measure, {})]


def fill(url: str, jobs: int) -> Figures:
    """Jobs whose payload has the size."""

    async def work() -> None:
        app = Penstock(url)

        @app.task(name="padded")
        async def padded(text: str) -> None:
            raise NotImplementedError

        text = "x" * (PAYLOAD_BYTES - len(padded.encode_call(text="")))
        async with app:
            for first in range(0, jobs, _CHUNK):
                await padded.enqueue_many([(text,)] * min(_CHUNK, jobs - first))

    asyncio.run(work())
    return {}


def _memory(folder: Path, *, server: str, jobs: int) -> Figures:
    with servers.running(server, folder) as running:
        # What a first job brings with it is there before: the scripts, the queue itself.
        run("benchmarks.redis.memory", "fill", url=running.url, jobs=1)
        before = _used(running)
        run("benchmarks.redis.memory", "fill", url=running.url, jobs=jobs)
        used = (_used(running) - before) / jobs
        keys = {}
        for key in sorted(running.client.scan_iter(count=1_000)):
            size = running.client.memory_usage(key, samples=0) / jobs
            if size >= 1:
                keys[f"bytes per job in {key.decode().rpartition('}:')[2]}"] = size
    return {TOTAL: used} | keys


def _used(server: servers.Server) -> float:
    """Without what clients and the append-only file buffer for a moment."""
    time.sleep(_FLUSH_SECONDS)
    info = server.client.info("memory")
    return float(info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"])
