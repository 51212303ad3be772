"""A process of its own on a shared store, for races and crashes: `python -m tests.conformance.process`.

Arguments: the kind of store, its address, the tenant, the queue, and what to do. It tells each step on a line
of its own as soon as the store has answered, so that whoever kills it knows what was accepted.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import LEASE_MS, new_job
from tests.conformance.stores import STORES, Kind, opened
from tests.kit.waiting import PATIENCE


@contextmanager
def started(kind: Kind, address: str, queue: QueueRef, *what: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that does this on the store; killed at the end of the block if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, kind.name, address, queue.tenant, queue.name, *what],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def lines_until(process: "subprocess.Popen[str]", count: int) -> list[str]:
    """The next lines that the process tells."""
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(count)]
    assert all(lines), f"the process ended early, after {lines}"
    return lines


def rest_of(process: "subprocess.Popen[str]") -> list[str]:
    """What a process that ends had told beyond the lines that were read; `communicate` would lose some."""
    assert process.stdout is not None
    rest = process.stdout.read().split()
    process.wait(PATIENCE)
    return rest


async def drain(store: Store, queue: QueueRef, limit: int) -> None:
    """Claim and complete until nothing is left."""
    while jobs := (await store.moves.claim(queue, worker="process", limit=limit, lease_ms=LEASE_MS)).jobs:
        for job in jobs:
            _tell(f"{job.id} {job.delivery}")
        await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])


async def hold(store: Store, queue: QueueRef, limit: int) -> None:
    """Claim, tell the tokens, and do nothing more."""
    claims = await store.moves.claim(queue, worker="holder", limit=limit, lease_ms=LEASE_MS)
    for job in claims.jobs:
        _tell(f"{job.id} {job.token}")
    await asyncio.sleep(3_600)


async def burst(store: Store, queue: QueueRef, size: int) -> None:
    """Enqueue batches without end, telling each one that was accepted."""
    for batch in range(1_000_000):
        jobs = [new_job(f"b{batch}-{n}", idempotency_key=f"k{batch}-{n}") for n in range(size)]
        await store.moves.enqueue(queue, jobs)
        _tell(f"b{batch}")


async def churn(store: Store, queue: QueueRef, limit: int) -> None:
    """Claim and complete without end, telling each job whose completion was accepted."""
    while True:
        jobs = (await store.moves.claim(queue, worker="churn", limit=limit, lease_ms=LEASE_MS)).jobs
        await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])
        for job in jobs:
            _tell(job.id)


def _tell(line: str) -> None:
    print(line, flush=True)


async def _main(name: str, address: str, tenant: str, queue: str, what: str, size: str) -> None:
    kind = next(each for each in STORES if each.name == name)
    act = {"drain": drain, "hold": hold, "burst": burst, "churn": churn}[what]
    async with opened(kind.connect(address)) as store:
        await act(store, QueueRef(tenant, queue), int(size))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
