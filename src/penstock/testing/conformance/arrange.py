"""Bringing a job into the standing that a case asks for, by moves of the store itself."""

import itertools
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Every
from penstock.core.flows import ChildEnding, ChildPolicy, JobRef
from penstock.core.job import Claimed, Job, NewJob, Options, QueueRef
from penstock.core.moves import Bury, Complete, Fail, Fault, Move, Release, Retry, Settlement
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.stores.values import Pause
from penstock.testing.conformance.cases import Setting

LEASE_MS: Final = 30_000
LONG_LEASE_MS: Final = 1_800_000
DELAY_MS: Final = 40_000
KEPT_MS: Final = 50_000
LATE_MS: Final = 50_000
"""By this the clock is turned to make jobs late: it is as long as any of their times."""
FAULT: Final = Fault("ERROR", "ValueError: no\nmore than one line", "f1")
ENDED_CHILD: Final = JobRef("other", "ended-before")
LAST_CHILD: Final = JobRef("other", "ends-last")
KIND: Final = Unique("a kind", UniqueRule.DEBOUNCE)
LONGEST_WAIT: Final = 240.0
"""Seconds after which a test gives up on what has to come. A passing test never waits that long."""
_names = itertools.count(1)


def schedule_body(name: str, note: str = "") -> bytes:
    """The record of a schedule as a client makes it: a service takes no other."""
    payload = msgspec.json.encode({"note": note})
    return encode_schedule(Schedule(name=name, spec=Every(60_000), task="task", payload=payload))


class Scene(msgspec.Struct, frozen=True):
    """A queue with the job that the case is about, and a bystander that is running."""

    queue: QueueRef
    subject: NewJob
    bystander: NewJob
    right: str
    stale: str
    other: str


def new_job(
    name: str | None = None,
    *,
    task: str = "task",
    payload: bytes = b'{"n":1}',
    priority: int = 5,
    delay_ms: int = 0,
    run_at: int | None = None,
    idempotency_key: str | None = None,
    key: str | None = None,
    options: Options | None = None,
    unique: Unique | None = None,
    awaits: Sequence[JobRef] = (),
    parents: Sequence[JobRef] = (),
    child_policy: ChildPolicy = ChildPolicy.FAIL,
    headers: dict[str, str] | None = None,
) -> NewJob:
    """A job to enqueue, with an id and a nonce of its own unless a name is given."""
    return NewJob(
        id=name or f"job-{next(_names)}",
        nonce=secrets.token_hex(8),
        task=task,
        payload=payload,
        priority=priority,
        delay_ms=delay_ms,
        run_at=run_at,
        idempotency_key=idempotency_key,
        key=key,
        options=options or Options(),
        unique=unique,
        awaits=tuple(awaits),
        parents=tuple(parents),
        child_policy=child_policy,
        headers=headers,
    )


async def arrange(store: Store, setting: Setting, move: Move | None = None) -> Scene:
    """A fresh queue with one job in that standing, for that move; if it is late the clock is left to turn."""
    queue = QueueRef(f"m{secrets.token_hex(5)}", "q")
    options = Options(max_attempts=7, timeout_ms=1_234, retention_ms=KEPT_MS)
    bystander = new_job(priority=9)
    waits = setting.state is State.DELAYED and not setting.used
    blocked = setting.state is State.BLOCKED
    subject = new_job(
        priority=3,
        delay_ms=DELAY_MS if waits else 0,
        idempotency_key="the key",
        key="a key",
        options=options,
        unique=KIND if move is Move.REPLACE else None,
        run_at=await store.clock.now() + DELAY_MS if blocked else None,
        awaits=(ENDED_CHILD, LAST_CHILD) if blocked else (),
    )
    has_subject = setting.state is not None
    await store.moves.enqueue(queue, [bystander, subject] if has_subject else [bystander])
    other = await claim_one(store, queue, LONG_LEASE_MS, worker="bystander")
    right = stale = ""
    if blocked:
        await store.flows.child_ended(queue, [ChildEnding(subject.id, ENDED_CHILD, State.COMPLETED, b"1")])
    if setting.used:
        stale, right = await _deliver(store, queue, setting)
    elif setting.state is State.CANCELLED:
        await store.moves.cancel(queue, [subject.id])
    if setting.paused:
        await store.queues.pause_queue(queue, Pause(0, "for the case", "the suite"))
    return Scene(queue, subject, bystander, right, stale, other.token)


async def _deliver(store: Store, queue: QueueRef, setting: Setting) -> tuple[str, str]:
    """Two deliveries, of which the second leads to the state; their tokens."""
    first = await claim_one(store, queue, LEASE_MS)
    await settle(store, queue, Retry(first.id, first.token, 0, FAULT))
    second = await claim_one(store, queue, LEASE_MS)
    if setting.cancel:
        await store.moves.cancel(queue, [second.id])
    match setting.state:
        case State.PENDING:
            await settle(store, queue, Retry(second.id, second.token, 0, FAULT))
            await store.moves.promote(queue)
        case State.DELAYED:
            await settle(store, queue, Retry(second.id, second.token, DELAY_MS, FAULT))
        case State.COMPLETED:
            await settle(store, queue, Complete(second.id, second.token, b'"done"'))
        case State.FAILED:
            await settle(store, queue, Fail(second.id, second.token, FAULT))
        case State.DEAD:
            await settle(store, queue, Bury(second.id, second.token, FAULT))
        case State.CANCELLED:
            if not setting.cancel:
                await settle(store, queue, Retry(second.id, second.token, DELAY_MS, FAULT))
                await store.moves.cancel(queue, [second.id])
            else:
                await settle(store, queue, Release(second.id, second.token))
    return first.token, second.token


async def claim_one(
    store: Store, queue: QueueRef, lease_ms: int = LEASE_MS, worker: str = "worker"
) -> Claimed:
    """Claim exactly one job."""
    claims = await store.moves.claim(queue, worker=worker, limit=1, lease_ms=lease_ms)
    assert len(claims.jobs) == 1, f"a claim of one brought {len(claims.jobs)}"
    return claims.jobs[0]


async def settle(store: Store, queue: QueueRef, settlement: Settlement) -> State:
    """Settle one delivery; what it led to."""
    [outcome] = await store.moves.settle(queue, [settlement])
    assert isinstance(outcome, Applied), f"{settlement} was refused: {outcome}"
    return outcome.state


async def enqueue(store: Store, queue: QueueRef, jobs: Sequence[NewJob]) -> list[str]:
    """Enqueue jobs; their ids."""
    await store.moves.enqueue(queue, jobs)
    return [job.id for job in jobs]


async def enqueue_each(store: Store, queue: QueueRef, jobs: Sequence[NewJob]) -> list[str]:
    """Enqueue jobs with a call for each, so that every store can trim their events one by one; their ids."""
    return [job for each in jobs for job in await enqueue(store, queue, [each])]


async def claim(
    store: Store, queue: QueueRef, limit: int = 100, lease_ms: int = LEASE_MS, worker: str = "worker"
) -> list[Claimed]:
    """Claim up to so many jobs."""
    return (await store.moves.claim(queue, worker=worker, limit=limit, lease_ms=lease_ms)).jobs


async def record_of(store: Store, queue: QueueRef, job: str) -> Job:
    """The record of a job that has to be there."""
    [record] = await store.reads.get(queue, [job])
    assert record is not None, f"there is no {job}"
    return record


async def states_of(store: Store, queue: QueueRef, jobs: Sequence[str]) -> list[State | None]:
    """The states of jobs; None where there is none."""
    return [None if job is None else job.state for job in await store.reads.get(queue, jobs)]
