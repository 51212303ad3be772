"""The check of a clock that was set back: when, how far, and which delayed jobs it holds back."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from penstock.cli.doctor.check import Check
from penstock.cli.jobs.job_pages import each_page
from penstock.cli.output import local, span
from penstock.core.clocks import STEP_MS
from penstock.core.job import Job
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Query, QueueInfo

MAX_NAMED: Final = 20
"""Delayed jobs that are listed by name; the others are only counted."""


async def examine_clock_steps(store: Store, queues: Sequence[QueueInfo]) -> Check:
    """When and how far the clock was last set back. This is no finding: the store followed the clock."""
    now = await store.clock.now()
    steps = [info.clock_step for info in queues if info.clock_step is not None]
    newest = max(steps, key=lambda step: step.at, default=None)
    if newest is None:
        return Check("clock steps", "never set back")
    seen = f"set back by {span(newest.back_ms)} at {local(newest.at)}"
    held: list[str] = []
    for info in queues:
        if info.clock_step is not None and info.clock_step.holds_back(now):
            held += [f"{info.queue.name}/{job.id}" async for job in _held_back(store, info, now)]
    if held:
        more = f" and {len(held) - MAX_NAMED} more" if len(held) > MAX_NAMED else ""
        seen += f"; delayed jobs that it holds back: {', '.join(held[:MAX_NAMED])}{more}"
    return Check("clock steps", seen)


async def _held_back(store: Store, info: QueueInfo, now: int) -> AsyncIterator[Job]:
    query = Query(states=frozenset({State.DELAYED}), payloads=False, results=False, limit=1_000)
    async for jobs in each_page(store, info.queue, query):
        for job in jobs:
            if is_held_back(job, now):
                yield job


def is_held_back(job: Job, now: int) -> bool:
    """True for a delayed job whose delay began before the clock was set back, as far as its record shows."""
    if job.visible_at is None or job.visible_at <= now:
        return False
    since = job.enqueued_at if job.last_delay_ms is None else job.visible_at - job.last_delay_ms
    return since > now + STEP_MS
