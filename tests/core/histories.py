"""Honest histories to check: random ones over the memory store, and a told one with a bit of everything."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.core import decide
from penstock.core.events import Event
from penstock.core.flows import ChildEnding, ChildPolicy, JobRef
from penstock.core.history import Declared, Executed, Produced, Verdict, check
from penstock.core.job import Claimed, NewJob, Options, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate
from penstock.core.moves import Beat, Move, Release, Report, Settlement
from penstock.core.outcomes import Enqueued
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Adoption, Firing, Pause, Query, Spawn, StoredSchedule

START_MS: Final = 1_700_000_000_000


class History(msgspec.Struct):
    """Events with all the records that were kept beside them."""

    events: list[Event]
    produced: list[Produced]
    executed: list[Executed]
    live: dict[tuple[str, str, str], State]
    limits: dict[QueueRef, list[Declared]] = {}

    def check(self) -> Verdict:
        """What the checker says to all of it."""
        return check(
            self.events,
            produced=self.produced,
            executed=self.executed,
            live=self.live,
            limits=self.limits,
        )


class Bench:
    """A memory store with a clock in hand, and the records of those who use it."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.store = MemoryStore(clock_us=lambda: self.now_ms * 1000)
        self.queues: list[QueueRef] = []
        self.produced: list[Produced] = []
        self.executed: list[Executed] = []
        self.limits: dict[QueueRef, list[Declared]] = {}

    async def enqueue(self, queue: QueueRef, *jobs: NewJob, spawns: Sequence[Spawn] = ()) -> None:
        """Enqueue, and note what was accepted."""
        self.know(queue)
        for new, outcome in zip(jobs, await self.store.moves.enqueue(queue, jobs, spawns), strict=True):
            if isinstance(outcome, Enqueued):
                self.produced.append(Produced(queue, outcome.id, new.idempotency_key))

    def know(self, queue: QueueRef) -> None:
        """Its events belong to the history."""
        if queue not in self.queues:
            self.queues.append(queue)

    async def declare(
        self, queue: QueueRef, declaration: Declaration, rules: dict[str, KeyRule] | None = None
    ) -> None:
        """Declare, with the rules of keys, and note when; nothing else happens in that millisecond."""
        self.know(queue)
        self.now_ms += 1
        await self.store.queues.declare(queue, declaration)
        for key, rule in (rules or {}).items():
            # What it does not name is not to stay.
            await self.store.queues.set_key_rule(queue, key, None)
            await self.store.queues.set_key_rule(queue, key, rule)
        self.limits.setdefault(queue, []).append(Declared(self.now_ms, declaration, rules or {}))
        self.now_ms += 1

    async def carry(self, queue: QueueRef) -> None:
        """Carry over what the queue has for others."""
        for relay in await self.store.flows.list_relay_entries(queue):
            other = QueueRef(queue.tenant, relay.queue)
            self.know(other)
            match relay.what:
                case NewJob():
                    await self.store.moves.enqueue(other, [relay.what])
                case Adoption():
                    await self.store.flows.adopt(other, [relay.what])
                case ChildEnding():
                    await self.store.flows.child_ended(other, [relay.what])
            await self.store.flows.delete_relay_entries(queue, [relay.number])

    async def claim(
        self, queue: QueueRef, limit: int = 1, worker: str = "w1", lease_ms: int = 1_000
    ) -> list[Claimed]:
        """Claim without running anything."""
        return (await self.store.moves.claim(queue, worker=worker, limit=limit, lease_ms=lease_ms)).jobs

    def execute(self, queue: QueueRef, job: Claimed) -> None:
        """Note that a handler ran."""
        self.executed.append(Executed(queue, job.id, job.delivery, job.fence, started_at=self.now_ms))

    async def history(self) -> History:
        """Everything so far."""
        events: list[Event] = []
        live: dict[tuple[str, str, str], State] = {}
        for queue in self.queues:
            events += await self.store.events.read_events(queue, limit=1_000_000)
            page = await self.store.reads.find(queue, Query(limit=1_000_000))
            live |= {(queue.tenant, queue.name, job.id): job.state for job in page.jobs}
        return History(events, self.produced, self.executed, live, self.limits)


def random_history(seed: int, steps: int = 120) -> History:
    """An honest history: workers crash, tokens go stale, ids come back, operators meddle."""
    return asyncio.run(Chance(seed).run(steps))


class Chance:
    """Makes moves at random, over three queues of two tenants; the last has keys, limits and a schedule."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._bench = Bench()
        self._queues = [QueueRef("default", "mail"), QueueRef("other", "mail"), QueueRef("default", "keyed")]
        self._leases: list[tuple[QueueRef, Claimed, bool]] = []
        self._made = self._version = 0
        self._mode = self._random.choice([Mode.KEYED, Mode.DYNAMIC])

    async def run(self, steps: int) -> History:
        """So many moves, then all that is known of them."""
        await self._declare(self._queues[2])
        await self._bench.store.schedules.put_schedule(StoredSchedule(self._queues[2], "nightly", b"{}", 0))
        actions = {
            self._enqueue: 8,
            self._flow: 3,
            self._carry: 4,
            self._fire: 2,
            self._declare: 1,
            self._claim: 8,
            self._settle: 10,
            self._beat: 2,
            self._report: 2,
            self._recover: 4,
            self._wait: 6,
            self._cancel: 2,
            self._redrive: 2,
            self._delete: 1,
            self._prune: 1,
            self._pause: 1,
        }
        chosen = self._random.choices(list(actions), list(actions.values()), k=steps)
        for action in chosen:
            await action(self._random.choice(self._queues))
        return await self._bench.history()

    async def _enqueue(self, queue: QueueRef) -> None:
        jobs = [self._new(queue) for _ in range(self._random.randint(1, 4))]
        await self._bench.enqueue(queue, *jobs)
        if self._random.random() < 0.1:
            await self._bench.enqueue(queue, *jobs)

    async def _flow(self, queue: QueueRef) -> None:
        """A parent with children beside it and, for the default tenant, in another queue."""
        chance = self._random
        other = chance.choice([each for each in self._queues if each.tenant == queue.tenant])
        self._made += 1
        parent = JobRef(queue.name, f"p{self._made}")
        near = [replace(self._new(queue), id=f"{parent.id}-{at}", parents=(parent,)) for at in range(2)]
        far = [replace(self._new(other), id=f"{parent.id}-far-{at}", parents=(parent,)) for at in range(2)]
        awaits = (
            *(JobRef(queue.name, each.id) for each in near),
            *(JobRef(other.name, each.id) for each in far),
        )
        new = replace(
            self._new(queue),
            id=parent.id,
            awaits=awaits,
            idempotency_key=None,
            unique=None,
            child_policy=chance.choice(list(ChildPolicy)),
        )
        plain = [replace(each, idempotency_key=None, unique=None) for each in (*near, *far)]
        spawns = [Spawn(other.name, each) for each in plain[2:]]
        await self._bench.enqueue(queue, new, *plain[:2], spawns=spawns)

    async def _carry(self, queue: QueueRef) -> None:
        await self._bench.carry(queue)

    async def _fire(self, _: QueueRef) -> None:
        queue = self._queues[2]
        for schedule in await self._bench.store.schedules.due_schedules(queue):
            at = schedule.next_at or 0
            job = replace(self._new(queue), id=f"s{at}", schedule="nightly", instant=at, unique=None)
            job = replace(job, idempotency_key=None)
            firing = Firing("nightly", at, (job,), self._bench.now_ms + 500, at)
            await self._bench.store.schedules.fire(queue, firing)
            # Another process comes too late.
            assert not await self._bench.store.schedules.fire(queue, firing)

    async def _declare(self, _: QueueRef) -> None:
        chance = self._random
        self._version += 1
        rates = [None, None, Rate(20, 1_000, 3), Rate(3, 1_000, 2), Rate(7, 10, 1)]
        limit = chance.choice([None, 1, 2]) if self._mode is Mode.DYNAMIC else None
        await self._bench.declare(
            self._queues[2],
            Declaration(
                version=self._version,
                mode=self._mode,
                key_limit=chance.choice([1, 1, 2]),
                max_active=chance.choice([None, 3]),
                max_length=chance.choice([None, 30]),
                rate=chance.choice(rates),
                key_rate=chance.choice(rates),
            ),
            {"k1": KeyRule(limit, chance.choice([1, 3]))} if chance.random() < 0.5 else {"k1": KeyRule()},
        )

    def _new(self, queue: QueueRef) -> NewJob:
        chance = self._random
        self._made += 1
        is_keyed = queue.name == "keyed"
        rule = chance.choice(list(UniqueRule))
        # Of a job with both, its producer could not say which of them found it.
        by_key, by_kind = chance.choices([(True, False), (False, True), (False, False)], [3, 2, 5])[0]
        return NewJob(
            id=f"chosen-{chance.randint(1, 4)}" if chance.random() < 0.3 else f"j{self._made}",
            nonce=str(self._made),
            task="send",
            payload=b"{}",
            priority=5 if is_keyed else chance.choice([2, 5, 5, 9]),
            delay_ms=chance.choice([0, 0, 0, 500, 3_000]),
            idempotency_key=f"key-{chance.randint(1, 5)}" if by_key else None,
            key=f"k{chance.randint(1, 4)}" if is_keyed else None,
            unique=Unique(f"{rule}-{chance.randint(1, 2)}", rule, 2_000) if by_kind else None,
            options=Options(
                max_attempts=chance.randint(1, 3),
                retention_ms=chance.choice([0, 2_000, 10_000]),
                key_retention_ms=chance.choice([None, 0, 5_000]),
            ),
        )

    async def _claim(self, queue: QueueRef) -> None:
        worker = f"w{self._random.randint(1, 3)}"
        lease_ms = self._random.choice([500, 2_000])
        for job in await self._bench.claim(queue, self._random.randint(1, 3), worker, lease_ms):
            runs = self._random.random() < 0.9
            if runs:
                self._bench.execute(queue, job)
            self._leases.append((queue, job, runs))

    async def _settle(self, _: QueueRef) -> None:
        for queue, job, runs in self._random.sample(self._leases, min(2, len(self._leases))):
            await self._bench.store.moves.settle(queue, [self._settlement(job, runs)])

    def _settlement(self, job: Claimed, runs: bool) -> Settlement:
        if not runs:
            return Release(job.id, job.token)
        endings: list[decide.Ending] = [
            decide.Returned(b"1"),
            decide.Returned(b"1"),
            decide.Raised("ValueError: no"),
            decide.Raised("ValueError: no", after_ms=100),
            decide.RaisedFail("never"),
            decide.Postponed(700),
            decide.Interrupted(),
        ]
        ending = self._random.choice(endings)
        return decide.settle(job, ending, self._random.uniform)

    async def _beat(self, _: QueueRef) -> None:
        for queue, job, _runs in self._leases[-3:]:
            await self._bench.store.moves.heartbeat(queue, [Beat(job.id, job.token)], 2_000)

    async def _report(self, _: QueueRef) -> None:
        for queue, job, _runs in self._leases[-3:]:
            await self._bench.store.moves.progress(queue, [Report(job.id, job.token, b"1")])

    async def _recover(self, queue: QueueRef) -> None:
        for lease in await self._bench.store.reads.expired(queue):
            await self._bench.store.moves.expire(queue, [decide.expire(lease, self._random.uniform)])

    async def _wait(self, queue: QueueRef) -> None:
        self._bench.now_ms += self._random.choice([1, 100, 1_000, 4_000])
        await self._bench.store.moves.promote(queue)

    async def _cancel(self, queue: QueueRef) -> None:
        await self._bench.store.moves.cancel(
            queue, await self._some(queue, State.PENDING, State.DELAYED, State.ACTIVE)
        )

    async def _redrive(self, queue: QueueRef) -> None:
        await self._bench.store.moves.redrive(
            queue, await self._some(queue, State.DEAD, State.FAILED, State.CANCELLED)
        )

    async def _delete(self, queue: QueueRef) -> None:
        # An id that comes back in the same microsecond would have the same fence.
        self._bench.now_ms += 1
        await self._bench.store.moves.delete(queue, await self._some(queue))

    async def _prune(self, queue: QueueRef) -> None:
        self._bench.now_ms += 1
        await self._bench.store.moves.prune(queue)

    async def _pause(self, queue: QueueRef) -> None:
        pause = Pause(0) if self._random.random() < 0.3 else None
        await self._bench.store.queues.pause_queue(queue, pause, for_ms=3_000)

    async def _some(self, queue: QueueRef, *states: State) -> list[str]:
        page = await self._bench.store.reads.find(queue, Query(states=frozenset(states), limit=1_000))
        ids = sorted(job.id for job in page.jobs)
        return self._random.sample(ids, min(len(ids), self._random.randint(1, 2)))


MAIL: Final = QueueRef("default", "mail")


def told_history() -> History:
    """One queue in which jobs named for what becomes of them go through every move that leaves an event."""
    return asyncio.run(_tell(Bench()))


async def _tell(bench: Bench) -> History:
    teller = _Teller(bench)
    await teller.enqueue("plain", idempotency_key="k-plain")
    await teller.run("plain", decide.Returned(b"1"))

    await teller.enqueue("tried", max_attempts=3)
    await teller.run("tried", decide.Raised("no", after_ms=50))
    await teller.wait(50)
    await teller.crash("tried")
    await teller.wait(60_000)
    await teller.run("tried", decide.Raised("no"))
    await bench.store.moves.redrive(MAIL, ["tried"])
    await teller.run("tried", decide.Returned(b"1"))

    await teller.enqueue("stopped")
    stopped = await teller.claim("stopped")
    await bench.store.moves.cancel(MAIL, ["stopped"])
    await teller.settle(stopped, decide.Raised("no"))

    await teller.enqueue("later", delay_ms=5_000)
    await teller.wait(5_000)
    await teller.run("later", decide.Interrupted())
    await teller.run("later", decide.Postponed(1_000))
    await teller.wait(1_000)
    await bench.store.moves.promote(MAIL)
    later = await teller.claim("later")
    await bench.store.moves.progress(MAIL, [Report("later", later.token, b"1")])
    await teller.settle(later, decide.Returned(b"1"))

    await teller.enqueue("refused")
    await teller.run("refused", decide.RaisedFail("never"))

    await teller.enqueue("again")
    await bench.store.moves.cancel(MAIL, ["again"])
    await bench.store.moves.delete(MAIL, ["again"])
    await teller.enqueue("again")
    await bench.store.moves.delete(MAIL, ["again", "refused"])

    await teller.enqueue("low", priority=2)
    for name in ("first", "second", "third"):
        await teller.enqueue(name)
    await teller.enqueue("urgent", priority=9)
    await teller.wait(10)
    for name in ("urgent", "first", "second", "third", "low"):
        await teller.run(name, decide.Returned(b"1"))

    await teller.enqueue("running")
    await teller.claim("running")
    await teller.enqueue("waiting", idempotency_key="k-waiting")
    await teller.enqueue("due", delay_ms=90_000)
    await bench.enqueue(MAIL, _new("pruned", retention_ms=0, priority=9))
    await teller.run("pruned", decide.Returned(b"1"))
    await bench.store.moves.prune(MAIL)
    return await bench.history()


class _Teller:
    """Moves by the name of the job they are about; a claim must bring the job that is meant."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def enqueue(
        self,
        name: str,
        *,
        priority: int = 5,
        delay_ms: int = 0,
        max_attempts: int = 4,
        idempotency_key: str | None = None,
    ) -> None:
        new = _new(
            name,
            priority=priority,
            delay_ms=delay_ms,
            max_attempts=max_attempts,
            idempotency_key=idempotency_key,
        )
        await self._bench.enqueue(MAIL, new)

    async def wait(self, ms: int) -> None:
        self._bench.now_ms += ms

    async def claim(self, name: str) -> Claimed:
        await self.wait(ms=1)
        (job,) = await self._bench.claim(MAIL)
        assert job.id == name
        self._bench.execute(MAIL, job)
        return job

    async def settle(self, job: Claimed, ending: decide.Ending) -> None:
        await self.wait(ms=1)
        await self._bench.store.moves.settle(MAIL, [decide.settle(job, ending, random.Random(1).uniform)])

    async def run(self, name: str, ending: decide.Ending) -> None:
        await self.settle(await self.claim(name), ending)

    async def crash(self, name: str) -> None:
        await self.claim(name)
        await self.wait(1_000)
        (lease,) = await self._bench.store.reads.expired(MAIL)
        await self._bench.store.moves.expire(MAIL, [decide.expire(lease, random.Random(1).uniform)])


def _new(
    name: str,
    *,
    priority: int = 5,
    delay_ms: int = 0,
    max_attempts: int = 4,
    retention_ms: int = 86_400_000,
    idempotency_key: str | None = None,
) -> NewJob:
    return NewJob(
        id=name,
        nonce=name,
        task="send",
        payload=b"{}",
        priority=priority,
        delay_ms=delay_ms,
        idempotency_key=idempotency_key,
        options=Options(max_attempts=max_attempts, retention_ms=retention_ms),
    )


def moves_in(events: Sequence[Event]) -> set[Move]:
    """Which moves there are."""
    return {event.move for event in events}
