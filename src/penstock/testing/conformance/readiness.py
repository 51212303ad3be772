"""Every way in which a key comes to have waiting jobs or a free slot, or loses them: one path for each."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.moves import Bury, Expire, Move
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.stores.values import Pause, Query
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, claim_one, enqueue, new_job, settle
from penstock.testing.conformance.judge import settlement

Path = Callable[[Store, QueueRef], Awaitable[None]]
KIND: Final = Unique("kind", UniqueRule.DEBOUNCE)
CHILD: Final = JobRef("other", "child")
LATER_MS: Final = 40_000
PAUSE: Final = Pause(0, "for a while")


async def judge(store: Store, queue: QueueRef, path: Path) -> None:
    """Walk a path on a queue with one slot per key; then exactly the keys that could run are served."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await path(store, queue)
    assert await store.health.check(queue) == []
    await judge_ready(store, queue)


async def judge_ready(
    store: Store, queue: QueueRef, limit: int = 1, limits: Mapping[str, int] | None = None
) -> list[str]:
    """Claim all there is: of each key as many as wait and have a slot, and no more. The jobs claimed."""
    now = await store.clock.now()
    jobs = (await store.reads.find(queue, Query(limit=10_000))).jobs
    due = [job for job in jobs if job.state is State.DELAYED and (job.visible_at or 0) <= now]
    waiting = Counter(job.key for job in [*due, *(job for job in jobs if job.state is State.PENDING)])
    active = Counter(job.key for job in jobs if job.state is State.ACTIVE)
    slots = {key: (limits or {}).get(key or "", limit) - active[key] for key in waiting}
    wanted = {key: min(count, slots[key]) for key, count in waiting.items() if slots[key] > 0}
    infos = {info.key: (info.waiting, info.active) for info in await store.queues.list_keys(queue)}
    taken = await claim(store, queue)
    found = Counter(job.key for job in taken)

    assert found == wanted, f"served {dict(found)}, wanted {wanted}"
    for key in {*waiting, *active} - {job.key for job in due}:
        assert infos[key or ""] == (waiting[key], active[key]), f"{key} has {infos}"
    assert await claim(store, queue) == [], "a key without a free slot was served"
    return [job.id for job in taken]


# Paths. The key a is the one that changes; b comes after it and has to be served whatever becomes of a.


async def _enqueued(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a"), new_job("a-2", key="a"), new_job("b-1", key="b")])


async def _enqueued_to_wait(store: Store, queue: QueueRef) -> None:
    jobs = [new_job("a-1", key="a", delay_ms=LATER_MS), new_job("a-2", key="a", awaits=[CHILD])]
    await enqueue(store, queue, [*jobs, new_job("b-1", key="b")])


async def _enqueued_while_full(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a")])
    await claim_one(store, queue)
    await _enqueue_b(store, queue, new_job("a-2", key="a").id)


async def _promoted(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a", delay_ms=1_000)])
    await store.clock.advance_clock(1_000)
    await store.moves.promote(queue)
    await _enqueue_b(store, queue)


async def _promoted_by_the_claim(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a", delay_ms=1_000), new_job("b-1", key="b")])
    await store.clock.advance_clock(1_000)


async def _unblocked(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a", awaits=[CHILD])])
    await store.flows.child_ended(queue, [ChildEnding("a-1", CHILD, State.COMPLETED)])
    await _enqueue_b(store, queue)


async def _unblocked_to_fail(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a", awaits=[CHILD]), new_job("a-2", key="a")])
    await store.flows.child_ended(queue, [ChildEnding("a-1", CHILD, State.DEAD)])
    await _enqueue_b(store, queue)


async def _claimed(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    await claim_one(store, queue)


async def _claimed_to_the_last(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a")])
    await claim_one(store, queue)
    await _enqueue_b(store, queue)


def _settled(move: Move, *, cancel: bool = False, more: bool = True) -> Path:
    """A job of key a is settled, while another of it waits or none does."""

    async def path(store: Store, queue: QueueRef) -> None:
        await enqueue(store, queue, [new_job(f"a-{n}", key="a") for n in range(2 if more else 1)])
        held = await claim_one(store, queue)
        if cancel:
            await store.moves.cancel(queue, [held.id])
        await settle(store, queue, settlement(move, held.id, held.token))
        await _enqueue_b(store, queue)

    path.__name__ = f"_settled_by_{move}{'_when_cancelled' if cancel else ''}{'' if more else '_alone'}"
    return path


def _expired(target: State, *, cancel: bool = False, more: bool = True) -> Path:
    """A lease of key a runs out, while another job of it waits or none does."""

    async def path(store: Store, queue: QueueRef) -> None:
        await enqueue(store, queue, [new_job(f"a-{n}", key="a") for n in range(2 if more else 1)])
        held = await claim_one(store, queue)
        if cancel:
            await store.moves.cancel(queue, [held.id])
        await store.clock.advance_clock(LEASE_MS)
        await store.moves.expire(queue, [Expire(held.id, held.token, target, FAULT, LATER_MS)])
        await _enqueue_b(store, queue)

    path.__name__ = f"_expired_to_{target}{'_when_cancelled' if cancel else ''}{'' if more else '_alone'}"
    return path


async def _cancelled(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    await store.moves.cancel(queue, ["a-1", "a-2"])


async def _cancelled_one_of_two(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    await store.moves.cancel(queue, ["a-1"])


async def _cancelled_while_running(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    held = await claim_one(store, queue)
    await store.moves.cancel(queue, [held.id])


async def _replaced_to_later(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a", unique=KIND), new_job("b-1", key="b")])
    await enqueue(store, queue, [new_job("a-2", key="a", unique=KIND, delay_ms=LATER_MS)])


async def _replaced_to_now(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a", unique=KIND, delay_ms=LATER_MS)])
    await enqueue(store, queue, [new_job("a-2", key="a", unique=KIND)])
    await _enqueue_b(store, queue)


async def _redriven(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a-1", key="a")])
    held = await claim_one(store, queue)
    await settle(store, queue, Bury(held.id, held.token, FAULT))
    await store.moves.redrive(queue, [held.id])
    await _enqueue_b(store, queue)


async def _redriven_while_full(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    await store.moves.cancel(queue, ["a-2"])
    await claim_one(store, queue)
    await store.moves.redrive(queue, ["a-2"])


async def _deleted(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    await store.moves.delete(queue, ["a-1", "a-2"])


async def _deleted_one_of_two(store: Store, queue: QueueRef) -> None:
    await _enqueued(store, queue)
    await store.moves.delete(queue, ["a-1"])


async def _enqueue_b(store: Store, queue: QueueRef, *more_of_a: str) -> None:
    await enqueue(store, queue, [*(new_job(name, key="a") for name in more_of_a), new_job("b-1", key="b")])


def _settlings(move: Move) -> tuple[Path, ...]:
    return (
        _settled(move),
        _settled(move, more=False),
        _settled(move, cancel=True),
        _settled(move, cancel=True, more=False),
    )


PATHS: Final[dict[Move, tuple[Path, ...]]] = {
    Move.ENQUEUE: (_enqueued, _enqueued_to_wait, _enqueued_while_full),
    Move.PROMOTE: (_promoted, _promoted_by_the_claim),
    Move.UNBLOCK: (_unblocked, _unblocked_to_fail),
    Move.CLAIM: (_claimed, _claimed_to_the_last),
    Move.COMPLETE: _settlings(Move.COMPLETE),
    Move.FAIL: _settlings(Move.FAIL),
    Move.RETRY: _settlings(Move.RETRY),
    Move.BURY: _settlings(Move.BURY),
    Move.SNOOZE: _settlings(Move.SNOOZE),
    Move.RELEASE: _settlings(Move.RELEASE),
    Move.EXPIRE: (
        *(_expired(target) for target in (State.PENDING, State.DELAYED, State.DEAD)),
        _expired(State.PENDING, more=False),
        _expired(State.PENDING, cancel=True),
        _expired(State.DEAD, cancel=True, more=False),
    ),
    Move.CANCEL: (_cancelled, _cancelled_one_of_two, _cancelled_while_running),
    Move.REPLACE: (_replaced_to_later, _replaced_to_now),
    Move.REDRIVE: (_redriven, _redriven_while_full),
    Move.DELETE: (_deleted, _deleted_one_of_two),
}
"""The paths of every move whose row says that keys are looked at again."""


# What changes keys without being a move.


async def declared_with_more_slots(store: Store, queue: QueueRef) -> None:
    """A higher version of the declaration; every key gets a second slot."""
    await _claimed(store, queue)
    await store.queues.declare(queue, Declaration(version=2, mode=Mode.KEYED, key_limit=2))


async def declared_with_fewer_slots(store: Store, queue: QueueRef) -> None:
    """From three slots to one, while two jobs of a key run and three wait."""
    await store.queues.declare(queue, Declaration(version=2, mode=Mode.KEYED, key_limit=3))
    await enqueue(store, queue, [new_job(f"a-{n}", key="a") for n in range(5)])
    await claim(store, queue, 2)
    await store.queues.declare(queue, Declaration(version=3, mode=Mode.KEYED, key_limit=1))
    await _enqueue_b(store, queue)


async def given_a_limit_of_its_own(store: Store, queue: QueueRef) -> None:
    """Two more jobs of the key may run at once."""
    await enqueue(store, queue, [new_job(f"a-{n}", key="a") for n in range(5)])
    await claim_one(store, queue)
    await store.queues.set_key_rule(queue, "a", KeyRule(limit=3))
    await _enqueue_b(store, queue)


async def limited_below_what_runs(store: Store, queue: QueueRef) -> None:
    """Nothing of the key is served until enough of it has ended."""
    await given_a_limit_of_its_own(store, queue)
    await claim(store, queue)
    await store.queues.set_key_rule(queue, "a", KeyRule(limit=2))
