"""The log in runs: damage of single bytes, the form before, trimming beside readers, an upgrade."""

import asyncio
import random
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.history import Checker
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Retry, Snooze
from penstock.stores.redis import RedisStore
from penstock.stores.redis.codec.runs import RUN_LENGTH, read_runs
from penstock.stores.redis.event_pages import EventPages
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import loaded_sources
from penstock.testing.conformance import aio
from penstock.testing.conformance.arrange import FAULT, claim, enqueue, new_job
from penstock.testing.conformance.walking import World, walk_together
from penstock.testing.conformance.walking_wide import wide_walks
from tests.conformance.stores import opened
from tests.stores.redis.earlier import before_runs
from tests.stores.redis.test_versions import Either

STEPS = 300
Entries = list[tuple[bytes, dict[bytes, bytes]]]


@pytest.fixture
def before(url: str) -> aio.InLoop:
    """A store whose scripts write an entry for each event."""
    return aio.InLoop(opened(RedisStore(url, sources=before_runs())))


async def _history(store: RedisStore, queue: QueueRef, rounds: int = 4) -> list[Event]:
    """Runs of many lengths, with fields that differ, and moves that are mixed."""
    for n in range(rounds):
        batch = [new_job(f"r{n}-{at}", key=f"k{at % 3}" if n % 2 else None) for at in range(3 * n + 1)]
        await enqueue(store, queue, batch)
        held = await claim(store, queue, 2 * n + 1)
        await store.moves.settle(
            queue,
            [
                Retry(job.id, job.token, 1_000, FAULT) if at % 3 == 1 else Complete(job.id, job.token)
                for at, job in enumerate(held)
            ],
        )
    return await store.events.read_events(queue, limit=10_000)


async def _entries(operator: Redis, queue: QueueRef) -> Entries:
    found: Any = await operator.xrange(keys_of(queue).events)
    return [(number, dict(fields)) for number, fields in found]


async def _rewrite(operator: Redis, queue: QueueRef, entries: Entries) -> None:
    """Put other entries in the place of the log's: streams only grow."""
    key = keys_of(queue).events
    await operator.delete(key)
    for number, fields in entries:
        await operator.xadd(key, fields, id=number)  # type: ignore[arg-type] # bytes are as good


def _spoiled(entries: Entries, at: int, draw: random.Random) -> Entries:
    """The entries, with one bit changed in the value of one."""
    number, fields = entries[at]
    [(name, value)] = fields.items()
    place = draw.randrange(len(value))
    changed = bytes([value[place] ^ (1 << draw.randrange(8))])
    return [*entries[:at], (number, {name: value[:place] + changed + value[place + 1 :]}), *entries[at + 1 :]]


def _range(entries: Entries, at: int, newest: int) -> range:
    """The numbers of the events of an entry."""
    starts = [*(int(number.partition(b"-")[0]) for number, _ in entries), newest + 1]
    return range(starts[at], starts[at + 1])


async def test_a_call_of_many_jobs_is_one_entry(store: RedisStore, operator: Redis, queue: QueueRef) -> None:
    """And a call of more than an entry holds is as few as can be."""
    await enqueue(store, queue, [new_job(f"a{n}", idempotency_key=f"i{n}") for n in range(100)])
    held = await claim(store, queue, 100)
    await store.moves.settle(queue, [Complete(job.id, job.token) for job in held])
    assert [number for number, _ in await _entries(operator, queue)] == [b"1-0", b"101-0", b"201-0"]

    await enqueue(store, queue, [new_job(f"b{n}") for n in range(RUN_LENGTH + 1)])
    assert [number for number, _ in await _entries(operator, queue)][3:] == [b"301-0", b"1301-0"]
    assert await store.events.event_range(queue) == (1, 1301)
    assert [event.job for event in await store.events.read_events(queue, 1299)] == ["b999", "b1000"]


async def test_a_page_fetches_few_entries_beyond_those_that_it_needs(
    store: RedisStore, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may have a thousand events: a reader of small pages would fetch the log many times over."""
    fetched = []
    around = EventPages._around

    async def counted(pages: EventPages, of: QueueRef, number: int, size: int) -> Any:
        fetched.append(size)
        return await around(pages, of, number, size)

    monkeypatch.setattr(EventPages, "_around", counted)
    for call in range(6):
        await enqueue(store, queue, [new_job(f"{call}-{number}") for number in range(1_000)])
    read, after = 0, "0"
    while page := await store.events.read_events(queue, after, 500):
        read += len(page)
        after = await store.events.cursor_after(queue, after, len(page))

    assert read == 6_000
    pages = 6_000 // 500 + 1
    assert sum(fetched) <= 4 * (pages + 1) + 2 * pages


async def test_any_single_bit_that_changes_in_an_entry_is_noticed(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Of every bit of a run, and only of its own: all others are read."""
    events = await _history(store, queue, 3)
    entries = await _entries(operator, queue)
    flat = [(number, [part for pair in fields.items() for part in pair]) for number, fields in entries]
    at = max(range(len(entries)), key=lambda each: len(entries[each][1][b"r"]))
    sound = read_runs(flat, len(events))
    assert [run.why for run in sound] == [None] * len(flat)

    value = entries[at][1][b"r"]
    for bit in range(8 * len(value)):
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        runs = read_runs([*flat[:at], (flat[at][0], [b"r", bytes(changed)]), *flat[at + 1 :]], len(events))
        assert runs[at].why is not None
        assert (runs[at].first, runs[at].last) == (sound[at].first, sound[at].last)
        assert runs[:at] + runs[at + 1 :] == sound[:at] + sound[at + 1 :]


@pytest.mark.parametrize("seed", range(6))
async def test_readers_tell_of_a_damaged_range_once_and_read_the_rest(
    store: RedisStore, operator: Redis, queue: QueueRef, seed: int
) -> None:
    """Wherever they begin: records, columns, cursors, the list of damages and the check of the store."""
    draw = random.Random(seed)
    events = await _history(store, queue)
    entries = await _entries(operator, queue)
    at = draw.randrange(len(entries))
    gone = _range(entries, at, len(events))
    await _rewrite(operator, queue, _spoiled(entries, at, draw))
    rest = [event for event in events if event.seq not in gone]

    for limit in (1, 7, 1_000):
        found, cursor = list[Event](), "0"
        while page := await store.events.read_events(queue, cursor, limit):
            found += page
            cursor = page[-1].cursor
        assert found == rest
    [damage] = await store.events.damaged_events(queue)
    assert (damage.seq, damage.last or damage.seq) == (gone[0], gone[-1])
    assert str(gone[0]) in damage.why
    assert str(gone[-1]) in damage.why
    columns = await store.events.event_columns(queue, 0, str(len(events)), 1_000)
    assert columns.count == len(rest) + 1
    [index] = columns.broken
    assert columns.fields["seq"][index] == gone[0]
    assert columns.ends.get(index, gone[0]) == gone[-1]
    cursors = columns.cursors(queue)
    assert cursors[:index] + cursors[index + 1 :] == [event.cursor for event in rest]
    assert cursors[index] == str(gone[-1])
    for start in range(len(events) + 1):
        after = [event for event in rest if event.seq > start]
        assert await store.events.read_events(queue, start) == after
        inside = await store.events.event_columns(queue, start, str(len(events)), 1_000)
        assert inside.count == len(after) + (start < gone[-1])
        reached = await store.events.cursor_after(queue, start, 3)
        assert int(reached.partition("-")[0]) == min(len(events), start + 3)
    assert await store.health.check(queue) == []


async def test_an_entry_that_is_gone_is_a_hole_for_the_checker(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Readers go on behind it, and the missing numbers are told."""
    events = await _history(store, queue)
    entries = await _entries(operator, queue)
    gone = _range(entries, 3, len(events))
    await operator.xdel(keys_of(queue).events, entries[3][0])
    checker = Checker(starts={queue: 1})
    for event in await store.events.read_events(queue):
        checker.feed(event)

    breaches = [str(breach) for breach in checker.finish(None).breaches]

    assert any(f"{gone[0]}" in breach for breach in breaches)
    assert await store.events.read_events(queue, gone[0]) == events[gone[-1] :]


async def test_both_forms_stand_in_one_log(before: RedisStore, store: RedisStore, queue: QueueRef) -> None:
    """A reader reads through, its cursors of before hold, and either side may trim."""
    await _history(before, queue, 3)
    early = await store.events.read_events(queue)
    assert early == await before.events.read_events(queue)
    await enqueue(store, queue, [new_job(f"n{n}") for n in range(5)])
    await enqueue(before, queue, [new_job(f"o{n}") for n in range(5)])
    await enqueue(store, queue, [new_job(f"p{n}") for n in range(5)])
    events = await store.events.read_events(queue)

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[: len(early)] == early
    assert await store.events.read_events(queue, early[-1].cursor) == events[len(early) :]
    columns = await store.events.event_columns(queue, 0, events[-1].cursor, 1_000)
    assert columns.cursors(queue) == [event.cursor for event in events]
    assert list(columns.fields["job"]) == [event.job for event in events]
    assert await store.events.trim(queue, through=len(early) + 6) == len(early) + 6
    assert await store.events.read_events(queue, len(early) + 6) == events[len(early) + 6 :]
    assert await store.health.check(queue) == []


async def test_workers_of_before_and_of_now_walk_beside_the_reference(
    before: RedisStore, store: RedisStore, queue: QueueRef
) -> None:
    """With all there is; each call is made by the other side than the last."""
    for seed in range(2):
        either: Any = Either([before, store])
        walks = wide_walks(World(either, seed), queue.tenant, seed)
        for walk in walks:
            await walk.declare_first()
        await walk_together(walks, STEPS)


async def test_the_schema_is_raised_by_the_first_that_opens_and_work_goes_on(
    url: str, operator: Redis, before: RedisStore, queue: QueueRef
) -> None:
    """Leases of before are settled after, and events of before are read."""
    await enqueue(before, queue, [new_job(f"j{n}") for n in range(20)])
    held = await claim(before, queue, 10)
    await operator.hset("penstock:store", "schema", "1")
    async with opened(RedisStore(url)) as store:
        assert await operator.hget("penstock:store", "schema") == b"2"
        await store.moves.settle(queue, [Complete(job.id, job.token) for job in held[:5]])
        await before.moves.settle(queue, [Complete(job.id, job.token) for job in held[5:]])
        events = await store.events.read_events(queue)

    checker = Checker(starts={queue: 1})
    for event in events:
        checker.feed(event)
    assert checker.finish(None).breaches == ()
    assert len(events) == 40


async def test_trimming_beside_readers_costs_nobody_an_event_unseen(
    store: RedisStore, queue: QueueRef
) -> None:
    """A reader gets what follows its cursor, or is told that it was trimmed."""
    await _history(store, queue, 12)
    _, last = await store.events.event_range(queue)
    draw = random.Random(7)
    lost = asyncio.Event()

    async def trim() -> None:
        first = 1
        while first <= last:
            first += draw.randrange(1, 9)
            await store.events.trim(queue, through=min(first, last))
        lost.set()

    async def read(page: int) -> int:
        cursor, told, seen = "0", 0, 0
        while True:
            try:
                found = await store.events.read_events(queue, cursor, page)
            except CursorLostError as error:
                first, end = error.trimmed or (0, 0)
                told += end - first + 1
                cursor = str(end)
                continue
            if not found:
                return told + seen
            numbers = [event.seq for event in found]
            start = int(cursor.partition("-")[0]) + 1
            assert numbers == list(range(start, start + len(numbers)))
            seen += len(found)
            cursor = found[-1].cursor

    *read_in_all, _ = await asyncio.gather(read(1), read(5), read(400), trim())

    assert read_in_all == [last] * 3
    assert lost.is_set()


MUTANTS = {
    "a run of one move": ("    and shared[EVENT_MOVE] == event[EVENT_MOVE] and", "    and"),
    "what differs becomes a column": ("      add_column(field, value)\n      columns", "      columns"),
    "a column goes on": ("      column[count] = value\n", "      column[count] = column[1]\n"),
    "those before have what they shared": ("column[at] = same end", "column[at] = value end"),
    "a key of a plain job differs": (
        "    add_column(field, value)\n  end\nend\n\nlocal function packed",
        "  end\nend\n\nlocal function packed",
    ),
    "the first number": ("{first = seq,", "{first = seq + 1,"),
}


@pytest.mark.parametrize("guard", MUTANTS)
async def test_a_log_whose_script_lacks_a_guard_tells_another_story(url: str, guard: str) -> None:
    """Every line that decides what an entry has is needed."""
    source, mutant = loaded_sources()["shared/runs.lua"], MUTANTS[guard]
    assert source.count(mutant[0]) == 1
    changed = {**loaded_sources(), "shared/runs.lua": source.replace(*mutant)}

    async def told(sources: dict[str, str] | None, queue: QueueRef) -> list[Any]:
        async with opened(RedisStore(url, sources=sources)) as store:
            jobs = [new_job(f"j{n}", key=f"k{n % 2}", task=f"t{n // 3}", delay_ms=n // 5) for n in range(7)]
            await enqueue(store, queue, jobs)
            await enqueue(store, queue, [new_job(f"l{n}", key=f"k{n % 2}") for n in range(3)])
            held = await claim(store, queue, 4)
            await store.moves.settle(
                queue,
                [
                    Complete(held[0].id, held[0].token),
                    Retry(held[1].id, held[1].token, 0, FAULT),
                    *(Snooze(job.id, job.token, 0) for job in held[2:]),
                ],
            )
            await claim(store, queue, 4)
            await store.moves.delete(queue, ["l1", "l2"])
            await store.moves.cancel(queue, ["j5"])
            try:
                columns = await store.events.event_columns(queue, 0, "1000", 1_000)
            except CursorLostError as error:
                return [str(error)]
            named = ("seq", "move", "job", "key", "task", "version", "delivery", "jobs", "target")
            return [[*columns.fields.get(name, ())] for name in named]

    assert await told(changed, QueueRef("default", "mutant")) != await told(
        None, QueueRef("default", "sound")
    )
