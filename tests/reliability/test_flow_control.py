"""Limits and flows, with workers and servers killed at random."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.history import Declared, Produced
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.protocol import Store
from tests.reliability.grounds import Ground
from tests.reliability.hands import FAR, QUEUE, Hands, make_app
from tests.reliability.stage import Havoc, ended, events_of, key_peak, verdict_on

pytestmark = pytest.mark.torture

KEYS = 30
LIMITS = Declaration(
    mode=Mode.KEYED, key_limit=2, max_active=20, rate=Rate(70, 1_000, 10), key_rate=Rate(6, 1_000, 4)
)
PATIENCE = 20
"""Looks in a row after which something was claimed while a key could be served and the queue has room."""


async def test_limits_hold_while_workers_and_servers_are_killed(
    ground: Ground, tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """300 SIGKILLs of workers, 10 of the server: no limit is exceeded, no slot lost, no key forgotten."""
    jobs = int(4_000 * scale)
    witness = tmp_path / "executed"
    app = make_app(ground.url, witness, 0)
    produced: list[Produced] = []
    async with ground.open() as store, app:
        declared = Declared(await store.clock.now() - 1, LIMITS)
        await store.queues.declare(QUEUE, LIMITS)
        hands = Hands(ground.url, witness, count=4, pause=0.05, concurrency=10)
        havoc = Havoc(
            chance, hands, ground, kills=int(300 * scale), crashes=int(10 * scale), pauses=(0.05, 0.4)
        )
        with hands.at_work():
            watch = Watch(store, hands)
            watching = asyncio.create_task(watch.run())
            for start in range(0, jobs, 200):
                numbers = range(start, min(start + 200, jobs))
                step = app.task_named("step")
                calls = [step.options(key=f"k{number % KEYS}").call(number) for number in numbers]
                produced += [Produced(QUEUE, handle.id) for handle in await step.enqueue_many(calls)]
                await havoc.go_on(numbers.stop / jobs)
            print(f"{havoc}, {len(produced)} jobs", flush=True)
            await ended(store, QUEUE)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            codes = hands.dismiss()
        verdict = await verdict_on(store, produced, witness, limits={QUEUE: [declared]})
        peak = await key_peak(store)
        print(f"{watch.samples} samples, {watch.busy} of them with keys to serve", flush=True)

        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert watch.stalls == []
        assert await store.health.check(QUEUE) == []
        assert await store.queues.list_keys(QUEUE) == []
    assert codes == [0, 0, 0, 0]
    assert verdict.completed + verdict.failed == jobs == verdict.enqueued
    assert verdict.recovered > 0
    assert watch.busy > 10
    assert peak == LIMITS.key_limit, "the limit was never reached: nothing was shown"


class Watch:
    """Looks again and again whether keys that could be served are."""

    def __init__(self, store: Store, hands: Hands, interval: float = 0.25) -> None:
        self._store = store
        self._hands = hands
        self._interval = interval
        self._cursor = 0
        self._looks_in_vain = 0
        self.samples = self.busy = 0
        self.stalls: list[str] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._look()
            except StoreUnavailableError:
                self._looks_in_vain = 0
            await asyncio.sleep(self._interval)

    async def _look(self) -> None:
        events = await self._store.events.read_events(QUEUE, self._cursor, 100_000)
        self._cursor = events[-1].seq if events else self._cursor
        keys, now = await self._store.queues.list_keys(QUEUE), await self._store.clock.now()
        ready = [
            key.key for key in keys if key.waiting and key.active < key.limit and (key.held_until or 0) <= now
        ]
        has_room = sum(key.active for key in keys) < (LIMITS.max_active or 0)
        is_served = any(event.move is Move.CLAIM for event in events)
        self.samples += 1
        self.busy += bool(ready)
        if is_served or not (ready and has_room and self._hands.are_up):
            self._looks_in_vain = 0
            return
        self._looks_in_vain += 1
        if self._looks_in_vain % PATIENCE == 0:
            self.stalls.append(f"keys {ready} could be served at {PATIENCE} looks, and nothing was claimed")


async def test_a_parent_runs_once_after_all_its_children(
    ground: Ground, tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """1,000 children on two queues, in spite of all that is killed: the parent is released once, and last."""
    many = int(1_000 * scale)
    witness = tmp_path / "executed"
    app = make_app(ground.url, witness, 0)
    async with ground.open() as store, app:
        hands = Hands(ground.url, witness, count=4, pause=0.6, concurrency=5, queues=(QUEUE, FAR))
        havoc = Havoc(chance, hands, ground, kills=int(100 * scale), crashes=int(10 * scale), pauses=(0, 0.4))
        with hands.at_work():
            flow = app.flow("parent")
            step, far = app.task_named("step"), app.task_named("far-step")
            children = [flow.add((far if number % 2 else step).call(number)) for number in range(many)]
            flow.add(app.task_named("last").call(), after=children, child_policy="ignore")
            async with asyncio.TaskGroup() as group:
                group.create_task(flow.enqueue())
                group.create_task(havoc.go_on())
            counts = await store.reads.counts(QUEUE)
            print(f"{havoc}, the parent {'waits' if counts[State.BLOCKED] else 'was released'}", flush=True)
            await ended(store, QUEUE, FAR)
            codes = hands.dismiss()
        verdict = await verdict_on(store, [Produced(QUEUE, "parent")], witness, (QUEUE, FAR))

        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert await store.health.check(QUEUE) + await store.health.check(FAR) == []
        assert await store.flows.list_relay_entries(QUEUE) + await store.flows.list_relay_entries(FAR) == []
        moves = Counter[Move]()
        last_child, released = 0, 0
        for queue in (QUEUE, FAR):
            async for event in events_of(store, queue):
                if event.job == "parent":
                    moves[event.move] += 1
                    released = event.at if event.move is Move.UNBLOCK else released
                elif event.target is not None and event.target.is_ended:
                    last_child = max(last_child, event.at)
        assert (moves[Move.ENQUEUE], moves[Move.UNBLOCK], moves[Move.COMPLETE]) == (1, 1, 1)
        assert last_child <= released
        known = await store.flows.children(QUEUE, "parent")
        assert len(known) == many
        assert all(child.is_done and child.state in {State.COMPLETED, State.FAILED} for child in known)
    assert codes == [0, 0, 0, 0]
    assert verdict.jobs == many + 1
    assert verdict.recovered > 0
