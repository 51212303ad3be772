"""A told history of a keyed queue with limits, a flow, a schedule and a debounced job."""

import asyncio
import random
from typing import Final

from msgspec.structs import replace

from penstock.core import decide
from penstock.core.flows import JobRef
from penstock.core.job import Claimed, NewJob, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.values import Firing, StoredSchedule
from tests.core.histories import Bench, History

KEYED: Final = QueueRef("default", "keyed")
DECLARED: Final = Declaration(
    mode=Mode.KEYED, key_limit=2, max_active=4, rate=Rate(10, 1_000, 3), key_rate=Rate(2, 1_000, 2)
)


def told_keys() -> History:
    """One queue; jobs are named for their key, and for where they stand in it."""
    return asyncio.run(_tell(_Teller(Bench())))


async def _tell(teller: "_Teller") -> History:
    bench = teller.bench
    await bench.declare(KEYED, DECLARED, {"w": KeyRule(weight=2)})

    await teller.enqueue("a1", "a2", "a3", "b1", "b2", "c1")
    await teller.claim("a1", "b1", "c1")
    await teller.wait(100)
    await teller.end("c1")
    await teller.claim("a2")
    await teller.wait(100)
    await teller.claim("b2")
    await teller.wait(50)
    await teller.end("b1", "a1")
    await teller.wait(350)
    await teller.claim("a3")
    await teller.end("a2", "a3", "b2")

    await teller.wait(2_000)
    await teller.enqueue("d1", "e1", "f1", "g1", "h1")
    for name in ("d1", "e1", "f1", "g1"):
        await teller.wait(300)
        await teller.claim(name)
    await teller.wait(300)
    await teller.end("d1")
    await teller.claim("h1")
    await teller.end("e1", "f1", "g1", "h1")

    await teller.wait(2_000)
    await teller.enqueue("x1", "x2", "x3", "y1")
    for name in ("x1", "y1", "x2"):
        await teller.wait(300)
        await teller.claim(name)
        await teller.end(name)

    await teller.wait(300)
    await teller.claim("x3")
    await teller.end("x3")

    await teller.enqueue("w1", "w2", "w3", "w4", "v1", "v2")
    for name in ("w1", "v1", "w2", "w3", "v2", "w4"):
        await teller.wait(300)
        await teller.claim(name)
        await teller.end(name)

    await _tell_a_flow(teller)
    await bench.store.schedules.put_schedule(StoredSchedule(KEYED, "nightly", b"{}", 1_000))
    for instant in (1_000, 2_000):
        job = replace(new(f"s{instant}"), schedule="nightly", instant=instant)
        assert await bench.store.schedules.fire(
            KEYED, Firing("nightly", instant, (job,), instant + 1_000, instant)
        )
    for name in ("q1", "q2"):
        await teller.wait(100)
        await bench.enqueue(KEYED, replace(new(name), unique=Unique("q", UniqueRule.DEBOUNCE), delay_ms=400))
    await teller.wait(400)
    await bench.store.moves.promote(KEYED)
    await bench.enqueue(KEYED, new("z1"))
    return await bench.history()


async def _tell_a_flow(teller: "_Teller") -> None:
    child, parent = JobRef(KEYED.name, "k1"), JobRef(KEYED.name, "p1")
    await teller.bench.enqueue(
        KEYED, replace(new("p1"), awaits=(child,)), replace(new("k1"), parents=(parent,))
    )
    await teller.wait(300)
    await teller.claim("k1")
    await teller.end("k1")
    await teller.bench.carry(KEYED)
    await teller.wait(300)
    await teller.claim("p1")
    await teller.end("p1")


class _Teller:
    """Moves by the names of jobs; a claim must bring those that are meant, in this order."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._leases: dict[str, Claimed] = {}

    async def enqueue(self, *names: str) -> None:
        await self.bench.enqueue(KEYED, *map(new, names))

    async def wait(self, ms: int) -> None:
        self.bench.now_ms += ms

    async def claim(self, *names: str) -> None:
        jobs = await self.bench.claim(KEYED, len(names), lease_ms=60_000)
        assert [job.id for job in jobs] == list(names)
        for job in jobs:
            self.bench.execute(KEYED, job)
            self._leases[job.id] = job

    async def end(self, *names: str) -> None:
        ended = [self._leases[name] for name in names]
        endings = [decide.settle(job, decide.Returned(b"1"), random.Random(1).uniform) for job in ended]
        await self.bench.store.moves.settle(KEYED, endings)


def new(name: str) -> NewJob:
    """A job of the key that its name begins with."""
    return NewJob(id=name, nonce=name, task="send", payload=b"{}", key=name[0])
