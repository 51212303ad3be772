"""Calls that carry many items: outcomes come per item and in order, also when a job is named twice."""

from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Bury, Complete, Expire, Fail, Move, Release, Report, Retry, Snooze
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim,
    claim_one,
    enqueue,
    new_job,
    record_of,
    settle,
    states_of,
)

LOST = Refused(Refusal.LOST)
MISSING = Refused(Refusal.MISSING)


async def test_settlements_of_every_kind_share_a_call(store: Store, queue: QueueRef) -> None:
    """Each is judged by itself."""
    names = ["complete", "fail", "retry", "bury", "snooze", "release", "stale"]
    await enqueue(store, queue, [new_job(name) for name in names])
    token = {job.id: job.token for job in await claim(store, queue)}
    outcomes = await store.moves.settle(
        queue,
        [
            Release("release", token["release"]),
            Complete("complete", token["complete"], b"1"),
            Complete("stale", token["complete"], b"1"),
            Bury("bury", token["bury"], FAULT),
            Complete("nobody", "t"),
            Retry("retry", token["retry"], 5, FAULT),
            Snooze("snooze", token["snooze"], 6),
            Fail("fail", token["fail"], FAULT),
        ],
    )

    assert outcomes == [
        Applied(State.PENDING),
        Applied(State.COMPLETED),
        Refused(Refusal.LOST, State.ACTIVE),
        Applied(State.DEAD),
        LOST,
        Applied(State.DELAYED),
        Applied(State.DELAYED),
        Applied(State.FAILED),
    ]


async def test_a_settlement_twice_in_one_call_gets_one_answer_twice(store: Store, queue: QueueRef) -> None:
    """And is made once."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    a, b = await claim(store, queue)
    outcomes = await store.moves.settle(
        queue,
        [
            Retry("a", a.token, 50_000, FAULT),
            Complete("b", b.token),
            Retry("a", a.token, 50_000, FAULT),
            Complete("b", b.token),
        ],
    )
    events = await store.events.read_events(queue, after=4)

    assert outcomes == [Applied(State.DELAYED), Applied(State.COMPLETED)] * 2
    assert sorted(event.move for event in events) == [Move.COMPLETE, Move.RETRY]
    assert (await record_of(store, queue, "a")).attempts == 1


async def test_the_first_of_two_settlements_in_one_call_wins(store: Store, queue: QueueRef) -> None:
    """Whichever moves they are."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    a, b = await claim(store, queue)
    outcomes = await store.moves.settle(
        queue,
        [Release("a", a.token), Complete("a", a.token), Complete("b", b.token), Release("b", b.token)],
    )

    assert outcomes == [
        Applied(State.PENDING),
        Refused(Refusal.LOST, State.PENDING),
        Applied(State.COMPLETED),
        Refused(Refusal.LOST, State.COMPLETED),
    ]


async def test_a_part_of_a_token_is_no_token(store: Store, queue: QueueRef) -> None:
    """Neither for a lease that is held nor for a settlement that was made."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)
    parts = ["", held.token[:-1], held.token[1:], held.token + "0", held.token.upper() + " "]
    before = await store.moves.settle(queue, [Release("a", part) for part in parts])
    await settle(store, queue, Release("a", held.token))
    after = await store.moves.settle(queue, [Release("a", part) for part in parts])

    assert before == [Refused(Refusal.LOST, State.ACTIVE)] * len(parts)
    assert after == [Refused(Refusal.LOST, State.PENDING)] * len(parts)


async def test_many_settlements_of_one_job_are_remembered(store: Store, queue: QueueRef) -> None:
    """The newest two dozen, which is more than any reply takes to get lost."""
    await enqueue(store, queue, [new_job("a")])
    tokens = []
    for _ in range(60):
        held = await claim_one(store, queue)
        await settle(store, queue, Release("a", held.token))
        tokens.append(held.token)
    again = await store.moves.settle(queue, [Release("a", token) for token in tokens[-24:]])

    assert again == [Applied(State.PENDING)] * 24
    assert len((await record_of(store, queue, "a")).settled) <= 2_000


async def test_a_job_named_twice_is_cancelled_once(store: Store, queue: QueueRef) -> None:
    """In order, with the others between."""
    await enqueue(store, queue, [new_job("a"), new_job("b", delay_ms=5_000)])
    outcomes = await store.moves.cancel(queue, ["a", "nobody", "b", "a"])

    assert outcomes == [
        Applied(State.CANCELLED),
        MISSING,
        Applied(State.CANCELLED),
        Refused(Refusal.STATE, State.CANCELLED),
    ]


async def test_a_job_named_twice_is_redriven_once(store: Store, queue: QueueRef) -> None:
    """The second finds it pending."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await store.moves.cancel(queue, ["a"])
    outcomes = await store.moves.redrive(queue, ["b", "a", "nobody", "a"])

    assert outcomes == [
        Refused(Refusal.STATE, State.PENDING),
        Applied(State.PENDING),
        MISSING,
        Refused(Refusal.STATE, State.PENDING),
    ]
    assert (await record_of(store, queue, "a")).drive == 2


async def test_a_job_named_twice_is_deleted_once(store: Store, queue: QueueRef) -> None:
    """The second finds nothing; one that runs is left alone."""
    await enqueue(store, queue, [new_job("runs"), new_job("a"), new_job("b")])
    await claim_one(store, queue)
    outcomes = await store.moves.delete(queue, ["a", "a", "runs", "nobody", "b", "runs"])

    assert outcomes == [
        Applied(State.PENDING),
        MISSING,
        Refused(Refusal.STATE, State.ACTIVE),
        MISSING,
        Applied(State.PENDING),
        Refused(Refusal.STATE, State.ACTIVE),
    ]
    assert await states_of(store, queue, ["a", "b", "runs"]) == [None, None, State.ACTIVE]


async def test_a_deletion_has_one_event_also_when_a_job_is_named_twice(store: Store, queue: QueueRef) -> None:
    """It names each of them once."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await store.moves.delete(queue, ["a", "a", "b"])
    [event] = await store.events.read_events(queue, after=2)

    assert event.jobs == ["a", "b"]


async def test_heartbeats_are_answered_one_by_one(store: Store, queue: QueueRef) -> None:
    """Lost ones between good ones, and one job twice."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    a, b = await claim(store, queue)
    await store.moves.cancel(queue, ["b"])
    outcomes = await store.moves.heartbeat(
        queue, [Beat("a", a.token), Beat("b", a.token), Beat("nobody", "t"), Beat("b", b.token)], LEASE_MS
    )
    twice = await store.moves.heartbeat(queue, [Beat("a", a.token), Beat("a", a.token)], LEASE_MS)

    assert outcomes == [
        Applied(State.ACTIVE),
        Refused(Refusal.LOST, State.ACTIVE),
        LOST,
        Applied(State.ACTIVE, True),
    ]
    assert twice == [Applied(State.ACTIVE)] * 2


async def test_the_last_progress_of_a_call_is_kept(store: Store, queue: QueueRef) -> None:
    """With one event for all of them."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)
    outcomes = await store.moves.progress(queue, [Report("a", held.token, str(n).encode()) for n in range(3)])
    events = await store.events.read_events(queue, after=2)

    assert outcomes == [Applied(State.ACTIVE)] * 3
    assert (await record_of(store, queue, "a")).progress == b"2"
    assert [event.move for event in events] == [Move.PROGRESS]


async def test_expiries_to_several_states_share_a_call(store: Store, queue: QueueRef) -> None:
    """With a lost one and one that still holds among them."""
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c")])
    a, b = await claim(store, queue, 2, 1_000)
    c = await claim_one(store, queue, 60_000)
    await store.clock.advance_clock(1_000)
    outcomes = await store.moves.expire(
        queue,
        [
            Expire("b", b.token, State.DEAD, FAULT),
            Expire("c", c.token, State.DEAD, FAULT),
            Expire("nobody", "t", State.DEAD, FAULT),
            Expire("a", a.token, State.DELAYED, FAULT, 10),
            Expire("a", a.token, State.DEAD, FAULT),
        ],
    )

    assert outcomes == [
        Applied(State.DEAD),
        Refused(Refusal.LOST, State.ACTIVE),
        LOST,
        Applied(State.DELAYED),
        Refused(Refusal.LOST, State.DELAYED),
    ]


async def test_a_thousand_jobs_go_through_in_one_call_each(store: Store, queue: QueueRef) -> None:
    """The size of a chunk is nothing special to a store."""
    ids = await enqueue(store, queue, [new_job() for _ in range(1_000)])
    claimed = await claim(store, queue, 1_000)
    beaten = await store.moves.heartbeat(queue, [Beat(job.id, job.token) for job in claimed], LEASE_MS)
    settled = await store.moves.settle(queue, [Complete(job.id, job.token, b"1") for job in claimed])

    assert [job.id for job in claimed] == ids
    assert beaten == [Applied(State.ACTIVE)] * 1_000
    assert settled == [Applied(State.COMPLETED)] * 1_000
    assert (await store.reads.counts(queue))[State.COMPLETED] == 1_000
    assert await store.events.event_range(queue) == (1, 3_000)
