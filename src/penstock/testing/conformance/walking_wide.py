"""A random walk over two queues with every feature: keys, limits, unique jobs, flows and schedules."""

from collections.abc import Awaitable
from typing import Any, Final

from msgspec.structs import replace

from penstock.core.errors import PenstockError
from penstock.core.flows import ChildEnding, ChildPolicy, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate
from penstock.core.moves import Beat
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.stores.values import Adoption, Firing, Query, Spawn, StoredSchedule
from penstock.testing.conformance.arrange import schedule_body
from penstock.testing.conformance.walking import SLACK_MS, UNIT_MS, Act, Walk, World

ENDINGS: Final = [State.COMPLETED, State.COMPLETED, State.FAILED, State.DEAD, State.CANCELLED, None]
SCHEDULES: Final = ["s", "t"]


class WideWalk(Walk):
    """A walk on one of two queues; `other` is the one on the other."""

    most = 9
    turn_extra_ms = 5
    """Rates are kept by the microsecond: an interval is over for certain once the clock was turned by it."""

    def __init__(self, world: World, queue: QueueRef) -> None:
        super().__init__(world, queue)
        self.other: WideWalk = self
        self.names = [f"job-{n}" for n in range(20)]
        self._version = 0
        self._mode = Mode.GLOBAL
        self._made = 0

    def _acts(self) -> list[tuple[Act, int]]:
        return [
            *super()._acts(),
            (self._enqueue, 8),
            (self._claim, 4),
            (self._settle, 3),
            (self._spawn_with_jobs, 1),
            (self._spawn, 1),
            (self._adopt, 1),
            (self._end_child, 2),
            (self._carry, 5),
            (self._declare, 1),
            (self._rule, 2),
            (self._look_at_keys, 2),
            (self._put_schedule, 1),
            (self._change_schedule, 1),
            (self._fire, 2),
        ]

    async def declare_first(self) -> None:
        """Begin with a declaration."""
        self._mode = self.chance.choice([Mode.GLOBAL, Mode.KEYED, Mode.DYNAMIC, Mode.DYNAMIC])
        await self._declare()

    # Jobs

    def _new_job(self) -> NewJob:
        pick = self.chance
        job = super()._new_job()
        if pick.random() < 0.2:
            job = replace(job, run_at=self._now + pick.choice([-1, 1, 2]) * UNIT_MS)
        if pick.random() < 0.3:
            rule = pick.choice(list(UniqueRule))
            window_ms = 2 * UNIT_MS if rule is UniqueRule.THROTTLE else 0
            job = replace(job, unique=Unique(pick.choice(["u", "v"]), rule, window_ms))
        if pick.random() < 0.2:
            awaits = tuple({self._ref(): None for _ in range(pick.randint(1, 3))})
            job = replace(job, awaits=awaits, child_policy=pick.choice(list(ChildPolicy)))
        if pick.random() < 0.4:
            job = replace(job, parents=tuple({self._ref(): None for _ in range(pick.randint(1, 2))}))
        return replace(job, key=pick.choice(["x", "x", "y", "z", "w", None]) if pick.random() < 0.9 else "")

    @property
    def _now(self) -> int:
        return self.world.clock_us // 1000

    def _ref(self) -> JobRef:
        return JobRef(self.chance.choice([self, self.other]).queue.name, self.chance.choice(self.names))

    def _spawns(self) -> list[Spawn]:
        return [Spawn(self.other.queue.name, self._new_job()) for _ in range(self.chance.randint(1, 2))]

    async def _spawn_with_jobs(self) -> None:
        jobs, spawns = [self._new_job()], self._spawns()
        await self._same(
            f"enqueue {jobs} with {[each.job.id for each in spawns]}",
            lambda store, _: store.moves.enqueue(self.queue, jobs, spawns),
        )

    async def _spawn(self) -> None:
        for held in self._some_held():
            spawns = self._spawns()
            await self._same(
                f"spawn {[each.job.id for each in spawns]} by {held.job}",
                lambda store, side, held=held, spawns=spawns: store.flows.spawn(  # type: ignore[misc]
                    self.queue, Beat(held.job, held.tokens[side]), spawns
                ),
            )

    async def _adopt(self) -> None:
        adoptions = [Adoption(name, (self._ref(), self._ref())) for name in self._some_names()]
        await self._same(f"adopt {adoptions}", lambda store, _: store.flows.adopt(self.queue, adoptions))

    async def _end_child(self) -> None:
        """Endings of children that are waited for, and of any others."""
        endings: list[ChildEnding] = []
        blocked = await self.reference.reads.find(self.queue, Query(states=frozenset({State.BLOCKED})))
        for name in [*(job.id for job in blocked.jobs[:2]), *self._some_names()]:
            children = [child.ref for child in await self.reference.flows.children(self.queue, name)]
            child = self.chance.choice([*children, self._ref()])
            state = self.chance.choice(ENDINGS)
            endings.append(ChildEnding(name, child, state, b"1" if state is State.COMPLETED else None))
        await self._same(f"endings {endings}", lambda store, _: store.flows.child_ended(self.queue, endings))

    async def _carry(self) -> None:
        """Carry over some of what waits, now and then without forgetting it."""
        limit = self.chance.choice([1, 3, 200])
        wanted, found = [
            await each.flows.list_relay_entries(self.queue, limit) for each in (self.reference, self.store)
        ]
        ours = [(relay.queue, relay.what) for relay in wanted]
        theirs = [(relay.queue, relay.what) for relay in found]

        assert theirs == ours, f"what waits to be carried over is {theirs}, wanted {ours}"
        for queue, what in ours:
            target = self if queue == self.queue.name else self.other
            await target.receive(what)
        if self.chance.random() < 0.9:
            for store, relays in ((self.reference, wanted), (self.store, found)):
                await store.flows.delete_relay_entries(self.queue, [relay.number for relay in relays])

    async def receive(self, what: NewJob | Adoption | ChildEnding) -> None:
        """Apply a relay entry of another queue."""

        def call(store: Store, _: int) -> Awaitable[Any]:
            match what:
                case NewJob():
                    return store.moves.enqueue(self.queue, [what])
                case Adoption():
                    return store.flows.adopt(self.queue, [what])
                case ChildEnding():
                    return store.flows.child_ended(self.queue, [what])

        await self._same(f"carry {what}", call)

    # Limits

    async def _declare(self) -> None:
        pick = self.chance
        mode = self._mode if pick.random() < 0.8 else pick.choice(list(Mode))
        rate = Rate(1, UNIT_MS, pick.choice([1, 3, 6]))
        wanted = Declaration(
            version=max(1, self._version + pick.choice([1, 1, 1, 0, -1])),
            mode=mode,
            key_limit=pick.choice([1, 2, 4]) if mode.has_keys else 1,
            max_active=pick.choice([None, None, None, 4]),
            max_length=pick.choice([None, None, None, 15]),
            rate=pick.choice([None, None, None, rate]),
            key_rate=pick.choice([None, None, rate]) if mode.has_keys else None,
        )

        async def declare(store: Store, _: int) -> object:
            try:
                return (await store.queues.declare(self.queue, wanted)).declaration
            except PenstockError as error:
                return str(error)

        await self._same(f"declare {wanted}", declare)
        info = await self.reference.queues.open_queue(self.queue)
        self._mode = info.mode
        self._version = info.declaration.version if info.declaration else 0

    async def _rule(self) -> None:
        pick = self.chance
        key = pick.choice(["x", "y", "z"])
        weight, limit = KeyRule(weight=pick.choice([1, 3])), KeyRule(limit=pick.choice([1, 3]))
        rule = pick.choice([None, weight, limit, KeyRule(2, 5)])

        async def set_rule(store: Store, _: int) -> object:
            try:
                await store.queues.set_key_rule(self.queue, key, rule)
            except PenstockError as error:
                return str(error)
            return None

        await self._same(f"rule of {key}: {rule}", set_rule)

    async def _look_at_keys(self) -> None:
        wanted, found = [await store.queues.list_keys(self.queue) for store in (self.reference, self.store)]

        assert [replace(info, held_until=None) for info in found] == [
            replace(info, held_until=None) for info in wanted
        ], f"the keys are {found}, wanted {wanted}"
        for ours, theirs in zip(wanted, found, strict=True):
            assert (ours.held_until is None) == (theirs.held_until is None), f"{theirs}, wanted {ours}"
            assert abs((ours.held_until or 0) - (theirs.held_until or 0)) < SLACK_MS, f"{theirs}"

    # Schedules

    async def _put_schedule(self) -> None:
        next_at = self.chance.choice([None, self._now, self._now + UNIT_MS])
        paused = self.chance.random() < 0.2
        name = self.chance.choice(SCHEDULES)
        put = StoredSchedule(self.queue, name, schedule_body(name), next_at, 5, paused=paused)
        await self._same(f"put {put}", lambda store, _: store.schedules.put_schedule(put))

    async def _change_schedule(self) -> None:
        name, paused = self.chance.choice(SCHEDULES), self.chance.random() < 0.4
        if self.chance.random() < 0.3:
            await self._same(
                f"remove {name}", lambda store, _: store.schedules.remove_schedule(self.queue, name)
            )
        else:
            await self._same(
                f"pause {name} {paused}",
                lambda store, _: store.schedules.pause_schedule(self.queue, name, paused),
            )

    async def _fire(self) -> None:
        """Fire what is due, or what is not."""
        await self._same("due schedules", lambda store, _: store.schedules.due_schedules(self.queue))
        due = await self.reference.schedules.due_schedules(self.queue)
        at = due[0].next_at if due and due[0].next_at is not None else self._now
        name = due[0].name if due else self.chance.choice(SCHEDULES)
        jobs = tuple(self._scheduled(name, at) for _ in range(self.chance.randint(0, 2)))
        firing = Firing(name, at, jobs, self.chance.choice([None, at + UNIT_MS]), at)
        await self._same(f"fire {firing}", lambda store, _: store.schedules.fire(self.queue, firing))

    def _scheduled(self, name: str, at: int) -> NewJob:
        return replace(self._new_job(), schedule=name, instant=at)

    # Comparing

    async def compare_records(self) -> None:
        await super().compare_records()
        for name in self.chance.sample(self.names, 2):
            wanted = await self.reference.flows.children(self.queue, name)
            found = await self.store.flows.children(self.queue, name)
            assert found == wanted, f"the children of {name} are {found}, wanted {wanted}"

    async def compare_all(self) -> None:
        await super().compare_all()
        await self._look_at_keys()
        wanted, found = [
            [
                each
                for each in await store.schedules.list_schedules(self.queue.tenant)
                if each.queue == self.queue
            ]
            for store in (self.reference, self.store)
        ]
        assert found == wanted, f"the schedules are {found}, wanted {wanted}"


def wide_walks(world: World, tenant: str, seed: int) -> list[WideWalk]:
    """Two walks on two queues that know of each other."""
    one, two = (WideWalk(world, QueueRef(tenant, f"wide-{seed}-{n}")) for n in "ab")
    one.other, two.other = two, one
    return [one, two]
