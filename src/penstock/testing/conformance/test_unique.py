"""Jobs that are one of a kind: while they wait, while they live, within a window, or the newest only."""

import pytest

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import Options, QueueRef
from penstock.core.moves import Complete, Fail, Move, Release, Retry
from penstock.core.outcomes import Enqueued
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import FAULT, claim, claim_one, enqueue, new_job, record_of, settle
from penstock.testing.conformance.parts import Part, needs
from penstock.testing.conformance.readiness import CHILD

pytestmark = needs(Part.FLOWS, Part.UNIQUE)

WINDOW_MS = 60_000
WAITING = Unique("kind", UniqueRule.WAITING)
LIVE = Unique("kind", UniqueRule.LIVE)
THROTTLE = Unique("kind", UniqueRule.THROTTLE, WINDOW_MS)
DEBOUNCE = Unique("kind", UniqueRule.DEBOUNCE)


async def ask(
    store: Store, queue: QueueRef, unique: Unique, name: str = "b", payload: bytes = b"2"
) -> object:
    """Hand in another of the kind; the answer."""
    [answer] = await store.moves.enqueue(queue, [new_job(name, payload=payload, unique=unique)])
    return answer


@pytest.mark.parametrize("rule", [WAITING, LIVE, THROTTLE], ids=lambda each: each.rule)
async def test_another_of_the_kind_gets_the_job_that_is_there(
    store: Store, queue: QueueRef, rule: Unique
) -> None:
    """It is told whether that is the same work, and nothing is written."""
    await enqueue(store, queue, [new_job("a", payload=b"1", unique=rule)])
    other = await ask(store, queue, rule)
    same = await ask(store, queue, rule, "c", b"1")

    assert other == Enqueued("a", False, State.PENDING, same_payload=False)
    assert same == Enqueued("a", False, State.PENDING)
    assert await store.events.event_range(queue) == (1, 1)
    assert (await record_of(store, queue, "a")).unique == rule


@pytest.mark.parametrize("rule", [WAITING, LIVE, THROTTLE, DEBOUNCE], ids=lambda each: each.rule)
async def test_other_kinds_and_other_queues_are_free(store: Store, queue: QueueRef, rule: Unique) -> None:
    """A kind is one queue's own."""
    await enqueue(store, queue, [new_job("a", unique=rule)])
    other = Unique("another kind", rule.rule, rule.window_ms)
    elsewhere = QueueRef(queue.tenant, "elsewhere")

    assert await ask(store, queue, other) == Enqueued("b", True, State.PENDING)
    assert await ask(store, elsewhere, rule) == Enqueued("b", True, State.PENDING)


@pytest.mark.parametrize("delay_ms", [0, 5_000], ids=["pending", "delayed"])
async def test_a_waiting_job_keeps_others_away_until_it_starts(
    store: Store, queue: QueueRef, delay_ms: int
) -> None:
    """Then the next may wait."""
    await enqueue(store, queue, [new_job("a", unique=WAITING, delay_ms=delay_ms)])
    kept = await ask(store, queue, WAITING)
    await store.clock.advance_clock(delay_ms)
    await claim_one(store, queue)
    free = await ask(store, queue, WAITING)

    assert isinstance(kept, Enqueued)
    assert (kept.id, kept.created) == ("a", False)
    assert free == Enqueued("b", True, State.PENDING)
    assert await ask(store, queue, WAITING, "c") == Enqueued("b", False, State.PENDING)


async def test_a_blocked_job_waits_too(store: Store, queue: QueueRef) -> None:
    """By every rule but a window that is over."""
    await enqueue(store, queue, [new_job("a", unique=WAITING, awaits=[CHILD])])

    for rule in (WAITING, LIVE, DEBOUNCE):
        assert await ask(store, queue, rule) == Enqueued("a", False, State.BLOCKED, same_payload=False)
    assert await store.events.event_range(queue) == (1, 1)


async def test_a_job_that_comes_back_to_wait_keeps_others_away_again(store: Store, queue: QueueRef) -> None:
    """After a retry or a release; unless another took its place meanwhile."""
    await enqueue(store, queue, [new_job("a", unique=WAITING)])
    held = await claim_one(store, queue)
    await settle(store, queue, Release("a", held.token))
    kept = await ask(store, queue, WAITING)
    held = await claim_one(store, queue)
    taken = await ask(store, queue, WAITING)
    await settle(store, queue, Retry("a", held.token, 1_000, FAULT))

    assert kept == Enqueued("a", False, State.PENDING, same_payload=False)
    assert taken == Enqueued("b", True, State.PENDING)
    assert await ask(store, queue, WAITING, "c") == Enqueued("b", False, State.PENDING)


async def test_a_live_job_keeps_others_away_until_it_ends(store: Store, queue: QueueRef) -> None:
    """While it waits, runs, and waits for its retry."""
    await enqueue(store, queue, [new_job("a", unique=LIVE)])
    answers = [await ask(store, queue, LIVE)]
    held = await claim_one(store, queue)
    answers.append(await ask(store, queue, LIVE))
    await settle(store, queue, Retry("a", held.token, 1_000, FAULT))
    answers.append(await ask(store, queue, LIVE))
    await store.clock.advance_clock(1_000)
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))

    states = [State.PENDING, State.ACTIVE, State.DELAYED]
    assert answers == [Enqueued("a", False, state, same_payload=False) for state in states]
    assert await ask(store, queue, LIVE) == Enqueued("b", True, State.PENDING)


@pytest.mark.parametrize("how", ["fail", "cancel", "delete"])
@pytest.mark.parametrize("rule", [WAITING, LIVE, DEBOUNCE], ids=lambda each: each.rule)
async def test_a_kind_is_free_once_its_job_ended_or_went(
    store: Store, queue: QueueRef, rule: Unique, how: str
) -> None:
    """However it did."""
    await enqueue(store, queue, [new_job("a", unique=rule)])
    if how == "fail":
        held = await claim_one(store, queue)
        await settle(store, queue, Fail("a", held.token, FAULT))
    elif how == "cancel":
        await store.moves.cancel(queue, ["a"])
    else:
        await store.moves.delete(queue, ["a"])

    assert await ask(store, queue, rule) == Enqueued("b", True, State.PENDING)


async def test_a_redriven_job_keeps_others_away_again(store: Store, queue: QueueRef) -> None:
    """As long as no other took its place."""
    await enqueue(store, queue, [new_job("a", unique=LIVE)])
    await store.moves.cancel(queue, ["a"])
    await store.moves.redrive(queue, ["a"])

    assert await ask(store, queue, LIVE) == Enqueued("a", False, State.PENDING, same_payload=False)


async def test_an_id_that_another_job_took_over_keeps_nobody_away(store: Store, queue: QueueRef) -> None:
    """The job that was one of its kind is gone; the one of its name now is not of the kind."""
    await enqueue(store, queue, [new_job("a", unique=LIVE)])
    await store.moves.delete(queue, ["a"])
    await enqueue(store, queue, [new_job("a")])

    assert await ask(store, queue, LIVE) == Enqueued("b", True, State.PENDING)


# Throttle


async def test_one_job_per_window_whatever_becomes_of_it(store: Store, queue: QueueRef) -> None:
    """The window begins with its enqueue."""
    await enqueue(store, queue, [new_job("a", unique=THROTTLE)])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))
    await store.clock.advance_clock(WINDOW_MS - 10_000)
    within = await ask(store, queue, THROTTLE)
    await store.clock.advance_clock(10_000)
    after = await ask(store, queue, THROTTLE)
    again = await ask(store, queue, THROTTLE, "c")

    assert within == Enqueued("a", False, State.COMPLETED, same_payload=False)
    assert after == Enqueued("b", True, State.PENDING)
    assert again == Enqueued("b", False, State.PENDING)


async def test_a_late_job_does_not_hold_a_window_that_is_over(store: Store, queue: QueueRef) -> None:
    """Even while it still waits."""
    await enqueue(store, queue, [new_job("a", unique=THROTTLE, delay_ms=10 * WINDOW_MS)])
    await store.clock.advance_clock(WINDOW_MS)

    assert await ask(store, queue, THROTTLE) == Enqueued("b", True, State.PENDING)


@pytest.mark.parametrize("how", ["prune", "delete"])
async def test_a_window_outlasts_the_record_of_its_job(store: Store, queue: QueueRef, how: str) -> None:
    """There is no state to tell then."""
    await enqueue(store, queue, [new_job("a", unique=THROTTLE, options=Options(retention_ms=1_000))])
    if how == "prune":
        await store.moves.cancel(queue, ["a"])
        await store.clock.advance_clock(1_000)
        assert await store.moves.prune(queue) == 1
    else:
        await store.moves.delete(queue, ["a"])
    gone = await ask(store, queue, THROTTLE)
    await store.clock.advance_clock(WINDOW_MS)
    await store.moves.prune(queue)

    assert gone == Enqueued("a", False, None, same_payload=False)
    assert await ask(store, queue, THROTTLE) == Enqueued("b", True, State.PENDING)


# Debounce


async def test_the_newest_work_replaces_the_older(store: Store, queue: QueueRef) -> None:
    """In the same job, with an event, and the wait begins again."""
    await enqueue(store, queue, [new_job("a", payload=b"1", unique=DEBOUNCE, delay_ms=10_000)])
    before = await record_of(store, queue, "a")
    await store.clock.advance_clock(6_000)
    newer = new_job("b", payload=b"2", unique=DEBOUNCE, delay_ms=10_000)
    answers = await store.moves.enqueue(queue, [newer])
    after = await record_of(store, queue, "a")
    [_, event] = await store.events.read_events(queue)
    await store.clock.advance_clock(6_000)
    early = await claim(store, queue)
    await store.clock.advance_clock(4_000)
    [claimed] = await claim(store, queue)

    assert answers == [Enqueued("a", False, State.DELAYED, same_payload=False, replaced=True)]
    assert (event.move, event.source, event.target) == (Move.REPLACE, State.DELAYED, State.DELAYED)
    assert (event.version, event.visible_at) == (2, after.visible_at)
    assert (after.visible_at or 0) >= (before.visible_at or 0) + 6_000
    assert after.enqueued_at == before.enqueued_at
    assert early == []
    assert (claimed.id, claimed.payload) == ("a", b"2")
    assert await store.reads.get(queue, ["b"]) == [None]


async def test_a_replaced_job_goes_to_the_back_of_the_line(store: Store, queue: QueueRef) -> None:
    """It is the newest by its work."""
    await enqueue(store, queue, [new_job("a", unique=DEBOUNCE), new_job("b"), new_job("c")])
    await ask(store, queue, DEBOUNCE, "d")

    assert [job.id for job in await claim(store, queue)] == ["b", "c", "a"]


async def test_a_time_to_run_at_is_replaced_too(store: Store, queue: QueueRef) -> None:
    """From pending to delayed, and back to pending when that time is over."""
    now = await store.clock.now()
    await enqueue(store, queue, [new_job("a", unique=DEBOUNCE)])
    await store.moves.enqueue(queue, [new_job("b", unique=DEBOUNCE, run_at=now + 90_000)])
    later = await record_of(store, queue, "a")
    await store.moves.enqueue(queue, [new_job("c", unique=DEBOUNCE, run_at=now - 1)])
    at_once = await record_of(store, queue, "a")

    assert (later.state, later.visible_at) == (State.DELAYED, now + 90_000)
    assert (at_once.state, at_once.visible_at) == (State.PENDING, None)
    assert [job.id for job in await claim(store, queue)] == ["a"]


async def test_work_that_started_is_not_replaced(store: Store, queue: QueueRef) -> None:
    """The newer then gets a job of its own, and is debounced in turn."""
    await enqueue(store, queue, [new_job("a", payload=b"1", unique=DEBOUNCE)])
    await claim_one(store, queue)
    started = await ask(store, queue, DEBOUNCE, "b", b"2")
    newest = await ask(store, queue, DEBOUNCE, "c", b"3")

    assert started == Enqueued("b", True, State.PENDING)
    assert newest == Enqueued("b", False, State.PENDING, same_payload=False, replaced=True)
    assert [(job.id, job.payload) for job in await claim(store, queue)] == [("b", b"3")]


async def test_only_payload_and_time_are_replaced(store: Store, queue: QueueRef) -> None:
    """Priority, options and the rest stay the older job's."""
    options = Options(max_attempts=9)
    await enqueue(store, queue, [new_job("a", unique=DEBOUNCE, priority=8, options=options)])
    before = await record_of(store, queue, "a")
    await store.moves.enqueue(queue, [new_job("b", unique=DEBOUNCE, priority=1, idempotency_key="i")])
    after = await record_of(store, queue, "a")

    assert (after.priority, after.options, after.nonce) == (8, options, before.nonce)
    assert after.idempotency_key is None


# Together


async def test_a_batch_is_one_of_a_kind_in_itself(store: Store, queue: QueueRef) -> None:
    """The second finds the first."""
    jobs = [
        new_job(name, payload=name.encode(), unique=unique)
        for name, unique in (
            ("a", LIVE),
            ("b", LIVE),
            ("c", Unique("d", UniqueRule.DEBOUNCE)),
            ("d", Unique("d", UniqueRule.DEBOUNCE)),
        )
    ]
    answers = await store.moves.enqueue(queue, jobs)

    assert answers == [
        Enqueued("a", True, State.PENDING),
        Enqueued("a", False, State.PENDING, same_payload=False),
        Enqueued("c", True, State.PENDING),
        Enqueued("c", False, State.PENDING, same_payload=False, replaced=True),
    ]
    assert [job.payload for job in await claim(store, queue)] == [b"a", b"d"]


async def test_the_same_job_again_is_that_job_and_not_another_of_its_kind(
    store: Store, queue: QueueRef
) -> None:
    """A repeated call is answered as the first was; nothing is replaced."""
    job = new_job("a", unique=DEBOUNCE)
    answers = [*await store.moves.enqueue(queue, [job]), *await store.moves.enqueue(queue, [job, job])]

    assert answers == [Enqueued("a", True, State.PENDING)] * 3
    assert await store.events.event_range(queue) == (1, 1)


@pytest.mark.parametrize("rule", [WAITING, LIVE, THROTTLE, DEBOUNCE], ids=lambda each: each.rule)
async def test_an_idempotency_key_comes_before_the_kind(store: Store, queue: QueueRef, rule: Unique) -> None:
    """Who repeats a call gets its job, though another of the kind is there by now."""
    await enqueue(store, queue, [new_job("a", payload=b"1", unique=rule, idempotency_key="i")])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))
    await store.clock.advance_clock(WINDOW_MS)
    await enqueue(store, queue, [new_job("b", unique=rule)])
    repeat = new_job("c", payload=b"1", unique=rule, idempotency_key="i")

    assert await store.moves.enqueue(queue, [repeat]) == [Enqueued("a", False, State.COMPLETED)]


async def test_a_job_that_was_kept_away_leaves_its_idempotency_key_free(
    store: Store, queue: QueueRef
) -> None:
    """No job stands for it."""
    await enqueue(store, queue, [new_job("a", unique=LIVE)])
    kept = new_job("b", unique=LIVE, idempotency_key="i")
    first = await store.moves.enqueue(queue, [kept])
    await store.moves.cancel(queue, ["a"])
    again = await store.moves.enqueue(queue, [kept])

    assert first == [Enqueued("a", False, State.PENDING)]
    assert again == [Enqueued("b", True, State.PENDING)]


async def test_the_rule_of_who_comes_decides(store: Store, queue: QueueRef) -> None:
    """Rules may differ on one kind: each asks in its own way about the job that is there."""
    await enqueue(store, queue, [new_job("a", payload=b"1", unique=WAITING)])
    await claim_one(store, queue)
    live = await ask(store, queue, LIVE)
    throttled = await ask(store, queue, THROTTLE)
    await store.clock.advance_clock(WINDOW_MS)
    waiting = await ask(store, queue, WAITING)
    debounced = await ask(store, queue, DEBOUNCE, "c", b"3")

    assert live == throttled == Enqueued("a", False, State.ACTIVE, same_payload=False)
    assert waiting == Enqueued("b", True, State.PENDING)
    assert debounced == Enqueued("b", False, State.PENDING, same_payload=False, replaced=True)


@pytest.mark.parametrize("key", ["", "nul\0and\nline", '"quoted" \\ and \\u0000', "🐢"])
async def test_a_kind_may_be_named_by_any_text(store: Store, queue: QueueRef, key: str) -> None:
    """Also that of a child, which leaves word for its parent."""
    unique, parent = Unique(key, UniqueRule.LIVE), JobRef("parents", "p")
    await enqueue(store, queue, [new_job("a", unique=unique, parents=[parent])])
    answer = await ask(store, queue, unique)
    record = await record_of(store, queue, "a")
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))
    [relay] = await store.flows.list_relay_entries(queue)

    assert answer == Enqueued("a", False, State.PENDING, False)
    assert record.unique == unique
    assert relay.what == ChildEnding("p", JobRef(queue.name, "a"), State.COMPLETED)


async def test_a_window_outlasts_the_window_before_it(store: Store, queue: QueueRef) -> None:
    """Pruning what is left of the first one does not forget the second."""
    unique = Unique("k", UniqueRule.THROTTLE, 3_000)
    options = Options(retention_ms=200)
    for name in ("a", "b"):
        await enqueue(store, queue, [new_job(name, unique=unique, options=options)])
        job = await claim_one(store, queue)
        await settle(store, queue, Complete(job.id, job.token))
        await store.clock.advance_clock(300)
        await store.moves.prune(queue)
        [kept] = await store.moves.enqueue(queue, [new_job(f"{name}-again", unique=unique)])
        assert kept == Enqueued(name, False, None, False)
        await store.clock.advance_clock(3_000)
