"""Limits and flows on SQLite, with workers killed at random."""

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from penstock.core.history import Declared, Produced
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.protocol import Store
from tests.reliability.hands import FAR, QUEUE, Hands, make_app
from tests.reliability.stage import OpenSqlite, ended, verdict_on

pytestmark = pytest.mark.torture

KEYS = 30
LIMITS = Declaration(
    mode=Mode.KEYED, key_limit=2, max_active=30, rate=Rate(70, 1_000, 10), key_rate=Rate(6, 1_000, 4)
)
PATIENCE = 5.0
"""Seconds within which something is claimed while a key could be served and the queue has room."""


async def test_limits_hold_while_workers_are_killed(
    tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """4 worker processes, 300 SIGKILLs, 30 keys: no limit is exceeded, no slot lost, no key forgotten."""
    jobs, kills = int(4_000 * scale), int(300 * scale)
    path, witness = tmp_path / "jobs.db", tmp_path / "executed"
    url = f"sqlite:///{path}?durability=server"
    app = make_app(url, witness, 0)
    produced: list[Produced] = []
    async with OpenSqlite(path) as store, app:
        declared = Declared(await store.now() - 1, LIMITS)
        await store.declare(QUEUE, LIMITS)
        hands = Hands(url, witness, count=4, pause=0.05, concurrency=10)
        with hands.at_work():
            watch = Watch(store)
            watching = asyncio.create_task(watch.run())
            done = 0
            for start in range(0, jobs, 200):
                numbers = range(start, min(start + 200, jobs))
                step = app.task_named("step")
                calls = [step.options(key=f"k{number % KEYS}").call(number) for number in numbers]
                produced += [Produced(QUEUE, handle.id) for handle in await step.enqueue_many(calls)]
                while done < kills * min(1.0, len(produced) / jobs):
                    await asyncio.sleep(chance.uniform(0.05, 0.5))
                    hands.kill(chance)
                    done += 1
            print(f"{done} kills, {len(produced)} jobs", flush=True)
            await ended(store, QUEUE)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            codes = hands.dismiss()
        verdict = await verdict_on(store, produced, witness, limits={QUEUE: [declared]})
        print(msgspec.json.encode(msgspec.structs.replace(verdict, breaches=())).decode(), flush=True)
        peak, key_peak = await _peaks(store)
        print(f"{peak} at once in all, {key_peak} of a key", flush=True)
        print(f"{watch.samples} samples, {watch.busy} of them with keys to serve", flush=True)

        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert watch.stalls == []
        assert await store.check(QUEUE) == []
        assert await store.keys(QUEUE) == []
    assert codes == [0, 0, 0, 0]
    assert verdict.completed + verdict.failed == jobs == verdict.enqueued
    assert verdict.recovered > 0
    assert watch.busy > 10
    assert key_peak == LIMITS.key_limit, "the limit was never reached: nothing was shown"


async def _peaks(store: Store) -> tuple[int, int]:
    """The most leases at once by the log, in all and of one key."""
    held: Counter[str | None] = Counter()
    peak = key_peak = 0
    for event in await store.events(QUEUE, 0, 1_000_000):
        if event.move is Move.CLAIM:
            held[event.key] += 1
            peak, key_peak = max(peak, held.total()), max(key_peak, held[event.key])
        elif event.source is State.ACTIVE and event.target is not State.ACTIVE:
            held[event.key] -= 1
    return peak, key_peak


class Watch:
    """Looks again and again whether keys that could be served are."""

    def __init__(self, store: Store, interval: float = 0.25) -> None:
        self._store = store
        self._interval = interval
        self.samples = self.busy = 0
        self.stalls: list[str] = []

    async def run(self) -> None:
        """Until cancelled."""
        cursor, since = 0, time.monotonic()
        while True:
            events = await self._store.events(QUEUE, cursor, 100_000)
            cursor = events[-1].seq if events else cursor
            keys, now = await self._store.keys(QUEUE), await self._store.now()
            ready = [
                key.key
                for key in keys
                if key.waiting and key.active < key.limit and (key.held_until or 0) <= now
            ]
            has_room = sum(key.active for key in keys) < (LIMITS.max_active or 0)
            self.samples += 1
            if not ready or not has_room or any(event.move is Move.CLAIM for event in events):
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                self.stalls.append(f"keys {ready} could be served for {PATIENCE} s, and nothing was claimed")
                since = time.monotonic()
            self.busy += bool(ready)
            await asyncio.sleep(self._interval)


async def test_a_parent_runs_once_after_all_its_children(
    tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """1,000 children on two queues, workers killed all the while: the parent is released once, and last."""
    many, kills = int(1_000 * scale), int(100 * scale)
    path, witness = tmp_path / "jobs.db", tmp_path / "executed"
    url = f"sqlite:///{path}?durability=server"
    app = make_app(url, witness, 0)
    async with OpenSqlite(path) as store, app:
        hands = Hands(url, witness, count=4, pause=0.6, concurrency=5, queues=(QUEUE, FAR))
        with hands.at_work():
            flow = app.flow("parent")
            step, far = app.task_named("step"), app.task_named("far-step")
            children = [flow.add((far if number % 2 else step).call(number)) for number in range(many)]
            flow.add(app.task_named("last").call(), after=children, child_policy="ignore")
            await flow.enqueue()
            for _ in range(kills):
                await asyncio.sleep(chance.uniform(0, 0.4))
                hands.kill(chance)
            counts = await store.counts(QUEUE)
            print(
                f"{kills} kills, the parent {'waits' if counts[State.BLOCKED] else 'was released'}",
                flush=True,
            )
            await ended(store, QUEUE, FAR)
            codes = hands.dismiss()
        verdict = await verdict_on(store, [Produced(QUEUE, "parent")], witness, (QUEUE, FAR))
        print(msgspec.json.encode(msgspec.structs.replace(verdict, breaches=())).decode(), flush=True)

        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert await store.check(QUEUE) + await store.check(FAR) == []
        assert await store.relays(QUEUE) + await store.relays(FAR) == []
        moves = Counter[Move]()
        last_child, released = 0, 0
        for queue in (QUEUE, FAR):
            for event in await store.events(queue, 0, 1_000_000):
                if event.job == "parent":
                    moves[event.move] += 1
                    released = event.at if event.move is Move.UNBLOCK else released
                elif event.target is not None and event.target.is_ended:
                    last_child = max(last_child, event.at)
        assert (moves[Move.ENQUEUE], moves[Move.UNBLOCK], moves[Move.COMPLETE]) == (1, 1, 1)
        assert last_child <= released
        known = await store.children(QUEUE, "parent")
        assert len(known) == many
        assert all(child.is_done and child.state in {State.COMPLETED, State.FAILED} for child in known)
    assert codes == [0, 0, 0, 0]
    assert verdict.jobs == many + 1
    assert verdict.recovered > 0
