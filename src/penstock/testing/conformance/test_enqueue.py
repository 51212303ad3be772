"""Taking jobs in: repeats, chosen ids, idempotency keys, and payloads that are nobody's business."""

import pytest
from msgspec.structs import replace

from penstock.core.job import Options, QueueRef
from penstock.core.moves import Bury, Complete, Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import FAULT, claim, claim_one, new_job, record_of, settle

KEYS = [
    "{}",
    "{default}:jobs",
    "a:b:c",
    "nul\0in the middle",
    "two\nlines\r\n",
    "'; DROP TABLE job; --",
    '"quoted" \\ and \\u0000',
    "ключ 鍵 🔑",
    "   ",
    "x" * 512,
    "%s ? :now $1",
]


async def test_the_same_id_and_nonce_is_the_same_job(store: Store, queue: QueueRef) -> None:
    """The client did not hear the answer and asks again: in another call or in the same one."""
    job = new_job("a", delay_ms=1_000)
    first = await store.moves.enqueue(queue, [job, job])
    again = await store.moves.enqueue(queue, [job])
    events = await store.events.read_events(queue)

    assert first + again == [Enqueued("a", True, State.DELAYED)] * 3
    assert len(events) == 1


async def test_a_repeated_enqueue_tells_the_state_of_today(store: Store, queue: QueueRef) -> None:
    """And starts nothing again."""
    job = new_job("a")
    await store.moves.enqueue(queue, [job])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))
    again = await store.moves.enqueue(queue, [job])

    assert again == [Enqueued("a", True, State.COMPLETED)]
    assert await claim(store, queue) == []


async def test_a_taken_id_is_a_duplicate(store: Store, queue: QueueRef) -> None:
    """With another nonce it is another job; in another call or in the same one."""
    first = await store.moves.enqueue(queue, [new_job("a"), new_job("a")])
    again = await store.moves.enqueue(queue, [new_job("a"), new_job("b")])

    assert first == [Enqueued("a", True, State.PENDING), Refused(Refusal.DUPLICATE, State.PENDING)]
    assert again == [Refused(Refusal.DUPLICATE, State.PENDING), Enqueued("b", True, State.PENDING)]


async def test_one_refused_job_of_a_batch_keeps_none_of_the_others_out(store: Store, queue: QueueRef) -> None:
    """Outcomes come per item, in the order of the call."""
    await store.moves.enqueue(queue, [new_job("taken"), new_job("held", idempotency_key="k")])
    jobs = [
        new_job("x"),
        new_job("taken"),
        new_job("y", delay_ms=9_000),
        new_job("z", idempotency_key="k"),
        new_job("w"),
    ]
    outcomes = await store.moves.enqueue(queue, jobs)

    assert outcomes == [
        Enqueued("x", True, State.PENDING),
        Refused(Refusal.DUPLICATE, State.PENDING),
        Enqueued("y", True, State.DELAYED),
        Enqueued("held", False, State.PENDING),
        Enqueued("w", True, State.PENDING),
    ]


async def test_a_held_key_gives_its_job_and_the_state_of_it(store: Store, queue: QueueRef) -> None:
    """Whether it waits, runs or has ended."""
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k")])
    waiting = await store.moves.enqueue(queue, [new_job("b", idempotency_key="k")])
    held = await claim_one(store, queue)
    running = await store.moves.enqueue(queue, [new_job("c", idempotency_key="k")])
    await settle(store, queue, Complete("a", held.token))
    ended = await store.moves.enqueue(queue, [new_job("d", idempotency_key="k")])

    assert waiting == [Enqueued("a", False, State.PENDING)]
    assert running == [Enqueued("a", False, State.ACTIVE)]
    assert ended == [Enqueued("a", False, State.COMPLETED)]
    assert await store.reads.get(queue, ["b", "c", "d"]) == [None] * 3


async def test_two_equal_keys_in_one_batch_make_one_job(store: Store, queue: QueueRef) -> None:
    """The second gets the first's job."""
    jobs = [new_job("a", idempotency_key="k"), new_job("b", idempotency_key="k"), new_job("c")]
    outcomes = await store.moves.enqueue(queue, jobs)

    assert outcomes == [
        Enqueued("a", True, State.PENDING),
        Enqueued("a", False, State.PENDING),
        Enqueued("c", True, State.PENDING),
    ]


async def test_a_held_key_says_whether_it_was_the_same_work(store: Store, queue: QueueRef) -> None:
    """The same task and payload, whatever the priority."""
    first = new_job("a", idempotency_key="k", payload=b"[1]")
    await store.moves.enqueue(queue, [first])
    outcomes = await store.moves.enqueue(
        queue,
        [
            replace(first, id="b", nonce="2", priority=9),
            replace(first, id="c", nonce="3", payload=b"[2]"),
            replace(first, id="d", nonce="4", task="other"),
        ],
    )

    assert [outcome.same_payload for outcome in outcomes if isinstance(outcome, Enqueued)] == [
        True,
        False,
        False,
    ]


async def test_a_key_held_by_a_dead_job_gives_that_job(store: Store, queue: QueueRef) -> None:
    """Nothing runs in its place."""
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k")])
    held = await claim_one(store, queue)
    await settle(store, queue, Bury("a", held.token, FAULT))

    assert await store.moves.enqueue(queue, [new_job("b", idempotency_key="k")]) == [
        Enqueued("a", False, State.DEAD)
    ]


async def test_a_key_outlives_its_job_through_pruning(store: Store, queue: QueueRef) -> None:
    """For as long as the job said."""
    options = Options(retention_ms=1_000, key_retention_ms=10_000)
    job = new_job("a", idempotency_key="k", options=options)
    await store.moves.enqueue(queue, [job])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token))
    await store.clock.advance_clock(2_000)
    pruned = await store.moves.prune(queue)
    still = await store.moves.enqueue(
        queue, [replace(job, id="b", nonce="2"), new_job("c", idempotency_key="k")]
    )
    await store.clock.advance_clock(10_000)
    free = await store.moves.enqueue(queue, [new_job("d", idempotency_key="k")])

    assert pruned == 1
    assert still == [Enqueued("a", False, None), Enqueued("a", False, None)]
    assert free == [Enqueued("d", True, State.PENDING)]


async def test_a_key_that_was_given_again_stays_with_its_new_job(store: Store, queue: QueueRef) -> None:
    """Whatever is pruned of the one before."""
    options = Options(retention_ms=1_000, key_retention_ms=10_000)
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k", options=options)])
    await store.moves.delete(queue, ["a"])
    await store.clock.advance_clock(10_000)
    given = await store.moves.enqueue(queue, [new_job("b", idempotency_key="k")])
    await store.moves.prune(queue)

    assert given == [Enqueued("b", True, State.PENDING)]
    assert await store.moves.enqueue(queue, [new_job("c", idempotency_key="k")]) == [
        Enqueued("b", False, State.PENDING)
    ]


async def test_a_key_outlives_its_job_through_deletion(store: Store, queue: QueueRef) -> None:
    """From the deletion on if the job had not ended."""
    options = Options(retention_ms=1_000, key_retention_ms=10_000)
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k", options=options)])
    await store.clock.advance_clock(60_000)
    await store.moves.delete(queue, ["a"])
    await store.clock.advance_clock(9_000)
    still = await store.moves.enqueue(queue, [new_job("b", idempotency_key="k")])
    await store.clock.advance_clock(1_000)
    free = await store.moves.enqueue(queue, [new_job("c", idempotency_key="k")])

    assert still == [Enqueued("a", False, None)]
    assert free == [Enqueued("c", True, State.PENDING)]


async def test_a_key_is_held_as_long_as_its_job_lives(store: Store, queue: QueueRef) -> None:
    """Its time starts with the ending."""
    options = Options(retention_ms=1_000)
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k", options=options)])
    await store.clock.advance_clock(60_000)
    await store.moves.prune(queue)
    still = await store.moves.enqueue(queue, [new_job("b", idempotency_key="k")])

    assert still == [Enqueued("a", False, State.PENDING)]


async def test_a_key_is_held_while_its_record_is_there(store: Store, queue: QueueRef) -> None:
    """However long ago the job ended: a dead one waits for someone to act."""
    options = Options(retention_ms=1_000)
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k", options=options)])
    held = await claim_one(store, queue)
    await settle(store, queue, Bury("a", held.token, FAULT))
    await store.clock.advance_clock(3_600_000)
    pruned = await store.moves.prune(queue)
    again = await store.moves.enqueue(queue, [new_job("b", idempotency_key="k", options=options)])

    assert pruned == 0
    assert again == [Enqueued("a", False, State.DEAD)]


async def test_a_key_given_up_by_one_job_is_the_next_ones(store: Store, queue: QueueRef) -> None:
    """What becomes of the first one's id later does not touch it."""
    options = Options(retention_ms=1_000)
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k", options=options)])
    await store.moves.delete(queue, ["a"])
    await store.clock.advance_clock(1_000)
    await store.moves.enqueue(queue, [new_job("b", idempotency_key="k")])
    await store.moves.enqueue(queue, [replace(new_job("a"), nonce="again")])
    await store.moves.delete(queue, ["a"])

    still = await store.moves.enqueue(queue, [new_job("c", idempotency_key="k")])
    assert still == [Enqueued("b", False, State.PENDING)]


async def test_an_id_can_be_used_again_while_its_old_key_is_held(store: Store, queue: QueueRef) -> None:
    """With the key, the old job is what stands for it; with another, it is a new job."""
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k")])
    await store.moves.delete(queue, ["a"])
    same = await store.moves.enqueue(queue, [new_job("a", idempotency_key="k")])
    other = await store.moves.enqueue(
        queue, [new_job("a", idempotency_key="l"), new_job("b", idempotency_key="l")]
    )

    assert same == [Enqueued("a", False, None)]
    assert other == [Enqueued("a", True, State.PENDING), Enqueued("a", False, State.PENDING)]


async def test_an_id_named_twice_in_a_batch_keeps_the_order_of_the_batch(
    store: Store, queue: QueueRef
) -> None:
    """The first is answered by a held key, so that the second makes the job: before those after it."""
    await store.moves.enqueue(queue, [new_job("holder", idempotency_key="k")])
    jobs = [new_job("a", idempotency_key="k"), new_job("a"), new_job("b")]
    outcomes = await store.moves.enqueue(queue, jobs)
    claimed = [job.id for job in await claim(store, queue)]

    assert outcomes == [
        Enqueued("holder", False, State.PENDING),
        Enqueued("a", True, State.PENDING),
        Enqueued("b", True, State.PENDING),
    ]
    assert claimed == ["holder", "a", "b"]


async def test_a_repeated_enqueue_takes_no_key_from_anyone(store: Store, queue: QueueRef) -> None:
    """Even one whose time is over: its job may be redriven."""
    again = new_job("b", idempotency_key="k")
    await store.moves.enqueue(queue, [new_job("a", idempotency_key="k", options=Options(retention_ms=1_000))])
    await store.moves.enqueue(queue, [replace(again, idempotency_key=None)])
    await store.moves.cancel(queue, ["a"])
    await store.clock.advance_clock(1_000)
    await store.moves.enqueue(queue, [again])
    await store.moves.redrive(queue, ["a"])

    assert await store.moves.enqueue(queue, [new_job("c", idempotency_key="k")]) == [
        Enqueued("a", False, State.PENDING)
    ]


async def test_keys_are_free_text(store: Store, queue: QueueRef) -> None:
    """No key is mistaken for another, nor for anything else."""
    jobs = [new_job(f"j{n}", idempotency_key=key, key=key) for n, key in enumerate(KEYS)]
    created = await store.moves.enqueue(queue, jobs)
    again = await store.moves.enqueue(queue, [replace(job, id=f"again-{job.id}", nonce="2") for job in jobs])
    records = await store.reads.get(queue, [job.id for job in jobs])
    events = await store.events.read_events(queue)

    assert created == [Enqueued(job.id, True, State.PENDING) for job in jobs]
    assert again == [Enqueued(job.id, False, State.PENDING) for job in jobs]
    assert [record.idempotency_key for record in records if record] == KEYS
    assert [record.key for record in records if record] == KEYS
    assert [event.idempotency_key for event in events] == KEYS
    assert [event.key for event in events] == KEYS


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"[]",
        b'{"empty":[],"big":123456789012345678901234567890,"small":1.0e-300,"zero":-0.0}',
        '{"text":"żółw 🐢 \u2028"}'.encode(),
        rb'{"escapes":"\u0000\ud83d\ude00\n\"\\"}',
        b" [ 1 ,\n 2 ] ",
        b'not JSON at all: {["\\',
        b'"' + b"x" * ((1 << 20) - 2) + b'"',
    ],
    ids=["object", "list", "numbers", "unicode", "escapes", "spaces", "other text", "mebibyte"],
)
async def test_payloads_results_and_progress_come_back_as_they_went_in(
    store: Store, queue: QueueRef, payload: bytes
) -> None:
    """Byte by byte: stores do not look into them."""
    await store.moves.enqueue(queue, [new_job("a", payload=payload)])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete("a", held.token, payload))
    record = await record_of(store, queue, "a")

    assert held.payload == payload
    assert record.payload == payload
    assert record.result == payload


async def test_errors_are_kept_whole_and_told_by_their_first_line(store: Store, queue: QueueRef) -> None:
    """With quotes, several scripts and many lines."""
    error = f"Fehler: 'x' \"y\" żółw 🐢 {'e' * 600}\nline 2\n\tline 3 \\u0000"
    await store.moves.enqueue(queue, [new_job("a")])
    held = await claim_one(store, queue, worker="worker-1:2@x.y")
    await settle(store, queue, Bury("a", held.token, replace(FAULT, error=error)))
    record = await record_of(store, queue, "a")
    *_, event = await store.events.read_events(queue)

    assert record.error == error
    assert record.worker == "worker-1:2@x.y"
    assert event.move is Move.BURY
    assert event.error == error.partition("\n")[0][:500]


async def test_options_travel_with_the_job(store: Store, queue: QueueRef) -> None:
    """The worker that claims it, or that finds its lease expired, can decide by them."""
    options = Options(max_attempts=9, timeout_ms=77, retention_ms=88, key_retention_ms=99)
    await store.moves.enqueue(queue, [new_job("a", options=options), new_job("b")])
    claimed = await claim(store, queue)

    assert [job.options for job in claimed] == [options, Options()]


async def test_an_empty_call_changes_nothing(store: Store, queue: QueueRef) -> None:
    """Of any kind."""
    await store.moves.enqueue(queue, [new_job("a")])
    before = await store.events.event_range(queue)
    answers = [
        await store.moves.enqueue(queue, []),
        await store.moves.heartbeat(queue, [], 1_000),
        await store.moves.progress(queue, []),
        await store.moves.settle(queue, []),
        await store.moves.expire(queue, []),
        await store.moves.cancel(queue, []),
        await store.moves.redrive(queue, []),
        await store.moves.delete(queue, []),
        await store.reads.get(queue, []),
    ]

    assert answers == [[]] * 9
    assert await store.events.event_range(queue) == before
