"""Old and new workers on one server: the scripts go by their hash, and arrays grow at their end only."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Complete, Release, Retry
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import Scripts, loaded_sources
from penstock.testing.conformance import aio
from penstock.testing.conformance.arrange import FAULT, claim, claim_one, enqueue, new_job, settle, states_of
from penstock.testing.conformance.walking import World, walk_together
from penstock.testing.conformance.walking_wide import wide_walks
from tests.conformance.stores import opened
from tests.stores.redis.operating import tell

FROM_TOMORROW = "from tomorrow"
JOBS = 200
STEPS = 300


def _tomorrow() -> dict[str, str]:
    """The scripts of a later version: each is changed, and records, lanes and events have one field more."""
    sources = {path: f"{text}\n-- tomorrow\n" for path, text in loaded_sources().items()}
    more = {
        "moves/enqueue.lua": (
            "    append_enqueue(id, job",
            f"    job[LEASE_MS], job[LEASE_MS + 1] = false, '{FROM_TOMORROW}'\n",
        ),
        "shared/lanes.lua": (
            "    lanes[key] = lane\n",
            f"    lane[LANE_WEIGHT + 1] = lane[LANE_WEIGHT + 1] or '{FROM_TOMORROW}'\n",
        ),
        "shared/codec.lua": (
            "  while event[last] == nil",
            f"  last = LAST_OF_EVENT + 1\n  event[last] = '{FROM_TOMORROW}'\n",
        ),
    }
    for path, (before, line) in more.items():
        assert sources[path].count(before) == 1, path
        sources[path] = sources[path].replace(before, line + before)
    # Parts that are packed once have no room for it.
    joined = "if state == 'pending' and not extra then"
    assert sources["moves/enqueue.lua"].count(joined) == 1
    sources["moves/enqueue.lua"] = sources["moves/enqueue.lua"].replace(joined, "if false then")
    return sources


class Either:
    """A store whose calls are made by its sides in turn."""

    def __init__(self, sides: Sequence[Store]) -> None:
        self._turns = itertools.cycle(sides)

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._turns), name)


@pytest.fixture
def old(url: str) -> aio.InLoop:
    """A store as it is installed."""
    return aio.InLoop(opened(RedisStore(url)))


@pytest.fixture
def new(url: str) -> aio.InLoop:
    """A store of a later version on the same server."""
    return aio.InLoop(opened(RedisStore(url, sources=_tomorrow())))


def test_scripts_of_another_version_are_other_scripts() -> None:
    """Else the two sides would run what the other one loaded."""
    entries = [path.removesuffix(".lua") for path in loaded_sources() if not path.startswith("shared/")]
    ours, theirs = Scripts(), Scripts(_tomorrow())

    assert not {ours.get(entry).sha for entry in entries} & {theirs.get(entry).sha for entry in entries}


async def test_what_a_newer_worker_wrote_survives_the_moves_of_an_older_one(
    old: RedisStore, new: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Enqueued by one, claimed by the other, settled by the first, and so on to the end."""
    await enqueue(new, queue, [new_job("a")])
    first = await claim_one(old, queue)
    await settle(new, queue, Retry(first.id, first.token, 0, FAULT))
    second = await claim_one(old, queue)
    await settle(old, queue, Release(second.id, second.token))
    third = await claim_one(new, queue)
    await settle(old, queue, Complete(third.id, third.token, b"7"))

    [job] = await old.reads.get(queue, ["a"])

    assert job is not None
    assert [job] == await new.reads.get(queue, ["a"])
    assert (job.state, job.result, job.delivery, job.attempts) == (State.COMPLETED, b"7", 3, 1)
    assert await old.events.read_events(queue) == await new.events.read_events(queue)
    assert await _last_fields(operator, keys_of(queue).records) == [FROM_TOMORROW]


async def test_a_newer_worker_takes_what_an_older_one_wrote(
    old: RedisStore, new: RedisStore, queue: QueueRef
) -> None:
    """The field that is not there yet included."""
    await enqueue(old, queue, [new_job("a")])
    first = await claim_one(new, queue)
    await settle(old, queue, Retry(first.id, first.token, 0, FAULT))
    second = await claim_one(new, queue)
    await settle(new, queue, Complete(second.id, second.token))

    assert await states_of(old, queue, ["a"]) == [State.COMPLETED]


async def test_old_and_new_workers_drain_a_queue_whose_keys_take_turns(
    old: RedisStore, new: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Both at once: each job is delivered once, and lanes keep what only the newer side knows."""
    await new.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=3))
    jobs = [new_job(f"j{n}", key=f"k{n % 7}") for n in range(JOBS)]
    for n, side in enumerate((old, new)):
        await enqueue(side, queue, jobs[n::2])
    lanes = await _last_fields(operator, keys_of(queue).lanes)
    taken = await asyncio.gather(*(_drain(side, queue) for side in (old, new, old, new)))

    assert lanes == [FROM_TOMORROW] * 7
    assert sorted(itertools.chain(*taken)) == sorted(job.id for job in jobs)
    assert (await new.reads.counts(queue))[State.COMPLETED] == JOBS
    assert [await side.health.check(queue) for side in (old, new)] == [[], []]


async def test_old_and_new_together_walk_beside_the_reference(
    old: RedisStore, new: RedisStore, queue: QueueRef
) -> None:
    """With all there is; each call is made by the other side than the last."""
    for seed in range(3):
        store: Any = Either([old, new])
        walks = wide_walks(World(store, seed), queue.tenant, seed)
        for walk in walks:
            await walk.declare_first()
        await walk_together(walks, STEPS)


async def _drain(store: Store, queue: QueueRef) -> list[str]:
    done: list[str] = []
    while jobs := await claim(store, queue, limit=2):
        await store.moves.settle(queue, [Complete(job.id, job.token) for job in jobs])
        done += [job.id for job in jobs]
    return done


async def _last_fields(operator: Redis, key: str) -> list[Any]:
    """The last field of each array in a hash."""
    arrays: list[bytes] = await tell(operator, "HVALS", key)
    return [msgspec.msgpack.decode(packed)[-1] for packed in arrays]
