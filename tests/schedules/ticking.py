"""A process that keeps time on a file: `python -m tests.schedules.ticking FILE TENANT QUEUE UNTIL STEP_MS`.

It says when it is ready, waits for a line, fires what is due until the clock has reached UNTIL, and tells how
many firings were its own. With a step it also turns the clock, by so much each time.
"""

import asyncio
import subprocess
import sys

from penstock.core.job import QueueRef
from penstock.scheduler.ticker import Ticker
from penstock.stores.protocol import Firing
from penstock.stores.sqlite import SqliteStore
from tests.conformance.stores import opened


def started(path: str, queue: QueueRef, until: int, step_ms: int) -> "subprocess.Popen[str]":
    """The process, ready to begin."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, path, queue.tenant, queue.name, str(until), str(step_ms)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def together(processes: "list[subprocess.Popen[str]]") -> list[int]:
    """How many firings each made, after all began at once."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [int(process.communicate(timeout=100)[0]) for process in processes]


class Counted(SqliteStore):
    """Counts the firings that were this process's own."""

    fired = 0

    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        is_ours = await super().fire(queue, firing)
        self.fired += is_ours
        return is_ours


async def _main(path: str, tenant: str, queue: str, until: str, step_ms: str) -> None:
    store = Counted(path)
    async with opened(store):
        ticker = Ticker(store, QueueRef(tenant, queue))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        while await store.now() < int(until):
            if int(step_ms):
                await store.turn(int(step_ms))
            await ticker.attend()
        await ticker.attend()
        print(store.fired)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
