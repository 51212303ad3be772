"""What somebody has damaged on the server is set aside, and work goes on."""

import re

import msgspec
import pytest
from redis.asyncio import Redis

from penstock import Penstock
from penstock.core.cron.schedule import Schedule
from penstock.core.cron.spec import Every
from penstock.core.errors import DamagedQueueError, StoreFormatError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Beat, Complete, Fail, Settlement
from penstock.core.outcomes import Refusal, Refused
from penstock.core.states import State
from penstock.schedules.repository import ScheduleRepository
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.stores.values import Query
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, claim_one, enqueue, new_job

STATE, VERSION, PLACE, OPTIONS = 0, 1, 2, 27
DAMAGED: list[bytes | str] = [
    b"",
    b"x",
    b"\xc1 no record",
    b"\xdc\x00\x1d\xa7pending\x01",
    "version",
    "place",
    "options",
    "short",
]
IDS = ["empty", "byte", "garbage", "cut", "version", "place", "options", "short"]


async def damage(operator: Redis, queue: QueueRef, job: str, how: bytes | str) -> bytes:
    """Spoil the record of a job; the bytes that stand there then."""
    key = keys_of(queue).records
    packed = await operator.hget(key, job)
    assert isinstance(packed, bytes)
    if isinstance(how, bytes):
        spoiled = how
    elif how == "short":
        spoiled = packed[:-20]
    else:
        values = msgspec.msgpack.decode(packed)
        values[{"version": VERSION, "place": PLACE, "options": OPTIONS}[how]] = "no such thing"
        # As scripts write it: an array whose length has two bytes.
        spoiled = b"\xdc\x00\x1d" + b"".join(msgspec.msgpack.encode(each) for each in values)
    await operator.hset(key, job, spoiled)
    return spoiled


async def quarantine(store: RedisStore, queue: QueueRef) -> list[str]:
    """The ids that were set aside."""
    return [each.id for each in await store.quarantine.list_quarantined(queue)]


async def sound(store: RedisStore, queue: QueueRef) -> bool:
    """True where the store's check finds nothing."""
    return await store.health.check(queue) == []


@pytest.mark.parametrize("how", DAMAGED, ids=IDS)
async def test_a_record_that_cannot_be_read_keeps_no_other_job_from_a_claim(
    store: RedisStore, operator: Redis, queue: QueueRef, how: bytes | str
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b", payload=b'"mine"'), new_job("c")])
    spoiled = await damage(operator, queue, "b", how)

    assert [job.id for job in await claim(store, queue, 10)] == ["a", "c"]
    [entry] = await store.quarantine.list_quarantined(queue)
    assert (entry.id, entry.payload) == ("b", b'"mine"')
    assert entry.record is not None
    # The end of a record is read after the lease, which then is written in it.
    assert entry.record == spoiled or how in {"options", "short"}
    assert await store.reads.counts(queue) == {**dict.fromkeys(State, 0), State.ACTIVE: 2}
    assert await sound(store, queue)


async def test_a_job_without_its_payload_is_set_aside(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await operator.hdel(keys_of(queue).payloads, "a")

    assert [job.id for job in await claim(store, queue, 10)] == ["b"]
    assert await quarantine(store, queue) == ["a"]
    assert await sound(store, queue)


async def test_a_delayed_entry_without_a_record_is_looked_at_once(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a", delay_ms=1_000)])
    await operator.zadd(keys_of(queue).delayed, {b"%016d nobody" % 7: 1, b"no place": 2, b"\xff\xfe": 3})

    claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    assert claims.wait_ms is not None
    assert claims.wait_ms > 0
    assert await quarantine(store, queue) == ["\\xff\\xfe", "nobody", "place"]
    assert await sound(store, queue)
    assert await store.quarantine.delete_quarantined(queue, ["\\xff\\xfe", "place", "other"]) == 2
    assert await quarantine(store, queue) == ["nobody"]


async def test_many_delayed_entries_without_records_do_not_stop_promotion(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a", delay_ms=1_000)])
    many = {f"{n:016d} nobody-{n}": n for n in range(1, PROMOTE_LIMIT + 51)}
    await operator.zadd(keys_of(queue).delayed, many)
    await store.clock.advance_clock(1_000)

    assert await store.moves.promote(queue) == 0
    assert await store.moves.promote(queue) == 1
    assert [job.id for job in await claim(store, queue)] == ["a"]
    assert len(await store.quarantine.list_quarantined(queue, limit=1_000)) == len(many)
    page = await store.quarantine.list_quarantined(queue, after="nobody-99", limit=2)
    assert page == []
    assert [
        each.id for each in await store.quarantine.list_quarantined(queue, after="nobody-97", limit=1)
    ] == ["nobody-98"]


async def test_a_delayed_record_that_cannot_be_read_is_set_aside(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a", delay_ms=10), new_job("b", delay_ms=20)])
    await damage(operator, queue, "a", b"gone")
    await store.clock.advance_clock(1_000)

    assert [job.id for job in await claim(store, queue, 10)] == ["b"]
    assert await quarantine(store, queue) == ["a"]
    assert await sound(store, queue)


@pytest.mark.parametrize("how", [None, *DAMAGED], ids=["none", *IDS])
async def test_an_expired_lease_without_a_record_keeps_no_other_from_recovery(
    store: RedisStore, operator: Redis, queue: QueueRef, how: bytes | str | None
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await claim(store, queue, 2)
    if how is None:
        await operator.hdel(keys_of(queue).records, "a")
    else:
        await damage(operator, queue, "a", how)
    await store.clock.advance_clock(LEASE_MS + 1)

    assert [lease.id for lease in await store.reads.expired(queue)] == ["b"]
    claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    assert [lease.id for lease in claims.expired] == ["b"]
    assert await quarantine(store, queue) == ["a"]
    assert await sound(store, queue)


async def test_a_worker_outlives_an_active_id_without_a_record(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    app = Penstock(store._url, tenant=queue.tenant)
    ran: list[int] = []

    @app.queue(queue.name).task(name="task")
    async def task(n: int) -> None:
        ran.append(n)

    async with app:
        await task.enqueue(1)
        await operator.zadd(keys_of(queue).active, {"nobody": 1})
        await operator.zadd(keys_of(queue).delayed, {f"{1:016d} nobody-else": 1})
        await app.worker(burst=True).run()

    assert ran == [1]
    assert await quarantine(store, queue) == ["nobody", "nobody-else"]
    assert await sound(store, queue)


async def test_a_pending_entry_without_a_record_is_kept_for_people(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """A deleted job leaves such an entry, too, with a note, and is no damage."""
    await enqueue(store, queue, [new_job("a"), new_job("b"), new_job("c")])
    await store.moves.delete(queue, ["a"])
    await operator.hdel(keys_of(queue).records, "b")

    assert [job.id for job in await claim(store, queue, 10)] == ["c"]
    assert await quarantine(store, queue) == ["b"]
    assert await sound(store, queue)


async def test_a_key_goes_on_when_the_record_of_its_running_job_is_lost(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await enqueue(store, queue, [new_job(each, key="k") for each in "abcd"])
    assert [job.id for job in await claim(store, queue, 10)] == ["a"]
    await operator.hdel(keys_of(queue).records, "a", "b")
    await store.clock.advance_clock(LEASE_MS + 1)

    assert await store.reads.expired(queue) == []
    assert [job.id for job in await claim(store, queue, 10)] == ["c"]
    assert await quarantine(store, queue) == ["a", "b"]
    assert await sound(store, queue)


@pytest.mark.parametrize("how", [b"", b"x", b"\xc1 no lane", b"\x93\x01\x02", b"\xdc\x00\x02\x01\x02"])
async def test_a_lane_that_cannot_be_read_stops_no_other_key_and_is_made_anew(
    store: RedisStore, operator: Redis, queue: QueueRef, how: bytes
) -> None:
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await enqueue(store, queue, [new_job(f"{key}{n}", key=key) for n in range(2) for key in "kl"])
    await operator.hset(keys_of(queue).lanes, "k", how)
    assert "key 'k' has jobs and no lane" in {each.what for each in await store.health.check(queue)}

    assert [job.id for job in await claim(store, queue, 10)] == ["l0"]
    assert await store.reads.oldest(queue) is not None
    assert await store.quarantine.repair(queue) > 0
    assert await sound(store, queue)
    assert [job.id for job in await claim(store, queue, 10)] == ["k0"]


async def test_a_repair_lets_a_key_take_turns_that_lost_its_own(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await enqueue(store, queue, [new_job(each, key=each) for each in "kl"])
    ready = keys_of(queue).ready
    await operator.zrem(ready, *await operator.zrange(ready, 0, 0))
    await operator.zadd(ready, {"no turn": 7})
    assert len(await store.health.check(queue)) > 0

    await store.quarantine.repair(queue)
    assert await sound(store, queue)
    assert {job.id for job in await claim(store, queue, 10)} == {"k", "l"}


async def test_a_queue_whose_own_entry_cannot_be_read_is_named(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a")])
    await operator.hset(keys_of(queue).meta, "paused_at", "soon")

    other = QueueRef(queue.tenant, f"{queue.name}-other")
    await enqueue(store, other, [new_job("a")])

    damaged, sound_one = await store.queues.list_queues(queue.tenant)
    assert (damaged.queue, sound_one.queue, sound_one.fault) == (queue, other, None)
    assert re.search(rf"queue {queue} cannot be read: .*{keys_of(queue).meta}", damaged.fault or "")
    with pytest.raises(DamagedQueueError, match=rf"queue {queue} cannot be read: .*{keys_of(queue).meta}"):
        await store.queues.find_queue(queue)


async def test_a_list_of_jobs_passes_over_what_is_no_entry(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job(each) for each in "abc"])
    await operator.zadd(keys_of(queue).jobs, {b"a": "inf", b"b": "-inf", b"\xff\xfe": 7})

    for oldest_first in (False, True):
        page = await store.reads.find(queue, Query(oldest_first=oldest_first))
        assert {job.id for job in page.jobs} == {"a", "b", "c"}


@pytest.mark.parametrize("field", ["last_us", "offset_ms", "seq"])
async def test_a_script_that_breaks_off_names_the_damaged_queue(
    store: RedisStore, operator: Redis, queue: QueueRef, field: str
) -> None:
    await enqueue(store, queue, [new_job("a")])
    await operator.hset(keys_of(queue).meta, field, "garbage")

    with pytest.raises(DamagedQueueError, match=f"queue {queue} cannot be read: .*attempt to "):
        await claim(store, queue)


@pytest.mark.parametrize("lost", ["bodies", "schedules"])
@pytest.mark.parametrize("how", [b"\xff\x80", None], ids=["spoiled", "gone"])
async def test_a_damaged_schedule_stops_no_other_and_is_put_again(
    store: RedisStore, operator: Redis, queue: QueueRef, lost: str, how: bytes | None
) -> None:
    schedules = ScheduleRepository(store, queue.tenant)
    made = [Schedule(name=name, spec=Every.of(60), task="send", payload=b"{}") for name in ("a", "b")]
    for each in made:
        await schedules.put(queue.name, each)
    key = getattr(keys_of(queue), lost)
    if how is not None:
        await operator.hset(key, "a", how)
    elif lost == "bodies":
        await operator.hdel(key, "a")

    found = {each.name: each.fault is None for each in await schedules.list()}
    assert found == {"a": how is None and lost == "schedules", "b": True}
    await schedules.put(queue.name, made[0])
    assert all(each.fault is None and each.next_at for each in await schedules.list())


@pytest.mark.parametrize("how", [b"gone", "short", "version"])
async def test_moves_of_a_record_that_cannot_be_read_are_refused_and_others_are_made(
    store: RedisStore, operator: Redis, queue: QueueRef, how: bytes | str
) -> None:
    await enqueue(store, queue, [new_job(each) for each in "abcdefg"])
    leases = {job.id: job.token for job in await claim(store, queue, 4)}
    for each in "aceg":
        await damage(operator, queue, each, how)
    given: list[Settlement] = [
        Complete("a", leases["a"]),
        Complete("b", leases["b"]),
        Fail("c", leases["c"], FAULT),
        Fail("d", leases["d"], FAULT),
    ]

    first, second, third, fourth = await store.moves.settle(queue, given)
    assert (first, third) == (Refused(Refusal.LOST), Refused(Refusal.LOST))
    assert not isinstance(second, Refused)
    assert not isinstance(fourth, Refused)
    assert await store.moves.heartbeat(queue, [Beat("a", leases["a"])], LEASE_MS) == [Refused(Refusal.LOST)]
    refused, done = await store.moves.cancel(queue, ["e", "f"])
    assert refused == Refused(Refusal.MISSING)
    assert not isinstance(done, Refused)
    assert await store.moves.delete(queue, ["g"]) == [Refused(Refusal.MISSING)]
    assert await quarantine(store, queue) == ["a", "c", "e", "g"]


async def test_a_page_passes_over_what_cannot_be_read_and_a_single_look_names_it(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await damage(operator, queue, "a", "options")

    page = await store.reads.find(queue, Query())
    assert [job.id for job in page.jobs] == ["b"]
    with pytest.raises(StoreFormatError, match=r"job a of queue .* cannot be read: .* doctor --repair"):
        await store.reads.get(queue, ["a"])


async def test_a_repair_finds_what_no_move_has_met(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job(each) for each in "abcd"])
    await enqueue(store, queue, [new_job(each, delay_ms=60_000) for each in "ef"])
    keys = keys_of(queue)
    await claim_one(store, queue)
    await damage(operator, queue, "b", b"gone")
    await damage(operator, queue, "e", b"gone")
    await operator.zadd(keys.blocked, {"nobody": 1})
    await operator.zadd(keys.ended(State.DEAD), {"nobody": 1})
    await operator.rpush(keys.pending(5), "99 no-one")
    # Of these the records are sound, and lost their entries.
    await operator.zrem(keys.active, "a")
    await operator.lrem(keys.pending(5), 1, "3 c")
    await operator.zrem(keys.delayed, *await operator.zrange(keys.delayed, -1, -1))
    before = {each.job for each in await store.health.check(queue)}
    assert {"a", "b", "c", "e", "f", "nobody", "no-one"} <= before

    assert await store.quarantine.repair(queue) > 0
    assert await sound(store, queue)
    assert await quarantine(store, queue) == ["b", "e", "no-one", "nobody"]
    assert await store.quarantine.repair(queue) == 0
    assert {job.id for job in await claim(store, queue, 10)} == {"c", "d"}
    await store.clock.advance_clock(60_000)
    assert {lease.id for lease in await store.reads.expired(queue)} == {"a", "c", "d"}
    assert await store.moves.promote(queue) == 1


async def test_a_deleted_entry_is_a_deleted_job_to_the_log(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await damage(operator, queue, "a", b"gone")
    await operator.zadd(keys_of(queue).delayed, {f"{1:016d} nobody": 1})
    await claim(store, queue, 10)

    assert await store.quarantine.delete_quarantined(queue, ["a", "nobody"]) == 2
    assert await quarantine(store, queue) == []
    last = (await store.events.read_events(queue))[-1]
    assert (last.move, last.jobs) == ("delete", ["a"])


async def test_an_event_that_cannot_be_read_is_passed_over(
    store: RedisStore, operator: Redis, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(6):
        await enqueue(store, queue, [new_job(str(n))])
    for n in (2, 3, 4, 6):
        await operator.xdel(keys_of(queue).events, f"{n}-0")
    # Streams only grow: what follows is written anew.
    seqs = [event.seq for event in await store.events.read_events(queue)]
    assert seqs == [1, 5]
    key = keys_of(queue).events
    await operator.delete(key)
    for n in range(1, 6):
        await operator.xadd(key, {"e": b"\xc1 no event"}, id=f"{n}-0")
    await operator.hset(keys_of(queue).meta, "seq", 5)
    await enqueue(store, queue, [new_job("last")])

    assert [event.seq for event in await store.events.read_events(queue, 0, 2)] == [6]
    assert [event.seq for event in await store.events.read_events(queue, 5, 2)] == [6]
    assert [each.seq for each in await store.events.damaged_events(queue)] == [1, 2, 3, 4, 5]
    assert "cannot be read" in (await store.events.damaged_events(queue, 2, 1))[0].why
    warned = [each for each in caplog.records if each.message == "event passed over"]
    assert len(warned) == 5


async def test_the_idempotency_key_of_a_damaged_job_is_let_go_with_its_entry(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Where the record does not say which key it had, a repair finds the key."""
    given = [new_job(each, idempotency_key=f"key-{each}") for each in "abc"]
    await enqueue(store, queue, given)
    await damage(operator, queue, "a", "options")
    await damage(operator, queue, "b", b"gone")
    await claim(store, queue, 10)
    [held] = await store.moves.enqueue(queue, [new_job(idempotency_key="key-a")])
    assert not isinstance(held, Refused)
    assert (held.id, held.created) == ("a", False)

    assert await store.quarantine.delete_quarantined(queue, ["a", "b"]) == 2
    keys = keys_of(queue)
    assert await operator.zscore(keys.freed, "key-a") is not None
    assert await operator.hexists(keys.holders, "key-b")
    assert await store.quarantine.repair(queue) == 1
    assert not await operator.hexists(keys.holders, "key-b")
    assert await operator.hexists(keys.holders, "key-c")
