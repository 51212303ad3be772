"""Checks of a queue's workers: whether one serves the queue, and whether one knows the tasks of its jobs."""

from typing import Final

from penstock.cli.doctor.check import Check
from penstock.cli.jobs.job_pages import PAGE, each_page
from penstock.core.decide import NO_HANDLER
from penstock.core.errors import StoreFormatError
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.explain.formatting import span
from penstock.stores.protocol import Store
from penstock.stores.values import Query, QueueInfo, WorkerEntry

RECENT_EVENTS: Final = 200
"""The newest events; a recent claim among them shows that a client serves the queue."""
RECENT_MS: Final = 60_000
DELAYED: Final = 10 * PAGE
"""Delayed jobs that are read to find tasks which no worker knows."""


async def examine_workers(
    store: Store, info: QueueInfo, counts: dict[State, int], workers: list[WorkerEntry]
) -> Check:
    """Check that pending jobs of a queue have a worker, unless the queue is paused."""
    ref, waiting = info.queue, counts[State.PENDING]
    serving = _serving(info, workers)
    check = Check("workers", f"{len(serving)} registered, {waiting} jobs wait", ref.name)
    if serving or not waiting or counts[State.ACTIVE]:
        return check
    now = await store.clock.now()
    if info.pause is not None and (info.pause.until is None or info.pause.until > now):
        check.seen += "; the queue is paused"
        return check
    if await _was_claimed(store, info, now):
        # Clients that claim over HTTP are not registered as workers.
        check.seen += "; jobs were claimed within the last minute"
        return check
    oldest = await store.reads.oldest(ref)
    since = "" if oldest is None else f", the oldest for {span(now - oldest)}"
    check.findings.append(f"{waiting} jobs wait{since}, and no live worker serves the queue")
    return check


async def examine_tasks(
    store: Store, info: QueueInfo, counts: dict[State, int], workers: list[WorkerEntry]
) -> Check:
    """Check that each task is known to a live worker, for jobs that workers returned as unknown."""
    ref, now = info.queue, await store.clock.now()
    serving = _serving(info, workers)
    waiting: dict[str, tuple[int, int]] = {}
    seen = 0
    if counts[State.DELAYED]:
        query = Query(states=frozenset({State.DELAYED}), limit=PAGE, payloads=False, results=False)
        async for jobs in each_page(store, ref, query):
            for job in jobs:
                if job.reason == NO_HANDLER and job.unhandled_since is not None:
                    many, since = waiting.get(job.task, (0, now))
                    waiting[job.task] = many + 1, min(since, job.unhandled_since)
            seen += len(jobs)
            if seen >= DELAYED:
                break
    many = sum(each for each, _ in waiting.values())
    check = Check("unknown tasks", f"{many} jobs were returned by workers without a handler", ref.name)
    check.findings = [
        f"{many} jobs of task {task!r} were returned by workers without a handler since {span(now - since)}, "
        "and no live worker of the queue knows the task: start one that does"
        for task, (many, since) in sorted(waiting.items())
        if not any(task in worker.tasks or worker.more_tasks for worker in serving)
    ]
    return check


def _serving(info: QueueInfo, workers: list[WorkerEntry]) -> list[WorkerEntry]:
    """The workers that serve the queue, or may: the entry of a worker of very many queues names only some."""
    return [worker for worker in workers if info.queue.name in worker.queues or worker.more_queues]


async def _was_claimed(store: Store, info: QueueInfo, now: int) -> bool:
    first, newest = await store.events.event_range(info.queue)
    try:
        events = await store.events.read_events(
            info.queue, max(first - 1, newest - RECENT_EVENTS), RECENT_EVENTS
        )
    except StoreFormatError:
        # The check of the history reports this.
        return False
    return any(event.move is Move.CLAIM and event.at > now - RECENT_MS for event in events)
