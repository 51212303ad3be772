"""Keys that take turns: limits per key, order, fairness, rates, and readiness on every path."""

from collections import Counter
from itertools import pairwise

import pytest

from penstock.core.errors import DeclarationError, OptionError
from penstock.core.job import Claimed, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate
from penstock.core.moves import Complete, Expire, Move, Release, Retry
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo
from penstock.testing.conformance import readiness
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, claim_one, enqueue, new_job, settle
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.KEYS, Part.LIMITS)

KEYED = Declaration(mode=Mode.KEYED)
DYNAMIC = Declaration(mode=Mode.DYNAMIC)


async def fill(store: Store, queue: QueueRef, **counts: int) -> None:
    """Enqueue so many jobs for each key, key after key: a-0, a-1 …"""
    jobs = [new_job(f"{key}-{n}", key=key) for key, count in counts.items() for n in range(count)]
    for start in range(0, len(jobs), 500):
        await enqueue(store, queue, jobs[start : start + 500])


async def serve(store: Store, queue: QueueRef, limit: int, times: int) -> list[str]:
    """Claim and complete, so often; the keys in the order they were served."""
    served: list[str] = []
    for _ in range(times):
        jobs = await claim(store, queue, limit)
        served += [job.key or "" for job in jobs]
        await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])
    return served


# Declaring


async def test_a_declaration_is_written_where_there_is_none(store: Store, queue: QueueRef) -> None:
    """And they are stored with the queue."""
    wanted = Declaration(mode=Mode.KEYED, key_limit=3, rate=Rate(5), key_rate=Rate(2, 500, 4), max_length=9)
    declared = await store.queues.declare(queue, wanted)
    found = await store.queues.find_queue(queue)

    assert declared == found == await store.queues.open_queue(queue)
    assert found is not None
    assert found.declaration == wanted
    assert found.mode is Mode.KEYED
    assert await store.queues.list_queues(queue.tenant) == [found]


async def test_a_queue_without_a_declaration_is_global(store: Store, queue: QueueRef) -> None:
    """Keys of its jobs then mean nothing."""
    info = await store.queues.open_queue(queue)
    await fill(store, queue, a=3)

    assert info.declaration is None
    assert info.mode is Mode.GLOBAL
    assert len(await claim(store, queue)) == 3
    assert await store.queues.list_keys(queue) == []


async def test_an_equal_declaration_is_fine(store: Store, queue: QueueRef) -> None:
    """However often it is made, and while jobs run."""
    first = await store.queues.declare(queue, KEYED)
    await fill(store, queue, a=2)
    await claim(store, queue)

    assert await store.queues.declare(queue, KEYED) == first


async def test_a_higher_version_replaces_the_limits(store: Store, queue: QueueRef) -> None:
    """Of a queue with live jobs as well."""
    await store.queues.declare(queue, KEYED)
    await fill(store, queue, a=5)
    newer = Declaration(version=7, mode=Mode.KEYED, key_limit=4)
    info = await store.queues.declare(queue, newer)

    assert info.declaration == newer
    assert len(await claim(store, queue)) == 4


async def test_the_same_version_with_other_content_is_refused(store: Store, queue: QueueRef) -> None:
    """The message says what both hold."""
    await store.queues.declare(queue, KEYED)
    with pytest.raises(DeclarationError, match="other content"):
        await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=2))
    found = await store.queues.find_queue(queue)

    assert found is not None
    assert found.declaration == KEYED


async def test_a_lower_version_is_an_older_deployment_and_changes_nothing(
    store: Store, queue: QueueRef
) -> None:
    """It is told what is stored."""
    newer = Declaration(version=3, mode=Mode.KEYED, key_limit=2)
    await store.queues.declare(queue, newer)
    info = await store.queues.declare(queue, Declaration(version=2, mode=Mode.KEYED, key_limit=5))

    assert info.declaration == newer


async def test_a_lower_version_of_another_mode_is_refused(store: Store, queue: QueueRef) -> None:
    """It would work on a queue that it does not understand."""
    await store.queues.declare(queue, Declaration(version=3, mode=Mode.KEYED))

    with pytest.raises(DeclarationError, match="keyed"):
        await store.queues.declare(queue, Declaration(version=2))


@pytest.mark.parametrize("state", ["pending", "delayed", "blocked", "active"])
async def test_the_mode_changes_only_without_live_jobs(store: Store, queue: QueueRef, state: str) -> None:
    """Whatever state they live in."""
    delay_ms = 5_000 if state == "delayed" else 0
    awaits = [readiness.CHILD] if state == "blocked" else []
    await enqueue(store, queue, [new_job("a", delay_ms=delay_ms, awaits=awaits)])
    held = await claim(store, queue) if state == "active" else []
    with pytest.raises(DeclarationError, match="live jobs"):
        await store.queues.declare(queue, KEYED)
    before = await store.queues.find_queue(queue)
    if held:
        await settle(store, queue, Complete("a", held[0].token))
    else:
        await store.moves.cancel(queue, ["a"])
    after = await store.queues.declare(queue, KEYED)

    assert before is not None
    assert before.declaration is None
    assert after.mode is Mode.KEYED


async def test_a_queue_goes_through_all_modes_while_it_is_empty(store: Store, queue: QueueRef) -> None:
    """Jobs of each are served by its own rules."""
    served: list[int] = []
    for version, mode in enumerate([Mode.KEYED, Mode.GLOBAL, Mode.DYNAMIC, Mode.KEYED, Mode.GLOBAL], 1):
        await store.queues.declare(queue, Declaration(version=version, mode=mode))
        await enqueue(store, queue, [new_job(f"{version}-{n}", key="a") for n in range(3)])
        served.append(len(jobs := await claim(store, queue)))
        await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])
        await store.moves.cancel(queue, [f"{version}-{n}" for n in range(3)])

    assert served == [1, 3, 1, 1, 3]


async def test_a_limit_of_a_key_does_not_outlive_the_mode_that_has_such(
    store: Store, queue: QueueRef
) -> None:
    """A keyed queue has one limit for all keys."""
    await store.queues.declare(queue, DYNAMIC)
    await store.queues.set_key_rule(queue, "a", KeyRule(limit=3))
    await store.queues.declare(queue, Declaration(version=2, mode=Mode.KEYED))
    await fill(store, queue, a=3)
    keyed = await claim(store, queue)

    assert len(keyed) == 1
    assert [info.limit for info in await store.queues.list_keys(queue)] == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        Declaration(version=0),
        Declaration(key_limit=2),
        Declaration(key_rate=Rate(1)),
        Declaration(mode=Mode.KEYED, key_limit=0),
        Declaration(max_active=0),
        Declaration(max_length=0),
        Declaration(rate=Rate(0)),
        Declaration(rate=Rate(1, burst=0)),
    ],
    ids=str,
)
async def test_a_declaration_that_cannot_be_is_refused(
    store: Store, queue: QueueRef, wrong: Declaration
) -> None:
    """Before anything is written."""
    with pytest.raises(OptionError):
        await store.queues.declare(queue, wrong)
    found = await store.queues.find_queue(queue)

    assert found is None or found.declaration is None


@pytest.mark.parametrize("mode", [Mode.KEYED, Mode.DYNAMIC], ids=str)
async def test_a_job_without_a_key_is_refused(store: Store, queue: QueueRef, mode: Mode) -> None:
    """The others of its batch are not; an empty key is a key."""
    await store.queues.declare(queue, Declaration(mode=mode))
    answers = await store.moves.enqueue(queue, [new_job("a", key="k"), new_job("b"), new_job("c", key="")])

    assert answers == [
        Enqueued("a", True, State.PENDING),
        Refused(Refusal.KEYLESS),
        Enqueued("c", True, State.PENDING),
    ]
    assert [job.id for job in await claim(store, queue)] == ["a", "c"]
    assert await store.reads.get(queue, ["b"]) == [None]


async def test_a_job_without_a_key_from_before_is_not_redriven(store: Store, queue: QueueRef) -> None:
    """It could never be served; it stays where it is."""
    await enqueue(store, queue, [new_job("a")])
    await store.moves.cancel(queue, ["a"])
    await store.queues.declare(queue, KEYED)
    answers = await store.moves.redrive(queue, ["a"])

    assert answers == [Refused(Refusal.KEYLESS, State.CANCELLED)]
    assert (await store.reads.counts(queue))[State.CANCELLED] == 1


# Limits and order


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_at_most_so_many_of_a_key_run_at_once(store: Store, queue: QueueRef, limit: int) -> None:
    """However often and however much is claimed."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=limit))
    await fill(store, queue, a=8, b=2, c=8)
    held = [*await claim(store, queue, 3), *await claim(store, queue), *await claim(store, queue)]

    assert Counter(job.key for job in held) == {"a": limit, "b": min(limit, 2), "c": limit}
    assert await store.queues.list_keys(queue) == [
        KeyInfo("a", 8 - limit, limit, limit, 1),
        *([KeyInfo("b", 2 - min(limit, 2), min(limit, 2), limit, 1)]),
        KeyInfo("c", 8 - limit, limit, limit, 1),
    ]


async def test_jobs_of_a_key_come_in_order(store: Store, queue: QueueRef) -> None:
    """Whatever their ids and priorities; keyed queues have no tiers."""
    await store.queues.declare(queue, KEYED)
    names = ["c", "a", "b", "z", "0"]
    await enqueue(store, queue, [new_job(name, key="k", priority=n) for n, name in enumerate(names)])
    served = []
    for _ in names:
        job = await claim_one(store, queue)
        served.append(job.id)
        await settle(store, queue, Complete(job.id, job.token))

    assert served == names


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_keys_take_turns(store: Store, queue: QueueRef, limit: int) -> None:
    """However long the line of one of them is."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=100))
    await fill(store, queue, a=30, b=3, c=3)
    served = await serve(store, queue, limit, 12 // min(limit, 12))

    assert served[:9] == ["a", "b", "c"] * 3
    assert set(served[9:]) == {"a"}


async def test_a_key_with_one_slot_gives_its_turn_away(store: Store, queue: QueueRef) -> None:
    """The workers go on with the others."""
    await store.queues.declare(queue, KEYED)
    await fill(store, queue, a=3, b=1)
    first = await claim(store, queue, 2)
    await fill(store, queue, c=1)
    second = await claim(store, queue, 2)

    assert [job.id for job in first + second] == ["a-0", "b-0", "c-0"]


@pytest.mark.parametrize("limit", [1, 50])
async def test_weights_are_kept_in_proportion(store: Store, queue: QueueRef, limit: int) -> None:
    """Three to one, over any stretch of claims."""
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC, key_limit=100))
    await store.queues.set_key_rule(queue, "heavy", KeyRule(weight=3))
    await fill(store, queue, heavy=400, light=400)
    served = await serve(store, queue, limit, 400 // limit)

    assert Counter(served) == {"heavy": 300, "light": 100}
    for start in range(0, 400, 40):
        assert abs(served[start : start + 40].count("heavy") - 30) <= 1


async def test_claims_of_many_serve_as_claims_of_one_do(store: Store, queue: QueueRef) -> None:
    """In the same order, with weights, limits and keys of different lengths."""
    orders: list[list[str]] = []
    for size in (1, 3, 7, 100):
        each = QueueRef(queue.tenant, f"in-{size}")
        await store.queues.declare(each, Declaration(mode=Mode.DYNAMIC, key_limit=6))
        for key, rule in {"a": KeyRule(weight=5), "c": KeyRule(2, 2), "d": KeyRule(limit=9)}.items():
            await store.queues.set_key_rule(each, key, rule)
        await fill(store, each, a=9, b=5, c=7, d=12, e=1)
        order: list[str] = []
        while jobs := await claim(store, each, size):
            order += [job.id for job in jobs]
            assert len(order) == len(set(order)), "what runs already is claimed again"
        orders.append(order)

    assert orders[0] == orders[1] == orders[2] == orders[3]
    assert Counter(name[0] for name in orders[0]) == {"a": 6, "b": 5, "c": 2, "d": 9, "e": 1}


async def test_a_key_that_becomes_ready_joins_behind_the_one_served_last(
    store: Store, queue: QueueRef
) -> None:
    """It saved up no turns while it was away, and takes none before those that wait for theirs."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=100))
    await fill(store, queue, a=20, b=20)
    before = await serve(store, queue, 1, 11)
    await fill(store, queue, c=10)
    after = await serve(store, queue, 1, 9)

    assert before == [*"ababababab", "a"]
    assert after == [*"bcabcabca"] or after == [*"bacbacbac"]
    assert after.count("c") == 3


async def test_a_released_job_is_the_next_of_its_key(store: Store, queue: QueueRef) -> None:
    """Before all that waits in the key, the last one put there first."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=2))
    await fill(store, queue, a=4)
    first, second = await claim(store, queue)
    await settle(store, queue, Release(first.id, first.token))
    await settle(store, queue, Release(second.id, second.token))

    assert [job.id for job in await claim(store, queue)] == ["a-1", "a-0"]


async def test_a_recovered_job_is_the_next_of_its_key(store: Store, queue: QueueRef) -> None:
    """Without backoff; its lease holds the slot until it is recovered."""
    await store.queues.declare(queue, KEYED)
    await fill(store, queue, a=3)
    held = await claim_one(store, queue)
    await store.clock.advance_clock(LEASE_MS)
    late = await store.moves.claim(queue, worker="w", limit=5, lease_ms=LEASE_MS)
    await store.moves.expire(queue, [Expire(held.id, held.token, State.PENDING, FAULT)])
    [again] = await claim(store, queue)

    assert late.jobs == []
    assert [(lease.id, lease.key) for lease in late.expired] == [("a-0", "a")]
    assert (await store.reads.expired(queue)) == []
    assert (again.id, again.delivery, again.attempts) == ("a-0", 2, 1)


async def test_a_retried_job_goes_to_the_back_of_its_key(store: Store, queue: QueueRef) -> None:
    """And its slot is free meanwhile."""
    await store.queues.declare(queue, KEYED)
    await fill(store, queue, a=3)
    held = await claim_one(store, queue)
    await settle(store, queue, Retry(held.id, held.token, 1_000, FAULT))
    await store.clock.advance_clock(1_000)
    order = []
    for _ in range(3):
        job = await claim_one(store, queue)
        order.append(job.id)
        await settle(store, queue, Complete(job.id, job.token))

    assert order == ["a-1", "a-2", "a-0"]


# Rules of keys


async def test_limits_of_a_key_go_up_and_down_while_its_jobs_run(store: Store, queue: QueueRef) -> None:
    """Up at once; down as its jobs end."""
    await store.queues.declare(queue, DYNAMIC)
    await fill(store, queue, a=20)
    held: list[Claimed] = await claim(store, queue)
    counts = [len(held)]
    for limit in (3, 5):
        await store.queues.set_key_rule(queue, "a", KeyRule(limit=limit))
        held += await claim(store, queue)
        counts.append(len(held))
    await store.queues.set_key_rule(queue, "a", KeyRule(limit=2))
    after_ends: list[int] = []
    while held:
        job = held.pop()
        await settle(store, queue, Complete(job.id, job.token))
        after_ends.append(len(await claim(store, queue)))
        if len(after_ends) == 5:
            break

    assert counts == [1, 3, 5]
    assert after_ends == [0, 0, 0, 1, 1]


async def test_a_key_without_its_rule_has_the_limit_of_the_queue(store: Store, queue: QueueRef) -> None:
    """Taking back a rule that is not there changes nothing."""
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC, key_limit=2))
    await store.queues.set_key_rule(queue, "a", KeyRule(limit=4, weight=9))
    ruled = await store.queues.list_keys(queue)
    await store.queues.set_key_rule(queue, "a", None)
    await store.queues.set_key_rule(queue, "b", None)
    await fill(store, queue, a=5)

    assert ruled == [KeyInfo("a", 0, 0, 4, 9)]
    assert len(await claim(store, queue)) == 2
    assert await store.queues.list_keys(queue) == [KeyInfo("a", 3, 2, 2, 1)]


async def test_what_a_rule_does_not_name_stays(store: Store, queue: QueueRef) -> None:
    """Also a limit that is the queue's own at the time, and becomes another one's later."""
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC, key_limit=2))
    await store.queues.set_key_rule(queue, "a", KeyRule(limit=2))
    await store.queues.set_key_rule(queue, "a", KeyRule(weight=3))
    await store.queues.set_key_rule(queue, "b", KeyRule(weight=3))
    await store.queues.set_key_rule(queue, "b", KeyRule(limit=7))
    await store.queues.declare(queue, Declaration(mode=Mode.DYNAMIC, key_limit=50, version=2))

    assert await store.queues.list_keys(queue) == [KeyInfo("a", 0, 0, 2, 3), KeyInfo("b", 0, 0, 7, 3)]


async def test_a_weight_of_one_is_no_rule(store: Store, queue: QueueRef) -> None:
    """Nothing is kept for it."""
    await store.queues.declare(queue, DYNAMIC)
    await store.queues.set_key_rule(queue, "a", KeyRule(weight=3))
    await store.queues.set_key_rule(queue, "a", KeyRule(weight=1))

    assert await store.queues.list_keys(queue) == []


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        (Mode.KEYED, KeyRule(limit=2)),
        (Mode.DYNAMIC, KeyRule(limit=0)),
        (Mode.DYNAMIC, KeyRule(weight=0)),
        (Mode.DYNAMIC, KeyRule(weight=1_001)),
    ],
    ids=["limit in a keyed queue", "no slot", "no weight", "too heavy"],
)
async def test_a_rule_that_cannot_be_is_refused(
    store: Store, queue: QueueRef, mode: Mode, rule: KeyRule
) -> None:
    """And nothing is kept of it."""
    await store.queues.declare(queue, Declaration(mode=mode))
    with pytest.raises(OptionError):
        await store.queues.set_key_rule(queue, "a", rule)

    assert await store.queues.list_keys(queue) == []


@pytest.mark.parametrize("key", ["", "a b", "{x}:y", "nul\0and\nline", "'; drop table jobs; --", "ü" * 200])
async def test_a_key_is_any_text(store: Store, queue: QueueRef, key: str) -> None:
    """It can never escape its place."""
    await store.queues.declare(queue, DYNAMIC)
    await store.queues.set_key_rule(queue, key, KeyRule(limit=2))
    await enqueue(store, queue, [new_job(key=key) for _ in range(3)])
    held = await claim(store, queue)

    assert [job.key for job in held] == [key, key]
    assert await store.queues.list_keys(queue) == [KeyInfo(key, 1, 2, 2, 1)]


# Rates of keys


async def test_a_key_is_held_back_by_its_rate(store: Store, queue: QueueRef) -> None:
    """The others are not; the claim says when to come back, and then one goes."""
    await store.queues.declare(
        queue, Declaration(mode=Mode.KEYED, key_limit=9, key_rate=Rate(1, 60_000, burst=2))
    )
    await fill(store, queue, a=5, b=1)
    first = await claim(store, queue)
    empty = await store.moves.claim(queue, worker="w", limit=5, lease_ms=LEASE_MS * 20)
    infos = {info.key: info for info in await store.queues.list_keys(queue)}
    now = await store.clock.now()

    assert Counter(job.key for job in first) == {"a": 2, "b": 1}
    assert empty.jobs == []
    await _complete(store, queue, first)
    late = await store.moves.claim(queue, worker="w", limit=5, lease_ms=LEASE_MS)
    assert late.wait_ms is not None
    assert 0 < late.wait_ms <= 60_001
    assert infos["a"].held_until is not None
    assert abs(infos["a"].held_until - now - late.wait_ms) < 5_000
    assert infos["b"].held_until is None
    await store.clock.advance_clock(late.wait_ms)
    assert [job.id for job in await claim(store, queue)] == ["a-2"]


async def test_a_key_gathers_no_more_than_its_burst(store: Store, queue: QueueRef) -> None:
    """However long it was away."""
    await store.queues.declare(
        queue, Declaration(mode=Mode.KEYED, key_limit=50, key_rate=Rate(1, 1_000, burst=3))
    )
    await fill(store, queue, a=20)
    served = []
    for pause_ms in (0, 1_001, 2_001, 3_001, 60_000):
        await store.clock.advance_clock(pause_ms)
        served.append(len(await claim(store, queue)))

    assert served == [3, 1, 2, 3, 3]


async def test_a_rate_is_not_forgotten_with_the_jobs_of_the_key(store: Store, queue: QueueRef) -> None:
    """A key whose last job ended comes back held, as long as its rate says."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_rate=Rate(1, 60_000)))
    await fill(store, queue, a=1)
    await _complete(store, queue, await claim(store, queue))
    between = await store.queues.list_keys(queue)
    await enqueue(store, queue, [new_job("later", key="a")])
    held = await store.moves.claim(queue, worker="w", limit=5, lease_ms=LEASE_MS)
    await store.clock.advance_clock(held.wait_ms or 0)

    assert between == []
    assert held.jobs == []
    assert [job.id for job in await claim(store, queue)] == ["later"]


async def test_keys_that_a_rate_held_go_on_when_it_is_lifted(store: Store, queue: QueueRef) -> None:
    """A newer declaration applies to what waits already."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=9, key_rate=Rate(1, 3_600_000)))
    await fill(store, queue, a=4)
    held = [*await claim(store, queue), *await claim(store, queue)]
    await store.queues.declare(queue, Declaration(version=2, mode=Mode.KEYED, key_limit=9))

    assert len(held) == 1
    assert len(await claim(store, queue)) == 3


# Readiness


def _readying() -> list[Move]:
    return [move for move, row in TABLE.items() if row.readies]


@needs(Part.HEALTH, Part.FLOWS)
@pytest.mark.parametrize(
    "path",
    [path for move in _readying() for path in readiness.PATHS[move]],
    ids=lambda path: path.__name__.strip("_"),
)
async def test_after_every_move_exactly_the_keys_that_could_run_are_served(
    store: Store, queue: QueueRef, path: readiness.Path
) -> None:
    """For every row of the table that says so."""
    await readiness.judge(store, queue, path)


@pytest.mark.parametrize(
    ("path", "limit"),
    [(readiness.declared_with_more_slots, 2), (readiness.declared_with_fewer_slots, 1)],
    ids=["more room", "less room"],
)
async def test_after_a_declaration_exactly_the_keys_that_could_run_are_served(
    store: Store, queue: QueueRef, path: readiness.Path, limit: int
) -> None:
    """The limits changed for all keys at once."""
    await store.queues.declare(queue, KEYED)
    await path(store, queue)
    await readiness.judge_ready(store, queue, limit)


@pytest.mark.parametrize(
    ("path", "limit"),
    [(readiness.given_a_limit_of_its_own, 3), (readiness.limited_below_what_runs, 2)],
    ids=["more", "fewer"],
)
async def test_after_a_rule_exactly_the_keys_that_could_run_are_served(
    store: Store, queue: QueueRef, path: readiness.Path, limit: int
) -> None:
    """The limit changed for one key."""
    await store.queues.declare(queue, DYNAMIC)
    await path(store, queue)
    await readiness.judge_ready(store, queue, 1, {"a": limit})


@needs(Part.HEALTH)
async def test_keys_without_jobs_leave_nothing_behind(store: Store, queue: QueueRef) -> None:
    """Thousands of them may pass through a queue."""
    await store.queues.declare(queue, KEYED)
    await enqueue(store, queue, [new_job(f"j{n}", key=f"k{n}") for n in range(60)])
    await store.moves.cancel(queue, [f"j{n}" for n in range(10)])
    await store.moves.delete(queue, [f"j{n}" for n in range(10, 20)])
    jobs = await claim(store, queue)
    await _complete(store, queue, jobs)

    assert len(jobs) == 40
    assert await store.queues.list_keys(queue) == []
    assert await store.health.check(queue) == []


async def test_keys_are_listed_by_name_up_to_a_limit(store: Store, queue: QueueRef) -> None:
    """With what waits, what runs and what holds for each."""
    await store.queues.declare(queue, DYNAMIC)
    await fill(store, queue, c=1, a=2, b=1)
    await store.queues.set_key_rule(queue, "d", KeyRule(weight=2))
    await claim(store, queue, 1)

    assert [info.key for info in await store.queues.list_keys(queue)] == ["a", "b", "c", "d"]
    assert await store.queues.list_keys(queue, 2) == [KeyInfo("a", 2, 0, 1, 1), KeyInfo("b", 1, 0, 1, 1)]
    assert (await store.queues.list_keys(queue))[2:] == [KeyInfo("c", 0, 1, 1, 1), KeyInfo("d", 0, 0, 1, 2)]


async def test_a_pause_holds_all_keys_and_loses_no_turn(store: Store, queue: QueueRef) -> None:
    """They go on where they were."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=9))
    await fill(store, queue, a=3, b=3)
    first = await serve(store, queue, 1, 3)
    await store.queues.pause_queue(queue, readiness.PAUSE)
    paused = await claim(store, queue)
    await store.queues.pause_queue(queue, None)
    rest = await serve(store, queue, 1, 3)

    assert paused == []
    assert first + rest == [*"ababab"]
    assert all(one != two for one, two in pairwise(first + rest))


async def _complete(store: Store, queue: QueueRef, jobs: list[Claimed]) -> None:
    await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])


async def test_ahead_counts_the_jobs_of_its_key(store: Store, queue: QueueRef) -> None:
    """Others take turns with it, and what was given back stands in front."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await enqueue(store, queue, [new_job(name, key=name[0]) for name in ("a1", "a2", "b1", "a3")])
    assert [await store.reads.ahead(queue, name) for name in ("a1", "a2", "a3", "b1")] == [0, 1, 2, 0]

    [a1, *_] = await claim(store, queue, limit=1)
    assert [await store.reads.ahead(queue, name) for name in ("a2", "a3")] == [0, 1]
    await store.moves.settle(queue, [Release(a1.id, a1.token)])
    assert [await store.reads.ahead(queue, name) for name in ("a1", "a2", "a3")] == [0, 1, 2]


@pytest.mark.parametrize("stored", list(Mode), ids=str)
@pytest.mark.parametrize("said", list(Mode), ids=str)
async def test_the_mode_that_a_caller_says_is_verified_with_every_enqueue(
    store: Store, queue: QueueRef, stored: Mode, said: Mode
) -> None:
    """Whatever the caller knew of the queue before. Jobs that are there already are found all the same."""
    known = new_job("known", key="ada", idempotency_key="once")
    await store.moves.enqueue(queue, [known])
    await store.moves.cancel(queue, ["known"])
    await store.queues.declare(queue, Declaration(mode=stored))
    repeated = new_job("again", key="ada", idempotency_key="once")
    debounced = new_job("kind", key="ada", unique=Unique("kind", UniqueRule.DEBOUNCE, 1_000))

    first = await store.moves.enqueue(queue, [known, new_job("one", key="ada")], mode=said)
    more = await store.moves.enqueue(queue, [repeated, debounced, new_job("two", key="bob")], mode=said)

    is_created = stored is said
    assert [isinstance(each, Enqueued) for each in (first + more)] == [
        True,
        is_created,
        True,
        is_created,
        is_created,
    ]
    assert is_created or first[1] == Refused(Refusal.MODE)
    counts = await store.reads.counts(queue)
    assert counts[State.PENDING] + counts[State.DELAYED] == (3 if is_created else 0)
