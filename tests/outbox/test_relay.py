"""What is written into an outbox comes to its store once, in order, whoever dies."""

import asyncio
import secrets
import signal
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from penstock.core.errors import (
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
    TransactionError,
    UnknownQueueError,
)
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refused
from penstock.core.states import State
from penstock.outbox import Carried, OutboxRelay
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Topic
from tests.conformance.stores import Kind, opened
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, eventually
from tests.outbox.conftest import DEFAULT, Shop, jobs_in, outbox_in, relaying

DIES = """
import asyncio, importlib, os, signal, sys

from penstock.outbox import OutboxRelay

module, name, address, database = sys.argv[1:]
store = getattr(importlib.import_module(module), name)(address)
taken = store.moves.enqueue


async def enqueue(*args, **kwargs):
    await taken(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)


async def main():
    store.moves.enqueue = enqueue
    await store.open()
    await OutboxRelay(database, store).run()


asyncio.run(main())
"""


async def write(shop: Shop, database: str, *names: str, commit: bool = True, **options: Any) -> list[str]:
    """Calls in one transaction; the ids of their jobs."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        task = shop.send.options(**options)
        jobs = [await shop.outbox.enqueue_in(connection, task, name) for name in names]
        if not commit:
            await connection.rollback()
    return [job.id for job in jobs]


async def test_a_commit_brings_jobs_to_a_store_elsewhere(
    shop: Shop, database: str, target: Kind, address: str
) -> None:
    """In the order they were written; the outbox is empty then."""
    async with relaying(database, target.connect(address)) as relay:
        first = await write(shop, database, *(f"a{n}" for n in range(150)))
        second = await write(shop, database, *(f"b{n}" for n in range(150)))
        rounds = [await relay.carry() for _ in range(3)]
        jobs = await jobs_in(relay._store)
        state = await relay._outbox.state(10)

    assert [job.id for job in jobs] == first + second
    assert [each.jobs for each in rounds] == [200, 100, 0]
    assert (state.waiting, state.failed) == (0, 0)


async def test_a_rollback_leaves_nothing_to_carry(shop: Shop, database: str) -> None:
    """It was never written."""
    async with relaying(database, MemoryStore()) as relay:
        await write(shop, database, "ada", commit=False)

        assert await relay.carry() == Carried(0, 0, True)


async def test_a_relay_that_is_killed_between_enqueue_and_delete_brings_no_job_twice(
    shop: Shop, database: str, target: Kind, address: str
) -> None:
    """Not even after the job has ended and its record is gone."""
    async with outbox_in(database):
        ids = await write(shop, database, "ada", "eve")
    store = target.connect(address)
    arguments = [type(store).__module__, type(store).__name__, address, database]
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DIES, *arguments],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    async with relaying(database, store) as relay:

        async def carry_some() -> Carried | None:
            carried = await relay.carry()
            return carried if carried.jobs else None

        before = await relay._outbox.state(10)
        brought = await jobs_in(store)
        # One of them ran meanwhile, and was forgotten.
        await store.moves.cancel(DEFAULT, ids[:1])
        await store.clock.advance_clock(3 * 24 * 3_600_000)
        await store.moves.prune(DEFAULT)
        # The server notices a little later that the dead one no longer holds its rows.
        carried = await eventually(carry_some, "a round that carries jobs")
        after = await relay._outbox.state(10)
        left = await jobs_in(store)

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert (before.waiting, [job.id for job in brought]) == (2, ids)
    assert (carried.jobs, after.waiting) == (2, 0)
    assert [job.id for job in left] == ids[1:]


async def test_a_commit_wakes_a_relay_that_waits(shop: Shop, database: str) -> None:
    """Long before it would have looked again."""
    store = MemoryStore()
    async with opened(store), outbox_in(database):
        relay = OutboxRelay(database, store, poll=3_600)
        running = asyncio.create_task(relay.run())
        async with asyncio.timeout(PATIENCE):
            async with store.notifier.subscribe(DEFAULT, Topic.READY) as subscription:
                [job] = await write(shop, database, "ada")
                while not (found := await store.reads.get(DEFAULT, [job]))[0]:
                    await subscription.wait(PATIENCE)
            relay.stop()
            await running

    assert found[0] is not None
    assert found[0].state is State.PENDING


async def test_of_two_relays_one_carries(shop: Shop, database: str) -> None:
    """The other one stands by until the first lets go."""
    async with relaying(database, MemoryStore()) as one, relaying(database, MemoryStore()) as other:
        await write(shop, database, "ada")
        async with one._outbox.next_batch(10, []) as held:
            stands_by = await other.carry()
        carried = await other.carry()

    assert held is not None
    assert len(held.entries) == 1
    assert stands_by == Carried(0, 0, True)
    assert carried.jobs == 1


async def test_what_a_store_refuses_is_set_aside_and_others_go_on(
    shop: Shop, database: str, target: Kind, address: str
) -> None:
    """With the reason; `retry` puts it back in its old place."""
    store = target.connect(address)
    async with relaying(database, store) as relay:
        await store.moves.enqueue(DEFAULT, [NewJob(id="mine", nonce="other", task="t", payload=b"{}")])
        await write(shop, database, "poison", id="mine")
        await write(shop, database, "good")
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await connection.execute(
                "INSERT INTO penstock_outbox.outbox (tenant, queue, body) VALUES ('default', 'x', '{\"a\":')"
            )
        carried = await relay.carry()
        state = await relay._outbox.state(10)
        await store.moves.delete(DEFAULT, ["mine"])
        back = await relay._outbox.retry([state.first_failed[0].number])
        again = await relay.carry()

    assert (carried.jobs, carried.failed) == (1, 2)
    assert [each.queue.name for each in state.first_failed] == ["default", "x"]
    assert "is taken by another job" in state.first_failed[0].reason
    assert "DecodeError" in state.first_failed[1].reason
    assert (back, again.jobs) == (1, 1)


async def test_a_full_queue_holds_up_only_itself(
    shop: Shop, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entries wait, in their order, for room; that they do is told once, and that there is some."""
    caplog.set_level("INFO", "penstock.outbox")
    narrow = shop.app.queue("narrow", max_length=1)
    task = narrow.task(name="tight")(_tight)
    store = MemoryStore()
    async with relaying(database, store) as relay:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            ids = [(await shop.outbox.enqueue_in(connection, task, n)).id for n in range(3)]
        await write(shop, database, "wide")
        first = await relay.carry()
        second = await relay.carry()
        queue = QueueRef("default", "narrow")
        await store.moves.cancel(queue, ids[:1])
        relay._held.clear()
        third = await relay.carry()
        jobs = await jobs_in(store, queue, State.PENDING)
        await store.moves.cancel(queue, ids[1:2])
        relay._held.clear()
        await relay.carry()

    assert (first.jobs, second, third.jobs) == (2, Carried(0, 0, True), 1)
    assert [job.id for job in jobs] == ids[1:2]
    assert caplog.messages == [
        "the queue is full: its entries wait in the outbox",
        "the queue takes jobs again",
    ]


class Choking(InterceptedStore):
    """Fails on one job, and on every call that has it."""

    error: Exception

    async def enqueue(
        self, queue: QueueRef, jobs: Any, spawns: Any = (), mode: Any = None
    ) -> list[Enqueued | Refused]:
        if any(new.id == "bad" for new in jobs):
            raise self.error
        return await self.real.moves.enqueue(queue, jobs, spawns, mode)


@pytest.mark.parametrize("error", [StoreError("cannot swallow this"), ValueError("a fault of its own")])
async def test_a_job_that_a_store_fails_on_is_set_aside_after_some_tries(
    shop: Shop, database: str, error: Exception
) -> None:
    """What is behind it waits so long, and comes then."""
    store = Choking()
    store.error = error
    async with relaying(database, store) as relay:
        await write(shop, database, "first")
        await write(shop, database, "bad", id="bad")
        await write(shop, database, "last")
        rounds = []
        for _ in range(5):
            relay._held.clear()
            rounds.append(await relay.carry())

    assert [each.jobs for each in rounds] == [1, 0, 0, 0, 1]
    assert [each.failed for each in rounds] == [0, 0, 0, 0, 1]


async def test_a_store_that_is_away_sets_nothing_aside(shop: Shop, database: str) -> None:
    """However often it is tried."""
    store = Choking()
    store.error = StoreUnavailableError("gone")
    async with relaying(database, store) as relay:
        await write(shop, database, "bad", id="bad")
        for _ in range(7):
            with pytest.raises(StoreUnavailableError):
                await relay.carry()
        state = await relay._outbox.state(10)

    assert (state.waiting, state.failed) == (1, 0)


async def test_a_database_that_refuses_the_relay_for_a_while_is_waited_for(shop: Shop, database: str) -> None:
    """It worked before: a password is being changed, or a right."""
    role = f"carrier_{secrets.token_hex(4)}"
    store = MemoryStore()
    with psycopg.connect(database, autocommit=True) as operator:
        operator.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
        try:
            async with relaying(database.replace("postgres@", f"{role}@", 1), store) as relay:
                await write(shop, database, "ada")
                operator.execute(f"ALTER ROLE {role} NOLOGIN")
                operator.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s",
                    (role,),
                )
                with pytest.raises(StoreUnavailableError, match="worked before"):
                    await relay.carry()
                operator.execute(f"ALTER ROLE {role} LOGIN")
                carried = await relay.carry()
        finally:
            operator.execute(f"DROP OWNED BY {role} CASCADE")
            operator.execute(f"DROP ROLE {role}")

    assert carried.jobs == 1


class AwayAtFirst(InterceptedStore):
    """Cannot be reached twice."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 2
        self.is_back = asyncio.Event()

    async def enqueue(
        self, queue: QueueRef, jobs: Any, spawns: Any = (), mode: Any = None
    ) -> list[Enqueued | Refused]:
        self.failures -= 1
        if self.failures >= 0:
            raise StoreUnavailableError("gone")
        self.is_back.set()
        return await self.real.moves.enqueue(queue, jobs, spawns, mode)


async def test_a_relay_says_once_why_it_waits_and_once_that_it_goes_on(
    shop: Shop, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it tried."""
    caplog.set_level("INFO", "penstock.outbox")
    store = AwayAtFirst()
    async with outbox_in(database):
        await write(shop, database, "ada")
    async with asyncio.timeout(PATIENCE), opened(store):
        relay = OutboxRelay(database, store)
        running = asyncio.create_task(relay.run())
        await store.is_back.wait()
        relay.stop()
        await running

    assert [line for line in caplog.messages if line.startswith("carrying")] == [
        "carrying failed, will repeat: gone",
        "carrying works again",
    ]


async def test_large_jobs_go_in_several_calls(shop: Shop, database: str) -> None:
    """In their order."""
    store = MemoryStore()
    async with relaying(database, store) as relay:
        ids = await write(shop, database, *("x" * 600_000 for _ in range(3)))
        carried = await relay.carry()
        jobs = await jobs_in(store)

    assert carried.jobs == 3
    assert [job.id for job in jobs] == ids


async def test_a_delay_counts_from_when_it_was_written(shop: Shop, database: str) -> None:
    """Time in the outbox is part of it."""
    store = MemoryStore()
    async with relaying(database, store) as relay:
        await write(shop, database, "soon", "later", delay=60)
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await connection.execute(
                "UPDATE penstock_outbox.outbox SET written_at = written_at - interval '2 min' "
                "WHERE number = (SELECT min(number) FROM penstock_outbox.outbox)"
            )
        await relay.carry()
        jobs = await jobs_in(store)

    assert [job.state for job in jobs] == [State.PENDING, State.DELAYED]


async def test_writing_says_what_is_wrong(shop: Shop, database: str) -> None:
    """No outbox there, a queue nobody declared, no transaction."""
    with pytest.raises(StoreFormatError, match="penstock outbox"):
        await write(shop, database, "ada")
    elsewhere = shop.app.by_name("other", queue="unheard")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(UnknownQueueError):
            await shop.outbox.enqueue_in(connection, elsewhere)
        with pytest.raises(TransactionError, match="autocommit"):
            await shop.outbox.enqueue_in(connection, shop.send, "ada")


async def test_a_job_carries_what_its_app_says_of_the_queue(shop: Shop, database: str) -> None:
    """The store need not know the queue before."""
    turns = shop.app.queue("turns", mode="keyed", key_limit=1)
    task = turns.task(name="turn")(_tight)
    store = MemoryStore()
    async with relaying(database, store) as relay:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await shop.outbox.enqueue_in(connection, task.options(key="k"), 1)
        await relay.carry()
        info = await store.queues.find_queue(QueueRef("default", "turns"))

    assert info is not None
    assert info.declaration == turns.declaration


def _tight(n: int) -> None: ...
