"""A SQLite file under torture, and what became of everything in it."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.history import Checker, Declared, Produced, Verdict
from penstock.core.job import QueueRef
from penstock.core.states import LIVE, State
from penstock.stores.protocol import Durability, Query, Store, Topic
from penstock.stores.sqlite import SqliteStore
from tests.reliability.hands import QUEUE, executions


class OpenSqlite:
    """The store, open for the time of the block."""

    def __init__(self, path: str | Path) -> None:
        self._store = SqliteStore(path, durability=Durability.SERVER)

    async def __aenter__(self) -> Store:
        await self._store.open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


async def ended(store: Store, *queues: QueueRef, patience: float = 300) -> None:
    """Wait until no job of these queues is live."""
    async with asyncio.timeout(patience), store.bell(queues[0], Topic.ENDED) as bell:
        while True:
            counts = [await store.counts(queue) for queue in queues]
            if not any(count[state] for count in counts for state in LIVE):
                return
            await bell.wait(1)


async def verdict_on(
    store: Store,
    produced: Sequence[Produced],
    witness: Path,
    queues: Sequence[QueueRef] = (QUEUE,),
    limits: Mapping[QueueRef, Sequence[Declared]] | None = None,
) -> Verdict:
    """The checker's word on all events, records and jobs."""
    checker = Checker(
        produced=produced, executed=executions(witness), limits=limits, in_order=store.numbers_in_order
    )
    live: dict[tuple[str, str, str], State] = {}
    for queue in queues:
        cursor: str | int = 0
        while events := await store.events(queue, cursor, 5_000):
            for event in events:
                checker.feed(event)
            cursor = events[-1].cursor
        page = await store.find(queue, Query(states=LIVE, limit=10_000))
        live |= {(job.tenant, job.queue, job.id): job.state for job in page.jobs}
    return checker.finish(live)
