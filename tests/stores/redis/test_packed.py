"""The moves that every job makes join records and events from packed parts, as the codec would pack them."""

from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from penstock.core.events import Event
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.moves import Complete, Release, Retry
from penstock.stores.protocol import Store
from penstock.stores.redis import RedisStore
from penstock.stores.redis.codec.events import EVENT_FIELDS
from penstock.stores.redis.codec.jobs import RECORD_FIELDS
from penstock.stores.redis.codec.runs import CHECKSUM_LENGTH
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import loaded_sources
from penstock.testing.conformance.arrange import FAULT, claim, claim_one, enqueue, new_job, settle
from tests.conformance.stores import opened

VARYING = frozenset({"at", "enqueued_at", "deadline", "ended_at", "fence", "token", "visible_at", "settled"})
"""Fields with times, or with what is drawn anew for each lease: their values differ, their kinds do not."""

PLAIN = {
    ("moves/enqueue.lua", "if state == 'pending' and not extra then"): "if false then",
    ("moves/claim.lua", "load_head(id, WORKER)"): "load(id)",
    ("moves/claim.lua", "save_leased(id, job, lease_ms)"): (
        "plain(id, job, 'claim', 'pending', job[DEADLINE], lease_ms)"
    ),
    ("moves/complete.lua", "load_packed(id)"): "load(id)",
    ("moves/complete.lua", "save_completed(id, job)"): "plain(id, job, 'complete', 'active')",
}
"""What each fast form is replaced by."""
PLAIN_SAVE = """
local function plain(id, job, move, source, deadline, lease_ms)
  append_of(move, id, job, source, deadline)
  if lease_ms then
    job[LEASE_MS] = lease_ms
  else
    job[TOKEN], job[DEADLINE] = false, false
    if #job > LEASE_MS then job[LEASE_MS] = false else job[LEASE_MS] = nil end
  end
  local record = encode(job)
  loaded[id], changed[id] = record, nil
  gather(set, RECORDS, id, record)
  return record
end
"""
LATER = {
    ("moves/enqueue.lua", "    append_enqueue(id, job"): (
        "    job[LEASE_MS], job[LEASE_MS + 1] = false, 'later'\n    append_enqueue(id, job"
    )
}
"""Records have one value more, as a later version writes them."""


def plain_sources() -> dict[str, str]:
    """The scripts with the general form of the codec in the place of each fast one."""
    sources = dict(loaded_sources())
    for (path, fast), plain in PLAIN.items():
        assert sources[path].count(fast) == 1, fast
        sources[path] = sources[path].replace(fast, plain)
    sources["shared/packed.lua"] += PLAIN_SAVE
    return sources


def later_sources(sources: dict[str, str]) -> dict[str, str]:
    """The same scripts with a longer record."""
    for (path, line), longer in LATER.items():
        sources = sources | {path: sources[path].replace(line, longer).replace(*FRESH)}
    return sources


FRESH = "if state == 'pending' and not extra then", "if false then"


@pytest.mark.parametrize("is_later", [False, True], ids=["as it is", "one value more"])
@pytest.mark.parametrize(
    "job",
    [
        new_job("a"),
        new_job("a", priority=9, key="k", idempotency_key="once"),
        new_job(
            "an id that is longer than thirty-one bytes",
            task="t" * 100,
            key="ключ\0",
            idempotency_key="x" * 300,
        ),
        new_job("a", options=Options(max_attempts=70_000, retention_ms=10**12, key_retention_ms=0)),
    ],
    ids=["plain", "key", "long", "numbers"],
)
async def test_the_fast_forms_write_what_the_codec_would(
    url: str, operator: Redis, job: NewJob, is_later: bool
) -> None:
    """After each of: enqueue, claim, release, claim, retry, claim, complete."""
    found = []
    for name, sources in (("fast", dict(loaded_sources())), ("plain", plain_sources())):
        queue = QueueRef("default", name)
        if is_later:
            sources = later_sources(sources)
        async with opened(RedisStore(url, sources=sources)) as store:
            found.append(await _life(store, operator, queue, job))

    assert found[0] == found[1]


async def _life(store: Store, operator: Redis, queue: QueueRef, job: NewJob) -> list[Any]:
    """The record after every step, and all events."""
    records = []

    async def look() -> None:
        packed: Any = await operator.hget(keys_of(queue).records, job.id)
        records.append(_timeless(packed, RECORD_FIELDS))

    await store.moves.enqueue(queue, [job])
    await look()
    first = await claim_one(store, queue)
    await look()
    await settle(store, queue, Release(first.id, first.token))
    second = await claim_one(store, queue)
    await look()
    await settle(store, queue, Retry(second.id, second.token, 0, FAULT))
    last = await claim_one(store, queue)
    await look()
    await settle(store, queue, Complete(last.id, last.token, b"7"))
    await look()
    entries: Any = await operator.xrange(keys_of(queue).events)
    return [*records, *(_timeless_run(fields[b"r"]) for _, fields in entries)]


def _timeless_run(entry: bytes) -> list[Any]:
    """A run of events, but for what differs from time to time."""
    shared, *rest = msgspec.msgpack.decode(entry[CHECKSUM_LENGTH:])
    return [_timeless(msgspec.msgpack.encode(shared), EVENT_FIELDS), *rest]


def _timeless(packed: bytes, names: tuple[str, ...]) -> tuple[int, list[Any]]:
    """How long it is, and its values but for those that differ from run to run."""
    values = msgspec.msgpack.decode(packed)
    fields = [*names, *("later" for _ in values[len(names) :])]
    shown = [type(value) if name in VARYING else value for name, value in zip(fields, values, strict=False)]
    assert msgspec.msgpack.encode(values) == packed
    return len(packed), shown


BATCHES = {
    "alike": [new_job(f"j{n}") for n in range(7)],
    "keys": [new_job(f"j{n}", key=None if n == 2 else f"k{n % 3}") for n in range(7)],
    "idempotency keys": [new_job(f"j{n}", idempotency_key=None if n < 2 else f"i{n}") for n in range(7)],
    "first alone with keys": [
        new_job(f"j{n}", key="k" if n == 0 else None, idempotency_key="i" if n == 0 else None)
        for n in range(7)
    ],
    "tasks in turn": [new_job(f"j{n}", task=f"t{n % 2}", priority=n) for n in range(7)],
    "delayed between": [new_job(f"j{n}", delay_ms=n % 3 * 1_000) for n in range(7)],
}


@pytest.mark.parametrize("jobs", BATCHES.values(), ids=BATCHES)
async def test_the_fast_forms_put_the_same_events_into_runs(url: str, jobs: list[NewJob]) -> None:
    """What the log says of a call of many jobs is the same, however they differ."""
    found = []
    for name, sources in (("fast", dict(loaded_sources())), ("plain", plain_sources())):
        queue = QueueRef("default", name)
        async with opened(RedisStore(url, sources=sources)) as store:
            await enqueue(store, queue, jobs)
            [first, *others] = await claim(store, queue, 4)
            await settle(store, queue, Retry(first.id, first.token, 0, FAULT))
            held = [*others, *await claim(store, queue, 4)]
            await store.moves.settle(queue, [Complete(job.id, job.token, b"7") for job in held])
            found.append([_story(event) for event in await store.events.read_events(queue)])

    assert found[0] == found[1]
    assert len(found[0]) >= 3 * 4


def _story(event: Event) -> dict[str, Any]:
    told = msgspec.structs.asdict(event)
    return {name: value for name, value in told.items() if name not in VARYING | {"queue", "cursor"}}
