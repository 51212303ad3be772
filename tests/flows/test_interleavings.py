"""Flows under relayers that overlap, stop half-way and hold on to what they read long ago."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock import Call, Flow, FlowNode, JobRef, Penstock, QueueRef, State
from penstock.client.flow_plan import FlowPlan, plan
from penstock.client.relay import relay
from penstock.core.limits import Declaration
from penstock.core.moves import Complete
from tests.flows.stepping import Chance, Stepping, finish, step

QUEUES = ("a", "b", "c")


def calls() -> dict[str, Callable[[], Call[Any]]]:
    app = Penstock("memory://")
    return {name: app.by_name("work", queue=name).call for name in QUEUES}


def some_flow(chance: Chance, jobs: int) -> Flow:
    """Any acyclic graph: each job waits for some of those before it."""
    made = calls()
    flow = Flow()
    nodes: list[FlowNode[Any]] = []
    for _ in range(jobs):
        after = chance.sample(nodes, k=min(len(nodes), chance.choice((0, 0, 1, 2, 3))))
        nodes.append(flow.add(made[chance.choice(QUEUES)](), after=after))
    return flow


def planned(flow: Flow, prefix: str = "f") -> FlowPlan:
    numbers = iter(range(10_000))
    return plan(flow, lambda queue: f"{prefix}{next(numbers)}")


class Hands:
    """Workers and relayers of three queues, one step at a time."""

    def __init__(self, store: Stepping, chance: Chance) -> None:
        self.store = store
        self.chance = chance
        self.relayers: list[Coroutine[Any, Any, Any]] = []
        self.ended: list[JobRef] = []

    def anything(self) -> None:
        match self.chance.randrange(6):
            case 0 | 1:
                self.work(self.chance.choice(QUEUES))
            case 2 if len(self.relayers) < 6:
                ref = QueueRef("default", self.chance.choice(QUEUES))
                started = relay(self.store, ref, limit=self.chance.choice((1, 2, 200)))
                step(started)
                self.relayers.append(started)
            case _ if self.relayers:
                chosen = self.chance.choice(self.relayers)
                # One in twenty dies where it stands.
                if self.chance.one_in(20):
                    chosen.close()
                    self.relayers.remove(chosen)
                elif not step(chosen):
                    self.relayers.remove(chosen)

    def work(self, queue: str) -> None:
        """Run one job to its end, if there is one."""
        ref = QueueRef("default", queue)
        for job in finish(self.store.moves.claim(ref, worker="w", limit=1, lease_ms=30_000)).jobs:
            finish(self.store.moves.settle(ref, [Complete(job.id, job.token, b"1")]))
            self.ended.append(JobRef(queue, job.id))

    def to_the_end(self) -> None:
        """Everything that is under way, then orderly rounds until nothing moves."""
        for each in self.relayers:
            finish(each)
        self.relayers.clear()
        while True:
            before = len(self.ended)
            carried = sum(finish(relay(self.store, QueueRef("default", name))) for name in QUEUES)
            for name in QUEUES:
                self.work(name)
            if not carried and len(self.ended) == before:
                return


@pytest.mark.parametrize("seed", range(150))
def test_every_job_runs_once_and_after_all_it_waits_for(seed: int) -> None:
    chance = Chance(seed)
    hands = Hands(Stepping(), chance)
    flows = [planned(some_flow(chance, chance.randrange(1, 15)), prefix) for prefix in ("f", "g")]
    for each in flows:
        home = QueueRef("default", each.home)
        finish(hands.store.moves.enqueue(home, [each.jobs[each.anchor]], each.spawns(each.jobs)))

    for _ in range(chance.randrange(400)):
        hands.anything()
    hands.to_the_end()

    assert sorted(map(str, hands.ended)) == sorted(str(ref) for each in flows for ref in each.refs)
    place = {ref: number for number, ref in enumerate(hands.ended)}
    for each in flows:
        for node, job in each.jobs.items():
            here = place[JobRef(node.call.queue, job.id)]
            assert all(place[child] < here for child in job.awaits)
    for name in QUEUES:
        assert finish(hands.store.flows.list_relay_entries(QueueRef("default", name))) == []


@pytest.mark.parametrize("seed", range(60))
def test_full_queues_hold_a_flow_up_and_lose_nothing_of_it(seed: int) -> None:
    chance = Chance(seed)
    hands = Hands(Stepping(), chance)
    for name in QUEUES:
        declaration = Declaration(max_length=chance.choice((1, 2, 5)))
        finish(hands.store.queues.declare(QueueRef("default", name), declaration))
    made = planned(some_flow(chance, chance.randrange(1, 15)))
    home = QueueRef("default", made.home)
    finish(hands.store.moves.enqueue(home, [made.jobs[made.anchor]], made.spawns(made.jobs)))

    for _ in range(chance.randrange(300)):
        hands.anything()
    hands.to_the_end()

    assert sorted(map(str, hands.ended)) == sorted(map(str, made.refs))


@pytest.mark.parametrize("seed", range(40))
def test_no_job_is_in_its_queue_before_those_that_wait_for_it(seed: int) -> None:
    chance = Chance(seed)
    hands = Hands(Stepping(), chance)
    made = planned(some_flow(chance, 12))
    home = QueueRef("default", made.home)
    finish(hands.store.moves.enqueue(home, [made.jobs[made.anchor]], made.spawns(made.jobs)))

    for _ in range(400):
        hands.anything()
        there = {
            JobRef(node.call.queue, job.id)
            for node, job in made.jobs.items()
            if finish(hands.store.reads.get(QueueRef("default", node.call.queue), [job.id])) != [None]
        }
        for node, job in made.jobs.items():
            if JobRef(node.call.queue, job.id) in there:
                assert there.issuperset(job.parents)
    hands.to_the_end()


def test_bounded_queues_full_of_waiting_parents_take_in_their_children() -> None:
    store = Stepping()
    ref = QueueRef("default", "a")
    finish(store.queues.declare(ref, Declaration(max_length=2)))
    hands = Hands(store, Chance(1))
    for name in ("first", "second"):
        flow = Flow(name=name)
        flow.add(calls()["a"](), after=[flow.add(calls()["a"]())])
        made = plan(flow, lambda queue, name=name: f"{name}-child")  # type: ignore[misc]
        finish(store.moves.enqueue(ref, [made.jobs[made.anchor]], made.spawns(made.jobs)))
    assert finish(store.reads.counts(ref))[State.BLOCKED] == 2

    hands.to_the_end()

    assert {each.id for each in hands.ended} == {"first", "second", "first-child", "second-child"}
