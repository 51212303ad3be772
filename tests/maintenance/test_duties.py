"""Promote, recover, prune, trim: each in bounded batches, each harmless when many do it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.errors import CursorLostError, StoreUnavailableError
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.moves import Complete, Move
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.maintenance.promoter import Promoter
from penstock.maintenance.pruner import EVENTS_AGE, Pruner, Trimmer
from penstock.maintenance.queue_maintenance import QueueMaintenance
from penstock.maintenance.reclaimer import Reclaimer
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.memory import MemoryStore
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import eventually

DAY = 24 * 3600 * 1000


async def test_due_jobs_are_promoted_in_batches(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 250, delay_ms=1_000)
    promoter = Promoter(store, queue)
    assert not await promoter.tick()
    await store.clock.advance_clock(1_000)

    assert [await promoter.tick(), await promoter.tick()] == [True, False]
    assert (await store.reads.counts(queue))[State.PENDING] == 250


async def test_leases_that_ran_out_are_recovered_by_the_jobs_own_policy(queue: QueueRef) -> None:
    store = MemoryStore()
    first, last = Options(backoff=Backoff.fixed(60)), Options(max_attempts=1)
    await _enqueue(store, queue, 1, options=first, prefix="again")
    await _enqueue(store, queue, 1, options=last, prefix="last")
    await store.moves.claim(queue, worker="dead", limit=2, lease_ms=1_000)
    reclaimer = Reclaimer(store, queue)
    assert not await reclaimer.tick()
    await store.clock.advance_clock(1_000)
    assert not await reclaimer.tick()

    again, dead = await store.reads.get(queue, ["again-0", "last-0"])
    assert again is not None
    assert dead is not None
    assert (again.state, again.attempts, again.last_delay_ms) == (State.DELAYED, 1, 60_000)
    assert (dead.state, dead.reason) == (State.DEAD, "LEASE_EXPIRED")
    assert "worker dead" in (dead.error or "")


async def test_a_job_of_which_nothing_can_be_decided_keeps_no_other_lease(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    broken = Options(backoff=Backoff(base_ms=None))  # type: ignore[arg-type]
    await _enqueue(store, queue, 1, options=broken, prefix="broken")
    await _enqueue(store, queue, 1, prefix="good")
    await store.moves.claim(queue, worker="dead", limit=2, lease_ms=1_000)
    await store.clock.advance_clock(1_000)

    assert await Reclaimer(store, queue).recover(await store.reads.expired(queue)) == 1
    good, other = await store.reads.get(queue, ["good-0", "broken-0"])
    assert (good and good.state, other and other.state) == (State.DELAYED, State.ACTIVE)
    assert "cannot decide" in caplog.text


async def test_many_recover_and_each_lease_is_taken_once(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 50)
    await store.moves.claim(queue, worker="dead", limit=50, lease_ms=1_000)
    await store.clock.advance_clock(1_000)
    leases = await store.reads.expired(queue)

    recovered = await asyncio.gather(*[Reclaimer(store, queue).recover(leases) for _ in range(4)])

    assert sorted(recovered) == [0, 0, 0, 50]


async def test_more_leases_than_a_batch_are_recovered_in_one_tick(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 450)
    await store.moves.claim(queue, worker="dead", limit=450, lease_ms=1_000)
    await store.clock.advance_clock(1_000)
    await QueueMaintenance(store, queue, tick=1).tick()

    assert (await store.reads.counts(queue))[State.ACTIVE] == 0


async def test_ended_jobs_are_pruned_after_their_retention_and_dead_ones_never(queue: QueueRef) -> None:
    store = MemoryStore()
    await _end(store, queue, 450)
    await _enqueue(store, queue, 1, options=Options(max_attempts=1), prefix="dead")
    await store.moves.claim(queue, worker="w", limit=1, lease_ms=1_000)
    await store.clock.advance_clock(DAY - 1_000)
    await QueueMaintenance(store, queue, tick=1).tick()
    assert (await store.reads.counts(queue))[State.COMPLETED] == 450
    await store.clock.advance_clock(2 * DAY)
    assert await Pruner(store, queue).tick()
    await QueueMaintenance(store, queue, tick=1).tick()

    counts = await store.reads.counts(queue)
    assert (counts[State.COMPLETED], counts[State.DEAD]) == (0, 1)


async def test_events_older_than_the_age_are_trimmed_and_no_younger_one(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 100, prefix="old")
    await store.clock.advance_clock(DAY)
    await _enqueue(store, queue, 50, prefix="new")
    trimmer = Trimmer(store, queue, age=3600.0)
    assert not await trimmer.tick()

    assert await store.events.event_range(queue) == (101, 150)
    assert not await trimmer.tick()
    assert await store.events.event_range(queue) == (101, 150)


async def test_events_over_the_count_are_trimmed_oldest_first(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 100)
    await Trimmer(store, queue, kept=30).tick()

    assert await store.events.event_range(queue) == (71, 100)


async def test_trimming_goes_in_bounded_steps(queue: QueueRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.maintenance.pruner.TRIM_LIMIT", 40)
    store = MemoryStore()
    await _enqueue(store, queue, 100)
    trimmer = Trimmer(store, queue, kept=10)

    more = [await trimmer.tick() for _ in range(4)]

    assert more == [True, True, False, False]
    assert await store.events.event_range(queue) == (91, 100)


@pytest.mark.parametrize("limits", [{"kept": 30}, {"age": 0.0}], ids=["by count", "by age"])
async def test_what_a_reader_has_not_read_is_not_trimmed(queue: QueueRef, limits: dict[str, Any]) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 100)
    await store.clock.advance_clock(1)
    slow = await store.readers.register_reader(queue, "slow", 20)
    await store.readers.register_reader(queue, "fast", 90)
    trimmer = Trimmer(store, queue, **limits)

    assert not await trimmer.tick()
    assert await store.events.event_range(queue) == (20, 100)
    assert not await trimmer.tick()
    assert len(await store.events.read_events(queue, after=slow.cursor)) == 80


async def test_the_event_of_a_readers_cursor_stays_to_compare_with(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 10)
    await store.clock.advance_clock(1)
    await store.readers.register_reader(queue, "audit", 10)
    await Trimmer(store, queue, age=0).tick()

    assert await store.events.event_range(queue) == (10, 10)


async def test_a_reader_holds_back_no_more_than_so_many_events(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 100)
    reader = await store.readers.register_reader(queue, "stuck", 5)
    await Trimmer(store, queue, kept=10, held=60).tick()

    assert await store.events.event_range(queue) == (41, 100)
    with pytest.raises(CursorLostError, match="events 6 to 40 of"):
        await store.events.read_events(queue, after=reader.cursor)


async def test_a_reader_whose_lease_is_over_holds_nothing_and_is_forgotten(queue: QueueRef) -> None:
    store = MemoryStore()
    await _enqueue(store, queue, 100)
    await store.readers.register_reader(queue, "gone", 5)
    await store.clock.advance_clock(READER_LEASE_MS - 60_000)
    await store.readers.register_reader(queue, "here", 50)
    trimmer = Trimmer(store, queue, kept=10, age=2 * EVENTS_AGE)
    await trimmer.tick()
    held = await store.events.event_range(queue)
    await store.clock.advance_clock(60_000)
    await trimmer.tick()

    assert held == (5, 100)
    assert await store.events.event_range(queue) == (50, 100)
    assert [reader.name for reader in await store.readers.list_readers(queue)] == ["here"]


async def test_trimming_up_to_a_reader_goes_in_bounded_steps(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.maintenance.pruner.TRIM_LIMIT", 40)
    store = MemoryStore()
    await _enqueue(store, queue, 100)
    await store.readers.register_reader(queue, "audit", 81)
    trimmer = Trimmer(store, queue, kept=10)

    more = [await trimmer.tick() for _ in range(3)]

    assert more == [True, False, False]
    assert await store.events.event_range(queue) == (81, 100)


async def test_a_queue_without_events_has_nothing_to_trim(queue: QueueRef) -> None:
    assert not await Trimmer(MemoryStore(), queue, kept=0, age=0).tick()


async def test_the_tick_does_bounded_work_and_says_that_there_is_more(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.maintenance.duties.ROUNDS", 2)
    store = MemoryStore()
    await _enqueue(store, queue, 900, delay_ms=1_000)
    await store.clock.advance_clock(1_000)
    scheduler = QueueMaintenance(store, queue, tick=1)

    assert await scheduler.tick()
    assert (await store.reads.counts(queue))[State.PENDING] == 400


async def test_a_store_that_fails_is_met_again_at_the_next_tick(queue: QueueRef) -> None:
    class Flaky(InterceptedStore):
        failures = 2

        async def promote(self, *args: Any, **kwargs: Any) -> int:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailableError("down")
            return await self.real.moves.promote(*args, **kwargs)

    store = Flaky()
    await _enqueue(store, queue, 1, delay_ms=1)
    run = asyncio.create_task(QueueMaintenance(store, queue, tick=0.01).run())

    async def is_promoted() -> bool:
        return (await store.reads.counts(queue))[State.PENDING] == 1

    await eventually(is_promoted)
    run.cancel()
    await asyncio.wait([run])

    assert Move.PROMOTE in [event.move for event in await store.events.read_events(queue)]


async def _enqueue(store: MemoryStore, queue: QueueRef, count: int, prefix: str = "j", **fields: Any) -> None:
    await store.moves.enqueue(queue, _jobs(count, prefix, **fields))


def _jobs(count: int, prefix: str, **fields: Any) -> Sequence[NewJob]:
    return [NewJob(id=f"{prefix}-{n}", nonce="n", task="t", payload=b"{}", **fields) for n in range(count)]


async def _end(store: MemoryStore, queue: QueueRef, count: int) -> None:
    await _enqueue(store, queue, count)
    claims = await store.moves.claim(queue, worker="w", limit=count, lease_ms=30_000)
    await store.moves.settle(queue, [Complete(job.id, job.token) for job in claims.jobs])
