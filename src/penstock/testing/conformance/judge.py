"""Making the move of a case on a store, and holding what happened against the table and its effects."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.core import effects
from penstock.core.events import EVENT_VERSION, Event, event_of
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import Job, NewJob
from penstock.core.moves import (
    Beat,
    Bury,
    Complete,
    Expire,
    Fail,
    Fault,
    Move,
    Release,
    Report,
    Retry,
    Settlement,
    Snooze,
)
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused, repeated
from penstock.core.states import WAITING, State
from penstock.core.transitions import TABLE, refusal
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import (
    ENDED_CHILD,
    KIND,
    LAST_CHILD,
    LATE_MS,
    Scene,
    arrange,
    new_job,
)
from penstock.testing.conformance.cases import Case, Lease, takes_token

T = TypeVar("T")

NEW_LEASE_MS: Final = 70_000
NEW_DELAY_MS: Final = 80_000
SIDE_BY_SIDE: Final = 24
NEW_FAULT: Final = Fault("TIMEOUT", "took too long", "f2")


class Seen(msgspec.Struct, frozen=True):
    """The queue as the store shows it at one time."""

    at: int
    jobs: list[Job | None]
    first: int
    newest: int


class Expected(msgspec.Struct):
    """What the reference says: the answer, the record, and the events with their records in order."""

    outcome: object
    record: Job | None
    moves: list[tuple[Move, State | None, Job]] = []
    removed: Move | None = None


async def run_cases(store: Store, cases: Sequence[Case], *, to_the_end: bool = True) -> list[str]:
    """Arrange the cases, make their moves and judge them; what differed, a line for each case that did.

    Cases run side by side, each on a queue of its own. The clock is the store's, so it is turned once for all
    that are late, when the others are done. Without `to_the_end` the first that differ are enough.
    """
    wrong: list[str] = []
    for start in range(0, len(cases), SIDE_BY_SIDE):
        some = cases[start : start + SIDE_BY_SIDE]
        scenes = await _side_by_side(arrange(store, case.setting, case.move) for case in some)
        for late in (False, True):
            if late:
                await store.clock.advance_clock(LATE_MS)
            ready = [
                (case, scene) for case, scene in zip(some, scenes, strict=True) if case.setting.late is late
            ]
            wrong += filter(None, await _side_by_side(_fault_of(store, *each) for each in ready))
            if wrong and not to_the_end:
                return wrong
    return wrong


async def _side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once; an error is raised when none of them is on its way any more."""
    done = await asyncio.gather(*works, return_exceptions=True)
    out: list[T] = []
    for each in done:
        if isinstance(each, BaseException):
            raise each
        out.append(each)
    return out


async def _fault_of(store: Store, case: Case, scene: Scene) -> str | None:
    try:
        await _run(store, case, scene)
    except AssertionError as error:
        return str(error).partition("\n")[0] or f"{case}: {error!r}"
    return None


async def _run(store: Store, case: Case, scene: Scene) -> None:
    ids = [scene.subject.id, scene.bystander.id]
    before = await _see(store, scene, ids)
    outcome = await _make(store, scene, case)
    after = await _see(store, scene, ids)
    told = await store.events.read_events(scene.queue, after=before.newest)
    events = [replace(event, cursor="") for event in told]

    numbers = (after.first, after.newest)
    assert numbers == (1, before.newest + len(events)), f"{case}: the numbers of events have gaps"
    assert after.jobs[1] == before.jobs[1], f"{case}: the bystander changed"
    if case.move is Move.ENQUEUE:
        await _judge_enqueue(store, scene, case, before, after, outcome, events)
    elif case.move is Move.REPLACE:
        await _judge_replace(store, scene, case, before, after, outcome, events)
    else:
        _judge(scene, case, before, after, outcome, events)


async def _see(store: Store, scene: Scene, ids: Sequence[str]) -> Seen:
    jobs = await store.reads.get(scene.queue, ids)
    return Seen(await store.clock.now(), jobs, *await store.events.event_range(scene.queue))


# Making the move


async def _make(store: Store, scene: Scene, case: Case) -> object:
    queue, subject, token = scene.queue, scene.subject, _token(scene, case)
    match case.move:
        case Move.ENQUEUE:
            return await store.moves.enqueue(queue, [_enqueued_by(scene, case.lease)])
        case Move.REPLACE:
            return await store.moves.enqueue(queue, [_newer(case)])
        case Move.UNBLOCK:
            return await store.flows.child_ended(queue, [_ending(scene, case)])
        case Move.PROMOTE:
            return await store.moves.promote(queue)
        case Move.CLAIM:
            return await store.moves.claim(queue, worker="new-worker", limit=1, lease_ms=NEW_LEASE_MS)
        case Move.HEARTBEAT:
            return await store.moves.heartbeat(queue, [Beat(subject.id, token)], NEW_LEASE_MS)
        case Move.PROGRESS:
            return await store.moves.progress(queue, [Report(subject.id, token, b"0.5")])
        case Move.EXPIRE:
            return await store.moves.expire(queue, [_expiry(scene, case)])
        case Move.CANCEL:
            return await store.moves.cancel(queue, [subject.id])
        case Move.REDRIVE:
            return await store.moves.redrive(queue, [subject.id])
        case Move.DELETE:
            return await store.moves.delete(queue, [subject.id])
        case Move.PRUNE:
            return await store.moves.prune(queue)
        case _:
            return await store.moves.settle(queue, [settlement(case.move, subject.id, token)])


def settlement(move: Move, job: str, token: str) -> Settlement:
    """A settlement by that move."""
    match move:
        case Move.COMPLETE:
            return Complete(job, token, b'{"result":1}')
        case Move.FAIL:
            return Fail(job, token, NEW_FAULT)
        case Move.RETRY:
            return Retry(job, token, NEW_DELAY_MS, NEW_FAULT)
        case Move.BURY:
            return Bury(job, token, NEW_FAULT)
        case Move.SNOOZE:
            return Snooze(job, token, NEW_DELAY_MS)
        case Move.RELEASE:
            return Release(job, token)
        case _:
            raise ValueError(move)


def _token(scene: Scene, case: Case) -> str:
    return {Lease.RIGHT: scene.right, Lease.STALE: scene.stale, Lease.OTHER: scene.other}[case.lease]


def _expiry(scene: Scene, case: Case) -> Expire:
    delay_ms = NEW_DELAY_MS if case.target is State.DELAYED else 0
    return Expire(scene.subject.id, _token(scene, case), case.target or State.DELAYED, NEW_FAULT, delay_ms)


def _ending(scene: Scene, case: Case) -> ChildEnding:
    stranger = JobRef("other", "of-nobody")
    child = {Lease.RIGHT: LAST_CHILD, Lease.STALE: ENDED_CHILD, Lease.OTHER: stranger}[case.lease]
    return ChildEnding(scene.subject.id, child, case.target, b"2" if case.target else None)


def _newer(case: Case) -> NewJob:
    """Newer work of the subject's kind."""
    delay_ms = NEW_DELAY_MS if case.target is State.DELAYED else 0
    job = new_job("newer", payload=b'{"newer":1}', delay_ms=delay_ms, unique=KIND, key="a key")
    return replace(job, nonce="newer")


def _enqueued_by(scene: Scene, lease: Lease) -> Any:
    match lease:
        case Lease.RIGHT:
            return scene.subject
        case Lease.STALE:
            return replace(scene.subject, nonce="another nonce")
        case Lease.OTHER:
            return replace(scene.subject, id="another-id", nonce="another nonce", payload=b"[]")


# Judging it


def _judge(scene: Scene, case: Case, before: Seen, after: Seen, outcome: object, events: list[Event]) -> None:
    at = events[0].at if events else before.at
    found = after.jobs[0]
    wanted = _expected(scene, case, before, at, found)
    if case.move is Move.CLAIM:
        assert isinstance(outcome, Claims)
        _judge_claims(case, before, after, outcome, wanted)
    else:
        assert outcome == wanted.outcome, f"{case}: answered {outcome}, wanted {wanted.outcome}"
    if case.move is Move.HEARTBEAT and found is not None and wanted.record is not None:
        slack = after.at - before.at
        early = (found.deadline or 0) - (wanted.record.deadline or 0)
        assert 0 <= early <= slack, f"{case}: the deadline is off by {early} ms"
        wanted.record = replace(wanted.record, deadline=found.deadline)
    assert found == wanted.record, f"{case}: left {differences(found, wanted.record)}"
    for event in events:
        assert before.at <= event.at <= after.at, f"{case}: the event is of another time"
    assert events == _events(before, wanted, events), f"{case}: the events are {events}"


def _expected(scene: Scene, case: Case, before: Seen, at: int, found: Job | None) -> Expected:
    job = before.jobs[0]
    match case.move:
        case Move.CLAIM:
            return _expected_claim(case, job, at, found)
        case Move.PROMOTE:
            if job is None or refusal(TABLE[Move.PROMOTE], job, now=before.at) is not None:
                return Expected(0, job)
            after = effects.promoted(job)
            return Expected(1, after, [(Move.PROMOTE, job.state, after)])
        case Move.PRUNE:
            if job is None or refusal(TABLE[Move.PRUNE], job, now=before.at) is not None:
                return Expected(0, job)
            return Expected(1, None, removed=Move.PRUNE)
        case Move.UNBLOCK:
            return _expected_unblock(scene, case, job, at)
        case _:
            return _expected_of_one(scene, case, job, before.at, at)


def _expected_of_one(scene: Scene, case: Case, job: Job | None, now: int, at: int) -> Expected:
    """For moves that name their job."""
    token = _token(scene, case) if takes_token(case.move) else None
    if job is None:
        return Expected([Refused(Refusal.MISSING if token is None else Refusal.LOST)], None)
    why = refusal(TABLE[case.move], job, now=now, token=token)
    if why is not None:
        before = repeated(job.settled, token, case.move) if token else None
        return Expected([Refused(why, job.state) if before is None else Applied(before)], job)
    match case.move:
        case Move.HEARTBEAT:
            renewed = effects.renewed(job, now, NEW_LEASE_MS)
            return Expected([Applied(State.ACTIVE, job.cancel_requested)], renewed)
        case Move.PROGRESS:
            after, _ = effects.reported(job, b"0.5", at)
            answer = Applied(State.ACTIVE, job.cancel_requested)
        case Move.EXPIRE:
            after = effects.expired(job, _expiry(scene, case), at)
            answer = Applied(after.state)
        case Move.CANCEL:
            if job.cancel_requested:
                return Expected([Applied(job.state, True)], job)
            after = effects.cancelled(job, at)
            answer = Applied(after.state, after.cancel_requested)
        case Move.REDRIVE:
            after = effects.redriven(job)
            answer = Applied(State.PENDING)
        case Move.DELETE:
            gone = replace(job, version=job.version + 1)
            return Expected([Applied(job.state)], None, [(Move.DELETE, job.state, gone)])
        case _:
            after = effects.settled(job, settlement(case.move, job.id, token or ""), at)
            answer = Applied(after.state)
    return Expected([answer], after, [(case.move, job.state, after)])


def _expected_unblock(scene: Scene, case: Case, job: Job | None, at: int) -> Expected:
    """The subject waits for one more child, and fails with it."""
    if job is None:
        return Expected([Refused(Refusal.MISSING)], None)
    why = refusal(TABLE[Move.UNBLOCK], job, now=at)
    if why is not None or case.lease is not Lease.RIGHT:
        return Expected([Refused(Refusal.STATE, job.state)], job)
    fails = case.target is not State.COMPLETED
    after = effects.unblocked(job, at, fails=fails, child=LAST_CHILD)
    return Expected([Applied(after.state)], after, [(Move.UNBLOCK, job.state, after)])


def _expected_claim(case: Case, job: Job | None, at: int, found: Job | None) -> Expected:
    made: list[tuple[Move, State | None, Job]] = []
    after = job
    if after is not None and refusal(TABLE[Move.PROMOTE], after, now=at) is None:
        source, after = after.state, effects.promoted(after)
        made.append((Move.PROMOTE, source, after))
    is_open = not case.setting.paused
    if after is not None and refusal(TABLE[Move.CLAIM], after, now=at, is_open=is_open) is None:
        # The store makes the token and the fence: what it made is taken over, and judged apart.
        token, fence = (found.token or "", found.fence) if found else ("", 0)
        source, after = (
            after.state,
            effects.claimed(
                after, token=token, worker="new-worker", now=at, now_us=fence, lease_ms=NEW_LEASE_MS
            ),
        )
        made.append((Move.CLAIM, source, after))
    return Expected(None, after, made)


def _judge_claims(case: Case, before: Seen, after: Seen, claims: Claims, wanted: Expected) -> None:
    was, now = before.jobs[0], after.jobs[0]
    claimed = [job for move, _, job in wanted.moves if move is Move.CLAIM]
    assert [each.id for each in claims.jobs] == [job.id for job in claimed], f"{case}: claimed {claims.jobs}"
    for each in claims.jobs:
        assert was is not None
        assert now is not None
        for field in msgspec.structs.fields(each):
            of_record = getattr(now, field.name)
            assert getattr(each, field.name) == of_record, f"{case}: {field.name} is not the record's"
        assert len(each.token) >= 22, f"{case}: the token {each.token} can be guessed"
        assert each.token not in was.settled, f"{case}: the token was used before"
        assert each.fence > was.fence, f"{case}: the fence did not grow"
        assert before.at <= each.fence // 1000 <= after.at, f"{case}: the fence is of another time"
    late = [was.id] if was and was.state is State.ACTIVE and case.setting.late else []
    assert [lease.id for lease in claims.expired] == late, f"{case}: named {claims.expired} as expired"
    for lease in claims.expired:
        for field in msgspec.structs.fields(lease):
            # The key counts where keys take turns, which is not so here.
            of_record = None if field.name == "key" else getattr(was, field.name)
            assert getattr(lease, field.name) == of_record, f"{case}: {field.name} differs"
    _judge_wait(case, before, after, claims)


def _judge_wait(case: Case, before: Seen, after: Seen, claims: Claims) -> None:
    due = [time for job in after.jobs if job for time in (job.deadline, job.visible_at) if time is not None]
    assert claims.wait_ms is not None, f"{case}: a lease is held, and yet there is nothing to wait for"
    low, high = max(0, min(due) - after.at), max(0, min(due) - before.at)
    assert low <= claims.wait_ms <= high, f"{case}: to wait {claims.wait_ms} ms is wrong"


async def _judge_enqueue(
    store: Store,
    scene: Scene,
    case: Case,
    before: Seen,
    after: Seen,
    outcome: object,
    events: list[Event],
) -> None:
    job, new = before.jobs[0], _enqueued_by(scene, case.lease)
    wanted: Enqueued | Refused = Enqueued(new.id, True, State.PENDING)
    is_new = True
    if job is not None and case.lease is Lease.OTHER:
        wanted, is_new = Enqueued(job.id, False, job.state, same_payload=False), False
    elif job is not None:
        same = case.lease is Lease.RIGHT
        wanted = Enqueued(job.id, True, job.state) if same else Refused(Refusal.DUPLICATE, job.state)
        is_new = False
    [record] = await store.reads.get(scene.queue, [new.id])

    assert outcome == [wanted], f"{case}: answered {outcome}, wanted {wanted}"
    if job is not None:
        assert after.jobs[0] == job, f"{case}: changed {differences(after.jobs[0], job)}"
    if is_new:
        reference = effects.enqueued(scene.queue, new, events[0].at)
        assert record == reference, f"{case}: left {differences(record, reference)}"
        assert events == [event_of(reference, Move.ENQUEUE, None, seq=before.newest + 1, at=events[0].at)], (
            f"{case}: the events are {events}"
        )
    else:
        assert events == [], f"{case}: the events are {events}"


async def _judge_replace(
    store: Store,
    scene: Scene,
    case: Case,
    before: Seen,
    after: Seen,
    outcome: object,
    events: list[Event],
) -> None:
    job, new = before.jobs[0], _newer(case)
    [record] = await store.reads.get(scene.queue, [new.id])
    at = events[0].at if events else before.at
    wanted: Enqueued
    made: list[tuple[Move, State | None, Job]] = []
    if job is None or job.state not in WAITING:
        reference = effects.enqueued(scene.queue, new, at)
        wanted = Enqueued(new.id, True, reference.state)
        made = [(Move.ENQUEUE, None, reference)]
        assert record == reference, f"{case}: left {differences(record, reference)}"
        assert after.jobs[0] == job, f"{case}: changed {differences(after.jobs[0], job)}"
    else:
        newer = job
        why = refusal(TABLE[Move.REPLACE], job, now=before.at)
        if why is None:
            newer = effects.replaced(job, new, at)
            made = [(Move.REPLACE, job.state, newer)]
        wanted = Enqueued(job.id, False, newer.state, same_payload=False, replaced=why is None)
        assert record is None, f"{case}: the newer job stands beside the older"
        assert after.jobs[0] == newer, f"{case}: left {differences(after.jobs[0], newer)}"

    assert outcome == [wanted], f"{case}: answered {outcome}, wanted {wanted}"
    assert events == _events(before, Expected(None, None, made), events), f"{case}: the events are {events}"


def _events(before: Seen, wanted: Expected, found: list[Event]) -> list[Event]:
    seqs = range(before.newest + 1, before.newest + 1 + len(wanted.moves))
    at = found[0].at if found else before.at
    if wanted.removed is not None:
        job = before.jobs[0]
        assert job is not None
        many = Event(
            v=EVENT_VERSION,
            tenant=job.tenant,
            queue=job.queue,
            seq=before.newest + 1,
            move=wanted.removed,
            at=at,
            jobs=[job.id],
        )
        return [many]
    deadline = None if before.jobs[0] is None else before.jobs[0].deadline
    return [
        event_of(record, move, source, seq=seq, at=at, deadline=deadline)
        for seq, (move, source, record) in zip(seqs, wanted.moves, strict=True)
    ]


def differences(found: Job | None, wanted: Job | None) -> str:
    """The fields in which two records differ."""
    if found is None or wanted is None:
        return f"{found}, wanted {wanted}"
    return ", ".join(
        f"{name} {getattr(found, name)!r} (wanted {getattr(wanted, name)!r})"
        for name in Job.__struct_fields__
        if getattr(found, name) != getattr(wanted, name)
    )
