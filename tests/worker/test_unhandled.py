"""Jobs whose task a worker does not know, and the registry by which it tells whether another one does."""

import asyncio
from pathlib import Path

import pytest

from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.open import open_store
from penstock.stores.values import WorkerEntry
from penstock.telemetry.logs import HumanFormatter
from penstock.worker.claim import GIVE_WAY
from penstock.worker.registration import Registration
from tests.kit.waiting import eventually
from tests.worker.kit import Cut, Desk


async def test_a_task_nobody_knows_for_a_day_is_dead_without_an_attempt(desk: Desk) -> None:
    job = await desk.enqueue("unheard-of", max_attempts=1)
    await desk.burst()
    await desk.store.clock.advance_clock(23 * 3_600_000)
    await desk.burst()
    waits = await desk.job(job)
    await desk.store.clock.advance_clock(3_600_000)
    await desk.burst()

    found = await desk.job(job)
    assert (waits.state, waits.attempts, waits.reason) == (State.DELAYED, 0, "NO_HANDLER")
    assert (found.state, found.attempts, found.reason) == (State.DEAD, 0, "NO_HANDLER")
    assert "no worker knew task 'unheard-of' for 86400 s" in (found.error or "")


async def test_a_job_that_was_never_attempted_is_not_logged_as_a_failed_attempt(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.enqueue("unheard-of")

    await desk.burst(no_handler_after=0)
    assert "dead without an attempt" in caplog.text
    assert "attempt failed" not in caplog.text


async def test_how_long_a_task_may_be_unknown_can_be_said(desk: Desk) -> None:
    job = await desk.enqueue("unheard-of")
    await desk.burst(no_handler_after=60)
    await desk.store.clock.advance_clock(60_000)
    await desk.burst(no_handler_after=60)

    assert (await desk.job(job)).state is State.DEAD
    with pytest.raises(OptionError, match="no_handler_after"):
        desk.worker(no_handler_after=-1)


async def test_a_task_nobody_knows_yet_waits_for_the_deploy(desk: Desk) -> None:
    async def new() -> str:
        return "done"

    job = await desk.enqueue("new", max_attempts=1)
    for _ in range(7):
        await desk.burst()
        await desk.store.clock.advance_clock(
            ((await desk.job(job)).visible_at or 0) - await desk.store.clock.now()
        )
    await desk.burst(new)

    snoozes = [each for each in await desk.events(job) if each.move is Move.SNOOZE]
    delays = [(each.visible_at or 0) - each.at for each in snoozes]
    # The time that the test itself takes is waited as well.
    least = [15_000, 30_000, 60_000, 120_000, 240_000, 300_000, 300_000]
    assert [min(pair) for pair in zip(delays, least, strict=True)] == least
    assert (delays[0], delays[-1]) == (15_000, 300_000)
    found = await desk.job(job)
    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 0, 8)


async def test_a_task_that_another_worker_knows_comes_back_soon(desk: Desk) -> None:
    """So that a deploy which brings a task delays its jobs by seconds."""

    async def other() -> None: ...

    job = await desk.enqueue("new", max_attempts=1)
    entry = WorkerEntry("newer", "host", 1, "0.1", {desk.queue.name: 1}, ("new",))
    await desk.store.workers.register_worker(desk.queue.tenant, entry, 30_000)
    await desk.burst(other)

    (snooze,) = [each for each in await desk.events(job) if each.move is Move.SNOOZE]
    assert 1_000 <= (snooze.visible_at or 0) - snooze.at <= 3_000


async def test_a_worker_gives_way_to_those_that_know_the_tasks_of_jobs_it_sent_back(desk: Desk) -> None:
    """All workers learn when such a job is due: the one that cannot execute it comes last."""

    async def other() -> None: ...

    job = await desk.enqueue("new", max_attempts=1)
    entry = WorkerEntry("newer", "host", 1, "0.1", {desk.queue.name: 1}, ("new",))
    await desk.store.workers.register_worker(desk.queue.tenant, entry, 30_000)
    async with desk.working(other):
        await eventually(lambda: _is_sent_back(desk, job, times=2))

    events = await desk.events(job)
    first = next(each for each in events if each.move is Move.SNOOZE)
    _, second = [each for each in events if each.move is Move.CLAIM]
    assert second.at - (first.visible_at or 0) >= GIVE_WAY * 1000 - 5


async def test_a_worker_of_another_queue_is_no_help(desk: Desk) -> None:
    entry = WorkerEntry("newer", "host", 1, "0.1", {"elsewhere": 1}, ("new",))
    await desk.store.workers.register_worker(desk.queue.tenant, entry, 30_000)
    job = await desk.enqueue("new")
    await desk.burst()

    (snooze,) = [each for each in await desk.events(job) if each.move is Move.SNOOZE]
    assert (snooze.visible_at or 0) - snooze.at == 15_000


async def test_an_unknown_task_is_named_in_the_log_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        await desk.enqueue("unheard-of")
    await desk.burst()

    told = [each for each in caplog.messages if "does not know task 'unheard-of'" in each]
    assert len(told) == 1


async def test_known_jobs_are_served_behind_many_of_an_unknown_task(desk: Desk) -> None:
    async def known() -> None: ...

    for _ in range(200):
        await desk.enqueue("unheard-of")
    job = await desk.enqueue("known")
    await desk.burst(known, concurrency=5)

    assert (await desk.job(job)).state is State.COMPLETED


async def test_a_running_worker_is_registered_with_its_queue_and_tasks(desk: Desk) -> None:
    async def send() -> None: ...

    async with desk.working(send, name="ada", concurrency=3):
        await eventually(lambda: _is_registered(desk))
        (entry,) = await desk.store.workers.list_workers(desk.queue.tenant)

    assert (entry.name, entry.queues, entry.tasks) == ("ada", {desk.queue.name: 3}, ("send",))
    assert await desk.store.workers.list_workers(desk.queue.tenant) == []


async def test_workers_of_one_process_share_an_entry() -> None:
    store = MemoryStore()
    registration = Registration(store, "default", "ada", {"a": 1, "b": 2}, ["send"])
    registered = asyncio.Event()
    async with registration.held():
        async with registration.held():
            pass
        await eventually(lambda: _has_entries(store, registered))

    assert await store.workers.list_workers("default") == []


async def test_the_log_says_once_what_works_where(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("INFO", "penstock.worker")
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    await store.open()
    tasks = [f"t{number:02}" for number in range(23)]
    registration = Registration(store, "default", "ada", {"mail": 10, "web": 5}, tasks)
    async with registration.held(), registration.held():
        pass
    await store.close()

    (record,) = [each for each in caplog.records if each.getMessage() == "worker started"]
    line = HumanFormatter().format(record)
    assert f"store=sqlite:///{tmp_path}/jobs.db" in line
    assert "worker=ada" in line
    assert 'queues="mail=10, web=5" slots=15' in line
    assert f'tasks="{", ".join(tasks[:20])} and 3 more"' in line


async def test_a_worker_without_tasks_is_told_why_it_executes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where the module of the app was named, and not the one that imports its tasks."""
    async with Registration(MemoryStore(), "default", "ada", {"mail": 10}, []).held():
        pass

    assert "this worker knows no task" in caplog.text


async def test_a_registry_that_does_not_answer_keeps_no_job_from_going_back() -> None:
    store = Cut()
    desk = Desk(QueueRef("default", "q"), store)
    job = await desk.enqueue("unheard-of")
    store.lose_before["list_workers"] = 100
    await desk.burst()

    assert (await desk.job(job)).state is State.DELAYED


async def _is_sent_back(desk: Desk, job: str, *, times: int) -> bool:
    return (await desk.moves(job)).count(Move.SNOOZE) >= times


async def _is_registered(desk: Desk) -> bool:
    return bool(await desk.store.workers.list_workers(desk.queue.tenant))


async def _has_entries(store: MemoryStore, registered: asyncio.Event) -> bool:
    if await store.workers.list_workers("default"):
        registered.set()
    return registered.is_set()
