"""A walk: random moves made on a store and on the reference beside it, held against each other step by step.

The reference's clock follows the store's: it is set to the time of the events that a step wrote, so that even
the times in records and events have to agree. Tokens and fences are a store's own and are compared by the
delivery they belong to.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise, zip_longest
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.core.errors import PenstockError
from penstock.core.job import Job, NewJob, Options, QueueRef
from penstock.core.moves import Beat, Expire, Fault, Move, Report, Settlement
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import Pause
from penstock.testing.conformance.judge import differences, settlement

UNIT_MS: Final = 10_000
"""All delays, leases and turns are multiples of this, so that the time a walk takes decides nothing."""
SLACK_MS: Final = 5_000
LOOK_EVERY: Final = 4
"""Answers are compared at every step, records at every so many."""
SETTLING: Final = (Move.COMPLETE, Move.FAIL, Move.RETRY, Move.BURY, Move.SNOOZE, Move.RELEASE)
Call = Callable[[Store, int], Awaitable[Any]]
Act = Callable[[], Awaitable[None]]


class Held(msgspec.Struct, frozen=True):
    """A delivery, with its token in the reference and in the store."""

    job: str
    tokens: tuple[str, str]


class World:
    """A store and the reference beside it, at the same time, and what was done to both."""

    def __init__(self, store: Store, seed: int, *, is_checked: bool = True) -> None:
        self.store = store
        self.is_checked = is_checked
        self.chance = random.Random(seed)
        self.clock_us = 0
        self.reference = MemoryStore(clock_us=lambda: self.clock_us)
        self.steps: list[str] = []


class Walk:
    """One walk on one queue."""

    most = 4
    """So many jobs are claimed at most."""
    turn_extra_ms = 0
    """By this much more than whole units the clock is turned."""

    def __init__(self, world: World, queue: QueueRef) -> None:
        self.world = world
        self.store: Store = world.store
        self.reference = world.reference
        self.steps = world.steps
        self.chance = world.chance
        self.queue = queue
        self.held: list[Held] = []
        self.names = [f"job-{n}" for n in range(12)]
        self.seq = 0

    async def run(self, steps: int) -> None:
        """Walk so many steps, then compare all there is; AssertionError tells the way up to it."""
        await walk_together([self], steps)

    async def step(self) -> None:
        """Do one thing at random."""
        acts = self._acts()
        act = self.chance.choices([each for each, _ in acts], [weight for _, weight in acts])[0]
        await act()

    def _acts(self) -> list[tuple[Act, int]]:
        """What can be done, and how often."""
        return [
            (self._enqueue, 6),
            (self._claim, 6),
            (self._settle, 8),
            (self._turn, 3),
            (self._expire, 3),
            (self._promote, 2),
            (self._heartbeat, 2),
            (self._progress, 2),
            (self._cancel, 2),
            (self._redrive, 2),
            (self._delete, 1),
            (self._prune, 1),
            (self._pause, 1),
        ]

    async def _both(self, said: str, call: Call) -> tuple[Any, Any]:
        """The call on the store, then on the reference at the time that the store took it to be."""
        self.steps.append(f"  {said}")
        # Progress that came too soon wrote no event, and would write none at an earlier time either.
        began = await self.store.clock.now() if said.startswith("progress") else None
        answer = await call(self.store, 1)
        events = await self.store.events.read_events(self.queue, after=self.seq)
        self.seq += len(events)
        at = events[0].at if events else await self.store.clock.now() if began is None else began
        assert all(event.at == at for event in events), "one call wrote events of several times"
        self.world.clock_us = at * 1000
        return await call(self.reference, 0), answer

    async def _same(self, said: str, call: Call) -> None:
        wanted, found = await self._both(said, call)
        self.steps[-1] += f" → {found}"

        assert found == wanted, f"{said}: answered {found}, wanted {wanted}"

    # Moves

    async def _enqueue(self) -> None:
        jobs = [self._new_job() for _ in range(self.chance.randint(1, 3))]
        await self._same(
            f"enqueue {[(job.id, job.nonce, job.priority, job.delay_ms) for job in jobs]}",
            lambda store, _: store.moves.enqueue(self.queue, jobs),
        )

    def _new_job(self) -> NewJob:
        pick = self.chance
        return NewJob(
            id=pick.choice(self.names),
            nonce=pick.choice(["n", "n", "n", "m"]),
            task=pick.choice(["t", "u"]),
            payload=pick.choice([b"1", b"2"]),
            priority=pick.choice([0, 5, 5, 9]),
            delay_ms=pick.choice([0, 0, UNIT_MS, 3 * UNIT_MS]),
            idempotency_key=pick.choice([None, None, "k", "l"]),
            options=Options(retention_ms=2 * UNIT_MS, key_retention_ms=pick.choice([None, 4 * UNIT_MS])),
        )

    async def _claim(self) -> None:
        limit, lease = self.chance.randint(0, self.most), self.chance.choice([1, 2, 6]) * UNIT_MS
        said = f"claim {limit} for {lease} ms"
        wanted, found = await self._both(
            said, lambda store, _: store.moves.claim(self.queue, worker="w", limit=limit, lease_ms=lease)
        )
        assert isinstance(wanted, Claims)
        assert isinstance(found, Claims)
        self.steps[-1] += f" → {[job.id for job in found.jobs]}"

        assert [_plain(job) for job in found.jobs] == [_plain(job) for job in wanted.jobs], f"{said}: {found}"
        assert {lease.id for lease in found.expired} == {lease.id for lease in wanted.expired}, said
        # Who got all he asked for comes back anyway: a store need not look further then.
        if not found.jobs or len(found.jobs) < limit:
            assert (found.wait_ms is None) == (wanted.wait_ms is None), f"{said}: {found.wait_ms}"
            assert abs((found.wait_ms or 0) - (wanted.wait_ms or 0)) < SLACK_MS, f"{said}: {found.wait_ms}"
        self.held += [
            Held(ours.id, (ours.token, theirs.token))
            for ours, theirs in zip(wanted.jobs, found.jobs, strict=True)
        ]

    async def _settle(self) -> None:
        chosen = [(self.chance.choice(SETTLING), held) for held in self._some_held()]

        def items(side: int) -> list[Settlement]:
            return [settlement(move, held.job, held.tokens[side]) for move, held in chosen]

        await self._same(
            f"settle {[(move.value, held.job) for move, held in chosen]}",
            lambda store, side: store.moves.settle(self.queue, items(side)),
        )

    async def _expire(self) -> None:
        chosen = [
            (held, self.chance.choice([State.DELAYED, State.DELAYED, State.DEAD, State.PENDING]))
            for held in self._some_held()
        ]
        fault = Fault("LEASE_EXPIRED", "gone", "f")
        await self._same(
            f"expire {[(held.job, target.value) for held, target in chosen]}",
            lambda store, side: store.moves.expire(
                self.queue,
                [Expire(held.job, held.tokens[side], target, fault, UNIT_MS) for held, target in chosen],
            ),
        )

    async def _heartbeat(self) -> None:
        chosen = self._some_held()
        await self._same(
            f"heartbeat {[held.job for held in chosen]}",
            lambda store, side: store.moves.heartbeat(
                self.queue, [Beat(held.job, held.tokens[side]) for held in chosen], 2 * UNIT_MS
            ),
        )

    async def _progress(self) -> None:
        chosen = self._some_held()
        value = str(self.chance.randint(0, 100)).encode()
        await self._same(
            f"progress {[held.job for held in chosen]}",
            lambda store, side: store.moves.progress(
                self.queue, [Report(held.job, held.tokens[side], value) for held in chosen]
            ),
        )

    async def _promote(self) -> None:
        limit = self.chance.choice([1, 200])
        await self._same(f"promote {limit}", lambda store, _: store.moves.promote(self.queue, limit))

    async def _cancel(self) -> None:
        ids = self._some_names()
        await self._same(f"cancel {ids}", lambda store, _: store.moves.cancel(self.queue, ids))

    async def _redrive(self) -> None:
        ids = self._some_names()
        await self._same(f"redrive {ids}", lambda store, _: store.moves.redrive(self.queue, ids))

    async def _delete(self) -> None:
        ids = self._some_names()
        await self._same(f"delete {ids}", lambda store, _: store.moves.delete(self.queue, ids))

    async def _prune(self) -> None:
        limit = self.chance.choice([1, 200])
        await self._same(f"prune {limit}", lambda store, _: store.moves.prune(self.queue, limit))

    async def _pause(self) -> None:
        for_ms = self.chance.choice([None, UNIT_MS])
        pause = self.chance.choice([None, None, Pause(0, "so")])
        await self._same(
            f"pause {pause}", lambda store, _: store.queues.pause_queue(self.queue, pause, for_ms)
        )

    async def _turn(self) -> None:
        by = self.chance.choice([1, 1, 2, 5]) * UNIT_MS + self.turn_extra_ms
        self.steps.append(f"  turn {by}")
        await self.store.clock.advance_clock(by)

    def _some_held(self) -> list[Held]:
        """One to three deliveries, mostly of the newest, now and then the same twice."""
        newest = self.held[-6:] if self.chance.random() < 0.8 else self.held
        return (
            [self.chance.choice(newest) for _ in range(self.chance.choice([1, 1, 1, 2, 3]))] if newest else []
        )

    def _some_names(self) -> list[str]:
        return [self.chance.choice(self.names) for _ in range(self.chance.choice([1, 1, 2, 3]))]

    # Comparing

    async def compare_records(self) -> None:
        """The records are the same, and as many in each state."""
        wanted = await self.reference.reads.get(self.queue, self.names)
        found = await self.store.reads.get(self.queue, self.names)
        for ours, theirs in zip(wanted, found, strict=True):
            if ours is None or theirs is None:
                assert ours == theirs, f"left {theirs}, wanted {ours}"
                continue
            off = (theirs.deadline or 0) - (ours.deadline or 0)
            assert abs(off) < SLACK_MS, f"the deadline of {ours.id} is off by {off} ms"
            left, right = self._plain_record(theirs, 1), self._plain_record(ours, 0)
            assert left == right, f"{ours.id} was left with {differences(left, right)}"
        counts = await self.store.reads.counts(self.queue)
        assert counts == await self.reference.reads.counts(self.queue), f"the counts are {counts}"

    async def compare_all(self) -> None:
        """All there is to see is the same, and the queue is sound."""
        ours = await self.reference.events.read_events(self.queue, limit=100_000)
        theirs = await self.store.events.read_events(self.queue, limit=100_000)
        fences: dict[str, list[int]] = {}
        for event in theirs:
            if event.move is Move.CLAIM:
                fences.setdefault(event.job or "", []).append(event.fence or 0)
            elif event.move is Move.DELETE and event.job:
                fences.pop(event.job, None)
            elif event.jobs:
                for name in event.jobs:
                    fences.pop(name, None)

        for found, wanted in zip_longest(theirs, ours):
            assert found is not None, f"the event is missing: {wanted}"
            assert wanted is not None, f"there is one event too many: {found}"
            off = (found.deadline or 0) - (wanted.deadline or 0)
            assert abs(off) < SLACK_MS, f"the deadline in {found} is off by {off} ms"
            # A cursor is text that only its store reads.
            apart: dict[str, Any] = {"fence": None, "cursor": None, "deadline": None}
            same = replace(found, **apart) == replace(wanted, **apart)
            assert same, f"the event is {found}, wanted {wanted}"
        for numbers in fences.values():
            assert all(earlier < later for earlier, later in pairwise(numbers)), "a fence did not grow"
        counts = await self.store.reads.counts(self.queue)
        assert counts == await self.reference.reads.counts(self.queue), f"the counts are {counts}"
        for job in await self.reference.reads.get(self.queue, self.names):
            if job is not None and job.state is State.PENDING:
                ahead = await self.store.reads.ahead(self.queue, job.id)
                assert ahead == await self.reference.reads.ahead(self.queue, job.id), f"ahead of {job.id}"
        findings = await self.store.health.check(self.queue) if self.world.is_checked else []
        assert findings == [], f"the queue is not sound: {findings}"

    def _plain_record(self, job: Job, side: int) -> Job:
        labels = {held.tokens[side]: f"delivery {n}" for n, held in enumerate(self.held)}
        notes = [note.partition(":") for note in job.settled.split()]
        settled = " ".join(f"{labels.get(token, '?')}:{rest}" for token, _, rest in notes)
        token = None if job.token is None else labels[job.token]
        return replace(job, token=token, settled=settled, fence=0, deadline=None)


async def walk_together(walks: Sequence[Walk], steps: int) -> None:
    """Walk on several queues of one world by turns; AssertionError tells the way up to it."""
    world = walks[0].world
    try:
        for n in range(steps):
            await world.chance.choice(walks).step()
            if n % LOOK_EVERY == 0:
                for walk in walks:
                    await walk.compare_records()
        for walk in walks:
            await walk.compare_records()
            await walk.compare_all()
    except (AssertionError, PenstockError) as error:
        raise AssertionError(f"{error}\nafter these steps:\n" + "\n".join(world.steps)) from error


def _plain(value: msgspec.Struct) -> Sequence[tuple[str, object]]:
    """The fields that have to be the same in every store."""
    return [
        (name, getattr(value, name)) for name in value.__struct_fields__ if name not in {"token", "fence"}
    ]
