"""A store under torture: what is killed in it, and what became of everything."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.core.events import Event
from penstock.core.history import Checker, Declared, Produced, Verdict
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import LIVE, State
from penstock.stores.protocol import Store
from penstock.stores.values import Query, Topic
from tests.reliability.grounds import Ground
from tests.reliability.hands import QUEUE, Hands, executions

LONGEST_AWAY = 0.5
"""Seconds that a killed server stays away at most."""


class Havoc:
    """Kills workers, and the server where there is one, in an order and with pauses that the seed gives."""

    def __init__(
        self,
        chance: random.Random,
        hands: Hands,
        ground: Ground,
        *,
        kills: int,
        crashes: int,
        pauses: tuple[float, float],
    ) -> None:
        self._plan = [False] * kills + [True] * (crashes if ground.has_server else 0)
        chance.shuffle(self._plan)
        self._chance = chance
        self._hands = hands
        self._ground = ground
        self._pauses = pauses
        self._done = 0
        self._crash: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        crashes = sum(self._plan[: self._done])
        return f"{self._done - crashes} workers and {crashes} servers killed"

    async def go_on(self, share: float = 1.0) -> None:
        """Go on until this share of the plan is done, and the server is back.

        Workers are killed and started also while it is away.
        """
        while self._done < len(self._plan) * min(1.0, share):
            await asyncio.sleep(self._chance.uniform(*self._pauses))
            if self._plan[self._done]:
                await self._have_server()
                away = self._chance.uniform(0, LONGEST_AWAY)
                self._crash = asyncio.create_task(self._ground.crash(away))
            else:
                self._hands.kill(self._chance)
            self._done += 1
        await self._have_server()

    async def _have_server(self) -> None:
        if self._crash is not None:
            await self._crash


async def ended(store: Store, *queues: QueueRef, patience: float = 300) -> None:
    """Wait until no job of these queues is live."""
    async with asyncio.timeout(patience), store.notifier.subscribe(queues[0], Topic.ENDED) as subscription:
        while True:
            counts = [await store.reads.counts(queue) for queue in queues]
            if not any(count[state] for count in counts for state in LIVE):
                return
            await subscription.wait(1)


async def verdict_on(
    store: Store,
    produced: Sequence[Produced],
    witness: Path,
    queues: Sequence[QueueRef] = (QUEUE,),
    limits: Mapping[QueueRef, Sequence[Declared]] | None = None,
) -> Verdict:
    """The checker's word on all events, records and jobs; printed but for its breaches."""
    checker = Checker(
        produced=produced, executed=executions(witness), limits=limits, in_order=store.numbers_in_order
    )
    return await _finished(checker, store, queues)


async def verdict_of(store: Store, produced: Sequence[Produced]) -> Verdict:
    """The same where handlers write nothing down."""
    return await _finished(Checker(produced=produced, in_order=store.numbers_in_order), store, (QUEUE,))


async def _finished(checker: Checker, store: Store, queues: Sequence[QueueRef]) -> Verdict:
    live: dict[tuple[str, str, str], State] = {}
    for queue in queues:
        async for event in events_of(store, queue):
            checker.feed(event)
        query = Query(states=LIVE, limit=1_000, payloads=False)
        while True:
            page = await store.reads.find(queue, query)
            live |= {(job.tenant, job.queue, job.id): job.state for job in page.jobs}
            if page.next is None:
                break
            query = msgspec.structs.replace(query, after=page.next)
    verdict = checker.finish(live)
    print(msgspec.json.encode(msgspec.structs.replace(verdict, breaches=())).decode(), flush=True)
    return verdict


async def events_of(store: Store, queue: QueueRef) -> AsyncIterator[Event]:
    """Every event of the queue."""
    cursor: str | int = 0
    while events := await store.events.read_events(queue, cursor, 5_000):
        for event in events:
            yield event
        cursor = events[-1].cursor


async def key_peak(store: Store) -> int:
    """The most leases that one key had at once, by the log."""
    held: Counter[str | None] = Counter()
    peak = of_key = 0
    async for event in events_of(store, QUEUE):
        if event.move is Move.CLAIM:
            held[event.key] += 1
            peak, of_key = max(peak, held.total()), max(of_key, held[event.key])
        elif event.source is State.ACTIVE and event.target is not State.ACTIVE:
            held[event.key] -= 1
    print(f"{peak} at once in all, {of_key} of a key", flush=True)
    return of_key
