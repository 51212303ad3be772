"""Starts a worker over many queues, lets it idle, and then sends jobs to some of them."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.machine import spent
from benchmarks.queues.worker import TASK, TENANT, name_of
from benchmarks.spawn import ROOT, Figures
from penstock.core.job import NewJob, QueueRef
from penstock.core.payload import encode_json
from penstock.stores.open import open_store

SETTLING: Final = 10.0
"""Seconds until the worker counts as idle."""
_PAGE_MIB: Final = os.sysconf("SC_PAGE_SIZE") / 2**20


def measured(url: str, count: int, jobs: int, idle: float) -> Figures:
    """Memory, processor time, descriptors and threads while idle, and the waits of jobs in random queues."""
    asyncio.run(_open(url, count))
    with _worker(url, count) as worker:
        time.sleep(SETTLING)
        folder = Path(f"/proc/{worker.pid}")
        before, began = spent([worker.pid]), time.monotonic()
        time.sleep(idle)
        share = (spent([worker.pid]) - before) / (time.monotonic() - began)
        asyncio.run(_send(url, count, jobs))
        assert worker.stdout is not None
        waits = sorted(float(worker.stdout.readline()) for _ in range(jobs))
        return {
            "rss": int((folder / "statm").read_text().split()[1]) * _PAGE_MIB,
            "cpu": share * 100,
            "descriptors": len(list((folder / "fd").iterdir())),
            "threads": len(list((folder / "task").iterdir())),
            "p50": waits[jobs // 2],
            "p99": waits[min(jobs - 1, jobs * 99 // 100)],
        }


async def _open(url: str, count: int) -> None:
    store = open_store(url)
    await store.open()
    for start in range(0, count, 100):
        refs = [QueueRef(TENANT, name_of(each)) for each in range(start, min(start + 100, count))]
        await asyncio.gather(*map(store.queues.open_queue, refs))
    await store.close()


async def _send(url: str, count: int, jobs: int) -> None:
    store = open_store(url)
    await store.open()
    for number in range(jobs):
        queue = QueueRef(TENANT, name_of(random.randrange(count)))
        payload = encode_json("payload", {"sent": time.time()}, 1_000)
        await store.moves.enqueue(queue, [NewJob(id=f"job-{number}", nonce="n", task=TASK, payload=payload)])
        await asyncio.sleep(random.uniform(0.02, 0.06))
    await store.close()


@contextmanager
def _worker(url: str, count: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "benchmarks.queues.worker", url, str(count)]
    worker = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == "ready"
        yield worker
        worker.communicate(timeout=60)
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait(10)
