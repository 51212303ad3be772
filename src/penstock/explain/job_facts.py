"""The facts that explain the state of a job, read from the store without a change."""

from collections.abc import Callable
from typing import Final

import msgspec

from penstock.core.events import Event
from penstock.core.flows import Child
from penstock.core.job import Job, QueueRef
from penstock.core.limits import Declaration
from penstock.core.states import State
from penstock.explain.job_events import read_job_events
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo, Pause, WorkerEntry

MOST_KEYS: Final = 10_000
"""Maximum number of keys of a queue that are read."""
MAX_CHILDREN: Final = 5
"""Maximum number of children whose records are read."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a job. `last` is its newest event, if the log still has it.

    `key` is the state of the job's key in a queue with keys; `ahead` then counts jobs of that key only.
    `token_at` is when the rate of the queue allows the next start, if it holds jobs back. `states` are the
    states of the first children that the job still waits for; None stands for a job that does not exist.
    """

    job: Job
    now: int
    pause: Pause | None = None
    ahead: int = 0
    leases: int = 0
    last: Event | None = None
    declaration: Declaration | None = None
    key: KeyInfo | None = None
    token_at: int | None = None
    serving: list[WorkerEntry] | None = None
    """The live workers that serve the job's queue, where the job waits for one."""
    children: list[Child] = []
    states: list[State | None] = []

    @property
    def left(self) -> list[Child]:
        """The children that the job still waits for."""
        return [child for child in self.children if not child.is_done]


async def gather_facts(store: Store, job: Job, may_see: Callable[[str], bool] = lambda _: True) -> JobFacts:
    """Read the facts about this job; children are not read if one is in a queue that `may_see` denies."""
    events, _ = await read_job_events(store, job.ref, job, newest_only=True)
    info = await store.queues.find_queue(job.ref)
    declared = None if info is None else info.declaration
    waits = job.state in (State.PENDING, State.DELAYED)
    facts = JobFacts(
        job=job,
        now=await store.clock.now(),
        pause=None if info is None else info.pause,
        leases=(await store.reads.counts(job.ref))[State.ACTIVE] if waits else 0,
        last=events[-1] if events else None,
        declaration=declared,
    )
    if waits:
        workers = await store.workers.list_workers(job.tenant)
        serving = [worker for worker in workers if worker.serves(job.queue)]
        facts = msgspec.structs.replace(facts, serving=serving)
    if job.state is State.BLOCKED:
        children = await store.flows.children(job.ref, job.id, results=False)
        facts = msgspec.structs.replace(facts, children=children)
        some = facts.left[:MAX_CHILDREN]
        states = await _states(store, job, some) if all(may_see(child.ref.queue) for child in some) else []
        return msgspec.structs.replace(facts, states=states)
    if job.state is not State.PENDING:
        return facts
    token_at = None if info is None else info.held_until(facts.now)
    ahead = await store.reads.ahead(job.ref, job.id)
    if declared is None or not declared.mode.has_keys:
        return msgspec.structs.replace(facts, ahead=ahead, token_at=token_at)
    keys = await store.queues.list_keys(job.ref, MOST_KEYS)
    return msgspec.structs.replace(
        facts,
        ahead=ahead,
        key=next((each for each in keys if each.key == job.key), None),
        token_at=token_at,
    )


async def _states(store: Store, job: Job, children: list[Child]) -> list[State | None]:
    out: list[State | None] = []
    for child in children:
        (record,) = await store.reads.get(QueueRef(job.tenant, child.ref.queue), [child.ref.id])
        out.append(None if record is None else record.state)
    return out
