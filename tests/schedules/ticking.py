"""A process that keeps time: `python -m tests.schedules.ticking KIND ADDRESS TENANT QUEUE UNTIL STEP_MS`.

It says when it is ready, waits for a line, fires what is due until the clock has reached UNTIL, and tells how
many firings were its own. With a step it also turns the clock, by so much each time.
"""

import asyncio
import subprocess
import sys

from penstock.core.job import QueueRef
from penstock.schedules.ticker import Ticker
from penstock.stores.values import Firing
from tests.conformance.stores import STORES, Kind, opened
from tests.kit.waiting import PATIENCE


def started(kind: Kind, address: str, queue: QueueRef, until: int, step_ms: int) -> "subprocess.Popen[str]":
    """The process, ready to begin."""
    arguments = [kind.name, address, queue.tenant, queue.name, str(until), str(step_ms)]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments],
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
    return [int(process.communicate(timeout=PATIENCE)[0]) for process in processes]


async def _main(name: str, address: str, tenant: str, queue: str, until: str, step_ms: str) -> None:
    kind = next(each for each in STORES if each.name == name)
    store = kind.connect(address)
    fire, fired = store.schedules.fire, 0

    async def counted(queue: QueueRef, firing: Firing) -> bool:
        nonlocal fired
        is_ours = await fire(queue, firing)
        fired += is_ours
        return is_ours

    store.schedules.fire = counted  # type: ignore[method-assign]
    async with opened(store):
        ticker = Ticker(store, QueueRef(tenant, queue))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        while await store.clock.now() < int(until):
            if int(step_ms):
                await store.clock.advance_clock(int(step_ms))
            await ticker.attend()
        await ticker.attend()
        print(fired)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
