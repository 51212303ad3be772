"""The same work by the same scripts, called by a bare loop: what a library around them may cost at most."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from redis import Redis

from benchmarks.beside.depth import BATCH, QUEUE
from benchmarks.beside.roles import CHUNK
from benchmarks.beside.running import enqueue
from benchmarks.beside.throughput import drained
from benchmarks.cases import OURS, Case
from benchmarks.redis import server as servers
from benchmarks.redis.plan import Plan
from benchmarks.redis.sides import PENSTOCK
from benchmarks.spawn import Figures, run
from penstock import Penstock
from penstock.core.moves import Complete, Move
from penstock.core.states import State
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.store import RedisStore

BARE: Final = "Bare loop"
UNITS: Final = {"processing": "jobs/s processed", "bulk": "jobs/s enqueued in bulk"}
_MODULE: Final = "benchmarks.redis.bare"
_SETTLE: Final = "calls/settle"
_FIRST_KEY: Final = 3
"""Where the keys begin in a call."""
_TOKENS_AT: Final = 3
"""Where the fresh tokens stand among the arguments of a claim."""
_TOKEN_LENGTH: Final = 32
_LEASE_MS: Final = 60_000


def bare(plan: Plan) -> Iterator[list[Case]]:
    """One worker and one producer of ours, and the loop in their places."""
    ours = partial(_ours, plan.server, plan.processing(PENSTOCK), plan.enqueues(PENSTOCK))
    loop = partial(_bare, plan.server, plan.processing(PENSTOCK), plan.enqueues(PENSTOCK))
    yield [
        Case("bare", "", OURS, "one worker; enqueue_many", ours, UNITS),
        Case("bare", "", BARE, "claim 100, settle 100; enqueue what was recorded", loop, UNITS),
    ]


def _ours(server: str, jobs: int, enqueues: int, folder: Path) -> Figures:
    with servers.running(server, folder / "bulk") as running:
        bulk = enqueue(PENSTOCK, running, "fill", jobs=enqueues)["rate"]
    with servers.running(server, folder / "processing") as running:
        enqueue(PENSTOCK, running, "fill", jobs=jobs)
        return {"processing": drained(running, PENSTOCK, folder, jobs), "bulk": bulk}


def _bare(server: str, jobs: int, enqueues: int, folder: Path) -> Figures:
    with servers.running(server, folder / "bulk") as running:
        bulk = run(_MODULE, "enqueue_again", url=running.url, jobs=enqueues)["rate"]
    with servers.running(server, folder / "processing") as running:
        enqueue(PENSTOCK, running, "fill", jobs=jobs)
        return run(_MODULE, "process", url=running.url, jobs=jobs) | {"bulk": bulk}


class _Kept(Exception):
    """A call was kept and goes no further."""


class _Recording:
    """Keeps a store's calls of scripts as the server gets them; `is_deaf`: and does not make them."""

    def __init__(self, url: str) -> None:
        self.store = RedisStore(url)
        self.calls: dict[str, list[list[Any]]] = {}
        self.is_deaf = False
        server = self.store.backend.server
        scripts, make = Scripts(), server.run

        async def recorded(name: str, keys: Any, *arguments: Any) -> Any:
            call = ["EVALSHA", scripts.get(name).sha, len(keys), *keys, *arguments]
            self.calls.setdefault(name, []).append(call)
            if self.is_deaf:
                raise _Kept
            return await make(name, keys, *arguments)

        server.run = recorded  # type: ignore[method-assign]

    def call_of(self, name: str, made: Coroutine[Any, Any, Any]) -> list[Any]:
        """The script's call that a method would make. The queue has to be open: nothing is waited for."""
        self.is_deaf = True
        with suppress(_Kept):
            made.send(None)
        return self.calls[name].pop()


def enqueue_again(url: str, jobs: int) -> Figures:
    """Jobs per second when the calls that an `enqueue_many` made are made again on a server without jobs."""
    client: Any = Redis.from_url(url)

    async def record() -> list[list[Any]]:
        recording = _Recording(url)
        store = recording.store
        app = Penstock(store=store)

        @app.task(name="noop")
        async def noop(n: int) -> None:
            raise NotImplementedError

        async with app:
            for first in range(0, jobs, CHUNK):
                await noop.enqueue_many([(number,) for number in range(first, min(jobs, first + CHUNK))])
            client.flushall()
            await store.queues.open_queue(QUEUE)
        return recording.calls[Move.ENQUEUE]

    calls = asyncio.run(record())
    start = time.perf_counter()
    for call in calls:
        client.execute_command(*call)
    took = time.perf_counter() - start
    _check(url, State.PENDING, jobs)
    return {"rate": jobs / took}


def process(url: str, jobs: int) -> Figures:
    """Jobs per second claimed and settled, until all are completed."""
    client: Any = Redis.from_url(url)

    async def measure() -> float:
        recording = _Recording(url)
        store = recording.store
        await store.open()
        await store.queues.open_queue(QUEUE)
        claim = recording.call_of(
            Move.CLAIM, store.moves.claim(QUEUE, worker="bare", limit=BATCH, lease_ms=_LEASE_MS)
        )
        tokens = claim[_FIRST_KEY + len(keys_of(QUEUE).all(0)) + _TOKENS_AT]
        token_of = [tokens[at : at + _TOKEN_LENGTH] for at in range(0, len(tokens), _TOKEN_LENGTH)]
        for name in (Move.CLAIM, _SETTLE):
            client.script_load(Scripts().get(name).text)
        start = time.perf_counter()
        # Jobs come as id, record and payload; to complete one takes its id and the token sent along.
        while ids := client.execute_command(*claim)[0][::3]:
            done = [Complete(job.decode(), token, None) for job, token in zip(ids, token_of, strict=False)]
            client.execute_command(*recording.call_of(_SETTLE, store.moves.settle(QUEUE, done)))
        took = time.perf_counter() - start
        await store.close()
        return took

    took = asyncio.run(measure())
    _check(url, State.COMPLETED, jobs)
    return {"processing": jobs / took}


def _check(url: str, state: State, jobs: int) -> None:
    """The loop did the work."""

    async def count() -> int:
        store = RedisStore(url)
        await store.open()
        try:
            return (await store.reads.counts(QUEUE))[state]
        finally:
            await store.close()

    found = asyncio.run(count())
    if found != jobs:
        raise RuntimeError(f"{found} of {jobs} jobs are {state}")
