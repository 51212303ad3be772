"""Flows as a store keeps them: parents that wait, children that end, and what is carried between queues."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from penstock.core.flows import Child, ChildEnding, ChildPolicy, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat, Bury, Complete, Expire, Fail, Move, Release, Retry
from penstock.core.outcomes import Applied, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Adoption, Spawn
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
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.FLOWS)

X = JobRef("children", "x")
Y = JobRef("children", "y")
PARENT = JobRef("parents", "p")
WRONG_ENDINGS = [State.FAILED, State.DEAD, State.CANCELLED, None]


def ending(child: JobRef, state: State | None = State.COMPLETED, result: bytes | None = None) -> ChildEnding:
    """Word of a child's ending for the parent."""
    return ChildEnding("p", child, state, result)


async def wait_for(store: Store, queue: QueueRef, *children: JobRef, **options: Any) -> None:
    """A parent p that waits for these."""
    [answer] = await store.moves.enqueue(queue, [new_job("p", awaits=children, **options)])

    assert answer == Enqueued("p", True, State.BLOCKED)


async def end(store: Store, queue: QueueRef, *endings: ChildEnding) -> list[Applied | Refused]:
    """Tell the parent."""
    return await store.flows.child_ended(queue, endings)


def _child(what: NewJob | Adoption | ChildEnding) -> str:
    assert isinstance(what, ChildEnding)
    return what.child.id


async def words(store: Store, queue: QueueRef) -> list[tuple[str, object]]:
    """What waits to be carried over from the queue."""
    return [(relay.queue, relay.what) for relay in await store.flows.list_relay_entries(queue)]


# Parents


async def test_a_parent_waits_for_its_children(store: Store, queue: QueueRef) -> None:
    """Blocked, not claimable, with what it waits for in the order it was named."""
    await wait_for(store, queue, Y, X)
    record = await record_of(store, queue, "p")
    [event] = await store.events.read_events(queue)

    assert record.state is State.BLOCKED
    assert event.target is State.BLOCKED
    assert await claim(store, queue) == []
    assert await store.moves.promote(queue) == 0
    assert await store.flows.children(queue, "p") == [Child(Y), Child(X)]
    assert (await store.reads.counts(queue))[State.BLOCKED] == 1


async def test_a_job_without_children_has_none(store: Store, queue: QueueRef) -> None:
    """Nor does one that is not there."""
    await enqueue(store, queue, [new_job("a")])

    assert await store.flows.children(queue, "a") == []
    assert await store.flows.children(queue, "nobody") == []
    assert await store.flows.children(QueueRef(queue.tenant, "nowhere"), "a") == []


async def test_the_last_ending_unblocks_the_parent(store: Store, queue: QueueRef) -> None:
    """With an event, to the back of the line."""
    await wait_for(store, queue, X, Y)
    first = await end(store, queue, ending(X))
    await enqueue(store, queue, [new_job("before")])
    last = await end(store, queue, ending(Y))
    event = (await store.events.read_events(queue))[-1]

    assert first == [Applied(State.BLOCKED)]
    assert last == [Applied(State.PENDING)]
    assert (event.move, event.source, event.target, event.version) == (
        Move.UNBLOCK,
        State.BLOCKED,
        State.PENDING,
        2,
    )
    assert await store.events.event_range(queue) == (1, 3)
    assert [job.id for job in await claim(store, queue)] == ["before", "p"]


async def test_endings_of_one_call_are_taken_in_turn(store: Store, queue: QueueRef) -> None:
    """The last of them unblocks; what comes after finds a parent that waits no longer."""
    await wait_for(store, queue, X, Y)
    answers = await end(store, queue, ending(X), ending(X), ending(Y), ending(Y))

    assert answers == [
        Applied(State.BLOCKED),
        Refused(Refusal.STATE, State.BLOCKED),
        Applied(State.PENDING),
        Refused(Refusal.STATE, State.PENDING),
    ]


async def test_an_ending_told_twice_changes_nothing(store: Store, queue: QueueRef) -> None:
    """Not even with another outcome; it counted already."""
    await wait_for(store, queue, X, Y)
    await end(store, queue, ending(X, State.COMPLETED, b"1"))
    before = await record_of(store, queue, "p")
    again = await end(store, queue, ending(X, State.COMPLETED, b"1"), ending(X, State.DEAD))

    assert again == [Refused(Refusal.STATE, State.BLOCKED)] * 2
    assert await record_of(store, queue, "p") == before
    assert await store.flows.children(queue, "p") == [Child(X, True, State.COMPLETED, b"1"), Child(Y)]


async def test_the_ending_of_a_stranger_changes_nothing(store: Store, queue: QueueRef) -> None:
    """The same id in another queue is a stranger; a parent that is not there is missing."""
    await wait_for(store, queue, X)
    strangers = [ending(Y), ending(JobRef("elsewhere", "x")), ending(X)]
    answers = await end(store, queue, *strangers[:2], ChildEnding("nobody", X, State.COMPLETED))

    assert answers == [
        Refused(Refusal.STATE, State.BLOCKED),
        Refused(Refusal.STATE, State.BLOCKED),
        Refused(Refusal.MISSING),
    ]
    assert await store.flows.children(queue, "p") == [Child(X)]


async def test_an_ending_after_the_parent_ended_changes_nothing(store: Store, queue: QueueRef) -> None:
    """It was cancelled, or failed with another child; also after a redrive."""
    await wait_for(store, queue, X, Y)
    await store.moves.cancel(queue, ["p"])
    cancelled = await end(store, queue, ending(X), ending(Y))
    await store.moves.redrive(queue, ["p"])
    redriven = await end(store, queue, ending(X), ending(Y))

    assert cancelled == [Refused(Refusal.STATE, State.CANCELLED)] * 2
    assert redriven == [Refused(Refusal.STATE, State.PENDING)] * 2
    assert [job.id for job in await claim(store, queue)] == ["p"]


@pytest.mark.parametrize("how", ["delay", "run_at", "run_at in the past"])
async def test_the_wait_of_a_parent_begins_when_it_is_unblocked(
    store: Store, queue: QueueRef, how: str
) -> None:
    """A delay is counted from then; a time to run at stays the same, and may be over."""
    start = await store.clock.now()
    if how == "delay":
        await wait_for(store, queue, X, delay_ms=30_000)
    else:
        await wait_for(store, queue, X, run_at=start + (90_000 if how == "run_at" else 20_000))
    blocked = await record_of(store, queue, "p")
    await store.clock.advance_clock(60_000)
    [answer] = await end(store, queue, ending(X))
    record = await record_of(store, queue, "p")
    event = (await store.events.read_events(queue))[-1]

    assert blocked.visible_at is None
    if how == "run_at in the past":
        assert answer == Applied(State.PENDING)
        assert record.visible_at is None
    else:
        assert answer == Applied(State.DELAYED)
        expected = event.at + 30_000 if how == "delay" else start + 90_000
        assert record.visible_at == event.visible_at == expected
        await store.clock.advance_clock(30_000)
        assert [job.id for job in await claim(store, queue)] == ["p"]


# Policies


@pytest.mark.parametrize("state", WRONG_ENDINGS, ids=str)
async def test_a_parent_fails_with_its_child(store: Store, queue: QueueRef, state: State | None) -> None:
    """At once, without waiting for the others, and never runs."""
    await wait_for(store, queue, X, Y)
    answers = await end(store, queue, ending(X, state), ending(Y))
    record = await record_of(store, queue, "p")
    event = (await store.events.read_events(queue))[-1]

    assert answers == [Applied(State.FAILED), Refused(Refusal.STATE, State.FAILED)]
    assert (record.state, record.reason) == (State.FAILED, "CHILD_FAILED")
    assert "children/x" in (record.error or "")
    assert record.ended_at == event.at
    assert (event.move, event.target, event.reason, event.error) == (
        Move.UNBLOCK,
        State.FAILED,
        "CHILD_FAILED",
        record.error,
    )
    assert await claim(store, queue) == []


@pytest.mark.parametrize("state", WRONG_ENDINGS, ids=str)
async def test_a_parent_that_ignores_endings_counts_them_all(
    store: Store, queue: QueueRef, state: State | None
) -> None:
    """And can see how each child ended."""
    await wait_for(store, queue, X, Y, child_policy=ChildPolicy.IGNORE)
    answers = await end(store, queue, ending(X, state), ending(Y, State.COMPLETED, b"2"))

    assert answers == [Applied(State.BLOCKED), Applied(State.PENDING)]
    assert await store.flows.children(queue, "p") == [
        Child(X, True, state, None),
        Child(Y, True, State.COMPLETED, b"2"),
    ]


async def test_a_parent_does_not_wait_for_a_child_that_is_gone(store: Store, queue: QueueRef) -> None:
    """Nobody can redrive it."""
    await wait_for(store, queue, X, Y, child_policy=ChildPolicy.WAIT)

    assert await end(store, queue, ending(X, None)) == [Applied(State.FAILED)]


@pytest.mark.parametrize("state", [each for each in WRONG_ENDINGS if each is not None], ids=str)
async def test_a_parent_may_wait_for_the_redrive_of_its_child(
    store: Store, queue: QueueRef, state: State
) -> None:
    """It knows how the child ended, and goes on when it ended well."""
    await wait_for(store, queue, X, Y, child_policy=ChildPolicy.WAIT)
    first = await end(store, queue, ending(X, state), ending(Y))
    children = await store.flows.children(queue, "p")
    again = await end(store, queue, ending(X, State.DEAD), ending(X, State.COMPLETED, b"1"))

    assert first == [Applied(State.BLOCKED), Applied(State.BLOCKED)]
    assert children == [Child(X, False, state, None), Child(Y, True, State.COMPLETED, None)]
    assert again == [Applied(State.BLOCKED), Applied(State.PENDING)]
    assert (await store.flows.children(queue, "p"))[0] == Child(X, True, State.COMPLETED, b"1")


async def test_results_stay_readable_while_the_parent_runs_and_after(store: Store, queue: QueueRef) -> None:
    """Until its record goes."""
    await wait_for(store, queue, X, Y)
    await end(store, queue, ending(X, State.COMPLETED, b'{"big":[1,2]}'), ending(Y))
    results = [Child(X, True, State.COMPLETED, b'{"big":[1,2]}'), Child(Y, True, State.COMPLETED, None)]
    held = await claim_one(store, queue)
    running = await store.flows.children(queue, "p")
    await settle(store, queue, Complete("p", held.token))
    ended = await store.flows.children(queue, "p")
    await store.moves.delete(queue, ["p"])

    assert running == ended == results
    assert await store.flows.children(queue, "p") == []


# Children

Ending = Callable[[Store, QueueRef], Awaitable[None]]


async def _complete(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("c", held.token, b'"done"'))


async def _fail(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await settle(store, queue, Fail("c", held.token, FAULT))


async def _bury(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await settle(store, queue, Bury("c", held.token, FAULT))


async def _expire(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await store.clock.advance_clock(LEASE_MS)
    await store.moves.expire(queue, [Expire("c", held.token, State.DEAD, FAULT)])


async def _cancel(store: Store, queue: QueueRef) -> None:
    await store.moves.cancel(queue, ["c"])


async def _cancel_while_delayed(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await settle(store, queue, Retry("c", held.token, 9_000, FAULT))
    await store.moves.cancel(queue, ["c"])


async def _cancel_while_running(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await store.moves.cancel(queue, ["c"])
    await settle(store, queue, Release("c", held.token))


async def _expire_when_cancelled(store: Store, queue: QueueRef) -> None:
    held = await claim_one(store, queue)
    await store.moves.cancel(queue, ["c"])
    await store.clock.advance_clock(LEASE_MS)
    await store.moves.expire(queue, [Expire("c", held.token, State.DELAYED, FAULT, 5)])


async def _delete(store: Store, queue: QueueRef) -> None:
    await store.moves.delete(queue, ["c"])


ENDINGS: list[tuple[Ending, State | None]] = [
    (_complete, State.COMPLETED),
    (_fail, State.FAILED),
    (_bury, State.DEAD),
    (_expire, State.DEAD),
    (_cancel, State.CANCELLED),
    (_cancel_while_delayed, State.CANCELLED),
    (_cancel_while_running, State.CANCELLED),
    (_expire_when_cancelled, State.CANCELLED),
    (_delete, None),
]


@pytest.mark.parametrize(
    ("ends", "state"), ENDINGS, ids=[ends.__name__.strip("_").replace("_", " ") for ends, _ in ENDINGS]
)
async def test_every_ending_of_a_child_leaves_word_for_its_parents(
    store: Store, queue: QueueRef, ends: Ending, state: State | None
) -> None:
    """For each of them once, in the same operation."""
    parents = [PARENT, JobRef("q", "other")]
    await enqueue(store, queue, [new_job("c", parents=parents), new_job("no-parents", priority=1)])
    await ends(store, queue)
    result = b'"done"' if state is State.COMPLETED else None
    child = JobRef(queue.name, "c")

    assert await words(store, queue) == [
        (parent.queue, ChildEnding(parent.id, child, state, result)) for parent in parents
    ]


async def test_the_cancel_of_a_blocked_child_leaves_word(store: Store, queue: QueueRef) -> None:
    """It is a parent itself."""
    await wait_for(store, queue, X, parents=[PARENT])
    await store.moves.cancel(queue, ["p"])

    assert await words(store, queue) == [("parents", ChildEnding("p", JobRef("q", "p"), State.CANCELLED))]


async def test_the_deletion_of_a_blocked_child_leaves_word(store: Store, queue: QueueRef) -> None:
    """As nobody else would tell."""
    await wait_for(store, queue, X, parents=[PARENT])
    await store.moves.delete(queue, ["p"])

    assert await words(store, queue) == [("parents", ChildEnding("p", JobRef("q", "p"), None))]


async def test_a_parent_that_fails_with_its_child_leaves_word_for_its_own(
    store: Store, queue: QueueRef
) -> None:
    """So that a failure goes up the whole flow."""
    await wait_for(store, queue, X, parents=[PARENT])
    await end(store, queue, ending(X, State.DEAD))

    assert await words(store, queue) == [("parents", ChildEnding("p", JobRef("q", "p"), State.FAILED))]


async def test_a_job_that_goes_on_leaves_no_word(store: Store, queue: QueueRef) -> None:
    """A retry, a release, a request to cancel: none of them is an ending."""
    await enqueue(store, queue, [new_job("c", parents=[PARENT])])
    held = await claim_one(store, queue)
    await store.moves.cancel(queue, ["c"])
    await store.moves.heartbeat(queue, [Beat("c", held.token)], LEASE_MS)
    await store.moves.settle(queue, [Complete("c", "stale")])

    assert held.parents == (PARENT,)
    assert await words(store, queue) == []


async def test_an_ended_child_is_not_told_again_when_its_record_goes(store: Store, queue: QueueRef) -> None:
    """By deletion, by pruning, or by a settlement that is repeated."""
    await enqueue(store, queue, [new_job(name, parents=[PARENT]) for name in ("c", "d")])
    c, d = await claim(store, queue)
    said = [Complete("c", c.token), Complete("d", d.token)]
    await store.moves.settle(queue, said)
    told = await words(store, queue)
    await store.moves.settle(queue, said)
    await store.moves.delete(queue, ["c"])
    await store.clock.advance_clock(100_000_000)
    await store.moves.prune(queue)

    assert len(told) == 2
    assert await words(store, queue) == told
    assert await states_of(store, queue, ["c", "d"]) == [None, None]


@pytest.mark.parametrize("goes", ["deleted", "pruned"])
async def test_word_is_left_when_a_child_that_failed_goes(store: Store, queue: QueueRef, goes: str) -> None:
    """A parent may wait for its redrive, which can no longer come."""
    await enqueue(store, queue, [new_job("c", parents=[PARENT])])
    held = await claim_one(store, queue)
    await settle(store, queue, Fail("c", held.token, FAULT))
    await store.clock.advance_clock(100_000_000)
    await (store.moves.delete(queue, ["c"]) if goes == "deleted" else store.moves.prune(queue))

    child = JobRef(queue.name, "c")
    told = [ChildEnding(PARENT.id, child, state) for state in (State.FAILED, None)]
    assert await words(store, queue) == [(PARENT.queue, each) for each in told]


async def test_a_redriven_child_leaves_word_again(store: Store, queue: QueueRef) -> None:
    """A parent that waits for it goes on; one that does not refuses the word."""
    await enqueue(store, queue, [new_job("c", parents=[PARENT])])
    await _bury(store, queue)
    await store.moves.redrive(queue, ["c"])
    await _complete(store, queue)
    child = JobRef("q", "c")

    assert await words(store, queue) == [
        ("parents", ChildEnding("p", child, State.DEAD)),
        ("parents", ChildEnding("p", child, State.COMPLETED, b'"done"')),
    ]


async def test_parents_are_kept_with_the_record_and_named_in_the_event(store: Store, queue: QueueRef) -> None:
    """The first of them."""
    await enqueue(store, queue, [new_job("c", parents=[PARENT, X])])
    [event] = await store.events.read_events(queue)

    assert (await record_of(store, queue, "c")).parents == (PARENT, X)
    assert event.parent == "parents/p"


# Carrying over


async def test_words_are_carried_oldest_first_and_forgotten_by_number(store: Store, queue: QueueRef) -> None:
    """Forgetting one twice, or one that is not there, changes nothing."""
    names = [f"c{n}" for n in range(5)]
    await enqueue(store, queue, [new_job(name, parents=[PARENT]) for name in names])
    await store.moves.cancel(queue, [names[3], names[0]])
    await store.moves.cancel(queue, [names[4]])
    relays = await store.flows.list_relay_entries(queue)
    first = await store.flows.list_relay_entries(queue, 1)
    await store.flows.delete_relay_entries(queue, [relays[1].number])
    await store.flows.delete_relay_entries(queue, [relays[1].number, 10_000_000])
    await store.moves.cancel(queue, [names[1]])
    rest = await store.flows.list_relay_entries(queue)

    assert [_child(relay.what) for relay in relays] == ["c3", "c0", "c4"]
    assert [relay.number for relay in relays] == sorted({relay.number for relay in relays})
    assert first == relays[:1]
    assert [_child(relay.what) for relay in rest] == ["c3", "c4", "c1"]
    assert rest[-1].number > relays[-1].number
    assert await store.flows.list_relay_entries(QueueRef(queue.tenant, "nowhere")) == []


async def test_numbers_are_not_given_twice_after_all_words_were_carried(
    store: Store, queue: QueueRef
) -> None:
    """Someone slow may still be about to forget an old one."""
    await enqueue(store, queue, [new_job(name, parents=[PARENT]) for name in ("a", "b")])
    await store.moves.cancel(queue, ["a"])
    [first] = await store.flows.list_relay_entries(queue)
    await store.flows.delete_relay_entries(queue, [first.number])
    await store.moves.cancel(queue, ["b"])
    [second] = await store.flows.list_relay_entries(queue)

    assert second.number > first.number


async def test_spawns_are_taken_in_with_the_jobs(store: Store, queue: QueueRef) -> None:
    """As entries for the other queues, in order, with all their fields."""
    child = new_job("x", parents=[JobRef("q", "p")], delay_ms=5, idempotency_key="i", key="k")
    spawns = [Spawn("children", child), Spawn("others", new_job("y", awaits=[X]))]
    answers = await store.moves.enqueue(queue, [new_job("p", awaits=[X])], spawns)

    assert answers == [Enqueued("p", True, State.BLOCKED)]
    assert await words(store, queue) == [("children", child), ("others", spawns[1].job)]


async def test_a_repeated_call_spawns_nothing_again(store: Store, queue: QueueRef) -> None:
    """Whether its entries wait to be carried or were carried already."""
    job, spawns = new_job("p", awaits=[X]), [Spawn("children", new_job("x"))]
    await store.moves.enqueue(queue, [job], spawns)
    again = await store.moves.enqueue(queue, [job], spawns)
    [relay] = await store.flows.list_relay_entries(queue)
    await store.flows.delete_relay_entries(queue, [relay.number])
    last = await store.moves.enqueue(queue, [job], spawns)

    assert again == last == [Enqueued("p", True, State.BLOCKED)]
    assert await words(store, queue) == []


async def test_a_call_that_took_nothing_in_spawns_nothing(store: Store, queue: QueueRef) -> None:
    """The id was another job's, or the idempotency key was held."""
    await enqueue(store, queue, [new_job("p", idempotency_key="i")])
    taken = await store.moves.enqueue(queue, [new_job("p")], [Spawn("children", new_job("x"))])
    held = await store.moves.enqueue(
        queue, [new_job("r", idempotency_key="i")], [Spawn("children", new_job("x"))]
    )

    assert taken == [Refused(Refusal.DUPLICATE, State.PENDING)]
    assert held == [Enqueued("p", False, State.PENDING)]
    assert await words(store, queue) == []


async def test_more_children_are_adopted_while_the_parent_waits(store: Store, queue: QueueRef) -> None:
    """Once each, behind those it has; a child that ended stays ended."""
    await wait_for(store, queue, X)
    adopted = await store.flows.adopt(queue, [Adoption("p", (Y, X))])
    await end(store, queue, ending(X))
    again = await store.flows.adopt(queue, [Adoption("p", (X, Y))])
    children = await store.flows.children(queue, "p")
    [last] = await end(store, queue, ending(Y))
    late = await store.flows.adopt(
        queue, [Adoption("p", (JobRef("children", "z"),)), Adoption("nobody", (X,))]
    )

    assert adopted == again == [Applied(State.BLOCKED)]
    assert children == [Child(X, True, State.COMPLETED), Child(Y)]
    assert last == Applied(State.PENDING)
    assert late == [Refused(Refusal.STATE, State.PENDING), Refused(Refusal.MISSING)]
    assert len(await store.flows.children(queue, "p")) == 2


async def test_a_running_job_adds_children_for_its_parents(store: Store, queue: QueueRef) -> None:
    """These hear of them before the children can start, and before it can end itself."""
    await enqueue(store, queue, [new_job("c", parents=[PARENT, JobRef("q", "other")])])
    held = await claim_one(store, queue)
    jobs = [new_job(name, parents=[PARENT]) for name in ("x", "y")]
    answer = await store.flows.spawn(
        queue, Beat("c", held.token), [Spawn("children", jobs[0]), Spawn("q", jobs[1])]
    )
    await settle(store, queue, Complete("c", held.token))
    children = (JobRef("children", "x"), JobRef("q", "y"))
    done = [("parents", ChildEnding("p", JobRef("q", "c"), State.COMPLETED))]
    done.append(("q", ChildEnding("other", JobRef("q", "c"), State.COMPLETED)))

    assert answer == Applied(State.ACTIVE)
    assert await words(store, queue) == [
        ("parents", Adoption("p", children)),
        ("q", Adoption("other", children)),
        ("children", jobs[0]),
        ("q", jobs[1]),
        *done,
    ]


async def test_a_stale_lease_adds_no_children(store: Store, queue: QueueRef) -> None:
    """Nothing is written; a request to cancel is told."""
    await enqueue(store, queue, [new_job("c", parents=[PARENT])])
    old = await claim_one(store, queue)
    await settle(store, queue, Release("c", old.token))
    new = await claim_one(store, queue)
    await store.moves.cancel(queue, ["c"])
    spawns = [Spawn("children", new_job("x"))]
    stale = await store.flows.spawn(queue, Beat("c", old.token), spawns)
    missing = await store.flows.spawn(queue, Beat("nobody", old.token), spawns)
    nothing = await words(store, queue)
    asked = await store.flows.spawn(queue, Beat("c", new.token), spawns)

    assert stale == Refused(Refusal.LOST, State.ACTIVE)
    assert missing == Refused(Refusal.LOST)
    assert nothing == []
    assert asked == Applied(State.ACTIVE, cancel_requested=True)


# Whole flows


async def carry(store: Store, tenant: str, names: Sequence[str], *, twice: bool = False) -> None:
    """Carry over until nothing waits, as the duty does; `twice` as two processes do at once."""
    while True:
        carried = 0
        for name in names:
            queue = QueueRef(tenant, name)
            relays = await store.flows.list_relay_entries(queue)
            for relay in [*relays, *(relays if twice else ())]:
                await _apply(store, QueueRef(tenant, relay.queue), relay.what)
            await store.flows.delete_relay_entries(queue, [relay.number for relay in relays])
            carried += len(relays)
        if not carried:
            return


async def _apply(store: Store, queue: QueueRef, what: NewJob | Adoption | ChildEnding) -> None:
    match what:
        case NewJob():
            await store.moves.enqueue(queue, [what])
        case Adoption():
            await store.flows.adopt(queue, [what])
        case ChildEnding():
            await store.flows.child_ended(queue, [what])


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
async def test_a_flow_over_three_queues_runs_from_its_leaves_to_its_root(
    store: Store, queue: QueueRef, twice: bool
) -> None:
    """Whether every entry is carried over once or twice."""
    tenant, names = queue.tenant, ["top", "middle", "leaves"]
    top, middle, leaves = (QueueRef(tenant, name) for name in names)
    root, left, right = JobRef("top", "root"), JobRef("middle", "left"), JobRef("middle", "right")
    leaf = JobRef("leaves", "leaf")
    await store.moves.enqueue(
        top,
        [new_job("root", awaits=[left, right])],
        [
            Spawn("middle", new_job("left", awaits=[leaf], parents=[root])),
            Spawn("middle", new_job("right", awaits=[leaf], parents=[root])),
            Spawn("leaves", new_job("leaf", parents=[left, right])),
        ],
    )
    order: list[str] = []
    for where in (leaves, middle, top):
        await carry(store, tenant, names, twice=twice)
        jobs = await claim(store, where)
        order += [job.id for job in jobs]
        await store.moves.settle(where, [Complete(job.id, job.token, job.id.encode()) for job in jobs])
    await carry(store, tenant, names, twice=twice)

    assert order == ["leaf", "left", "right", "root"]
    assert await store.flows.children(top, "root") == [
        Child(left, True, State.COMPLETED, b"left"),
        Child(right, True, State.COMPLETED, b"right"),
    ]
    assert await claim(store, leaves) == []


async def test_a_failure_goes_up_to_the_root(store: Store, queue: QueueRef) -> None:
    """Each parent fails with its child; the root's other child is left alone."""
    tenant, names = queue.tenant, ["top", "middle"]
    top, middle = (QueueRef(tenant, name) for name in names)
    root, inner = JobRef("top", "root"), JobRef("middle", "inner")
    other, leaf = JobRef("middle", "other"), JobRef("middle", "leaf")
    await store.moves.enqueue(
        top,
        [new_job("root", awaits=[inner, other])],
        [
            Spawn("middle", new_job("leaf", parents=[inner])),
            Spawn("middle", new_job("inner", awaits=[leaf], parents=[root])),
            Spawn("middle", new_job("other", parents=[root])),
        ],
    )
    await carry(store, tenant, names)
    [held, _] = await claim(store, middle)
    await settle(store, middle, Bury("leaf", held.token, FAULT))
    await carry(store, tenant, names)

    assert await states_of(store, middle, ["leaf", "inner", "other"]) == [
        State.DEAD,
        State.FAILED,
        State.ACTIVE,
    ]
    assert await states_of(store, top, ["root"]) == [State.FAILED]


async def test_a_child_of_the_same_queue_is_carried_as_any_other(store: Store, queue: QueueRef) -> None:
    """Parent and children may share a queue and a call."""
    parent, child = JobRef("q", "p"), JobRef("q", "c")
    await store.moves.enqueue(queue, [new_job("p", awaits=[child]), new_job("c", parents=[parent])])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("c", held.token))
    before = await claim(store, queue)
    await carry(store, queue.tenant, ["q"])

    assert before == []
    assert [job.id for job in await claim(store, queue)] == ["p"]


async def test_children_added_while_running_hold_the_parent_back(store: Store, queue: QueueRef) -> None:
    """However early the job that added them ends."""
    parent, child = JobRef("q", "p"), JobRef("work", "c")
    work = QueueRef(queue.tenant, "work")
    spawned = Spawn("work", new_job("c", parents=[parent]))
    await store.moves.enqueue(queue, [new_job("p", awaits=[child])], [spawned])
    await carry(store, queue.tenant, ["q", "work"])
    held = await claim_one(store, work)
    more = Spawn("work", new_job("d", parents=[parent]))
    await store.flows.spawn(work, Beat("c", held.token), [more])
    await settle(store, work, Complete("c", held.token))
    await carry(store, queue.tenant, ["q", "work"], twice=True)
    waits = await states_of(store, queue, ["p"])
    held = await claim_one(store, work)
    await settle(store, work, Complete("d", held.token))
    await carry(store, queue.tenant, ["q", "work"])

    assert waits == [State.BLOCKED]
    assert await states_of(store, queue, ["p"]) == [State.PENDING]
