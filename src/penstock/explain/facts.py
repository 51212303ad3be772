"""What an explanation of a job is made from, gathered without touching anything."""

from collections.abc import Callable
from typing import Final

import msgspec

from penstock.core.events import Event
from penstock.core.flows import Child
from penstock.core.job import Job, QueueRef
from penstock.core.limits import Declaration
from penstock.core.states import State
from penstock.explain.events import events_of
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo, Pause

MOST_KEYS: Final = 10_000
"""More keys than this are not looked through."""
NAMED: Final = 5
"""Children that are looked at one by one."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at. `last` is the job's newest event, where the log still has it.

    `key` is what its key is like where keys take turns, and `ahead` then counts its key only. `token_at` is
    when the queue's rate lets the next job go, where it holds jobs back. `states` has those of some children
    that the job still waits for; None is one that is not there.
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
    children: list[Child] = []
    states: list[State | None] = []

    @property
    def left(self) -> list[Child]:
        """Children that it still waits for."""
        return [child for child in self.children if not child.is_done]


async def gather(store: Store, job: Job, sees: Callable[[str], bool] = lambda _: True) -> Facts:
    """What an explanation of this job needs to know; no child is looked up in a queue that `sees` denies."""
    events, _ = await events_of(store, job.ref, job, newest_only=True)
    info = await store.queue(job.ref)
    declared = None if info is None else info.declaration
    waits = job.state in (State.PENDING, State.DELAYED)
    facts = Facts(
        job=job,
        now=await store.now(),
        pause=None if info is None else info.pause,
        leases=(await store.counts(job.ref))[State.ACTIVE] if waits else 0,
        last=events[-1] if events else None,
        declaration=declared,
    )
    if job.state is State.BLOCKED:
        children = await store.children(job.ref, job.id, results=False)
        facts = msgspec.structs.replace(facts, children=children)
        some = facts.left[:NAMED]
        states = await _states(store, job, some) if all(sees(child.ref.queue) for child in some) else []
        return msgspec.structs.replace(facts, states=states)
    if job.state is not State.PENDING:
        return facts
    token_at = None if info is None else info.held_until(facts.now)
    ahead = await store.ahead(job.ref, job.id)
    if declared is None or not declared.mode.has_keys:
        return msgspec.structs.replace(facts, ahead=ahead, token_at=token_at)
    keys = await store.keys(job.ref, MOST_KEYS)
    return msgspec.structs.replace(
        facts,
        ahead=ahead,
        key=next((each for each in keys if each.key == job.key), None),
        token_at=token_at,
    )


async def _states(store: Store, job: Job, children: list[Child]) -> list[State | None]:
    out: list[State | None] = []
    for child in children:
        (record,) = await store.get(QueueRef(job.tenant, child.ref.queue), [child.ref.id])
        out.append(None if record is None else record.state)
    return out
