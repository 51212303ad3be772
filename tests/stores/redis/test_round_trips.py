"""One command per call, however many jobs it is about."""

from collections.abc import Awaitable
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Bury, Complete, Fail, Release, Report, Retry, Settlement, Snooze
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, enqueue, new_job

MANY = 50


async def test_a_call_about_many_jobs_is_one_command(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Enqueue, claim, heartbeat, progress, cancel, redrive, delete."""
    await enqueue(store, queue, [new_job() for _ in range(MANY)])
    held = await claim(store, queue, limit=1)
    await store.moves.heartbeat(queue, [Beat(job.id, job.token) for job in held], LEASE_MS)
    await store.moves.progress(queue, [Report(job.id, job.token, b"1") for job in held])
    await _one_of_each(store, queue)
    new = [new_job() for _ in range(MANY)]

    assert await _commands(operator, store.moves.enqueue(queue, new)) == 1
    assert await _commands(operator, store.moves.claim(queue, worker="w", limit=MANY, lease_ms=LEASE_MS)) == 1
    beats = [Beat(lease.id, lease.token) for lease in await store.reads.leases(queue)]
    assert len(beats) >= MANY
    assert await _commands(operator, store.moves.heartbeat(queue, beats, LEASE_MS)) == 1
    reports = [Report(beat.id, beat.token, b"2") for beat in beats]
    assert await _commands(operator, store.moves.progress(queue, reports)) == 1
    ids = [job.id for job in new]
    assert await _commands(operator, store.moves.cancel(queue, ids)) == 1
    assert await _commands(operator, store.moves.redrive(queue, ids)) == 1
    assert await _commands(operator, store.moves.delete(queue, ids)) == 1


@pytest.mark.parametrize("kind", ["complete", "fail", "retry", "bury", "snooze", "release", "mixed"])
async def test_settling_many_is_one_command(
    store: RedisStore, operator: Redis, queue: QueueRef, kind: str
) -> None:
    """Of one kind or of several."""
    await _one_of_each(store, queue)
    await enqueue(store, queue, [new_job() for _ in range(MANY)])
    held = await claim(store, queue, limit=MANY)
    kinds = ["complete", "fail", "retry", "bury", "snooze", "release"] if kind == "mixed" else [kind]
    settlements = [
        _settlement(kinds[number % len(kinds)], job.id, job.token) for number, job in enumerate(held)
    ]

    assert len(settlements) == MANY
    assert await _commands(operator, store.moves.settle(queue, settlements)) == 1


async def test_reading_on_from_a_cursor_is_one_transaction(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """The cursor is compared with what stands there now, and nothing comes between."""
    await enqueue(store, queue, [new_job() for _ in range(MANY)])
    cursor = (await store.events.read_events(queue, limit=1))[0].cursor
    before = await operator.info("commandstats")
    events = await store.events.read_events(queue, after=cursor)
    after = await operator.info("commandstats")
    more = {
        name.removeprefix("cmdstat_"): after[name]["calls"] - before.get(name, {"calls": 0})["calls"]
        for name in after
        if name not in {"cmdstat_info", "cmdstat_client|setname"}
    }

    assert len(events) == MANY - 1
    assert {name: count for name, count in more.items() if count} == {
        "multi": 1,
        "exec": 1,
        "xrange": 1,
        "xrevrange": 1,
        "hget": 1,
    }


async def _one_of_each(store: RedisStore, queue: QueueRef) -> None:
    """Let the server have every script before commands are counted."""
    await enqueue(store, queue, [new_job("first", priority=9)])
    [job] = await claim(store, queue, limit=1)
    await store.moves.settle(queue, [Complete(job.id, job.token)])
    await store.moves.cancel(queue, ["first"])
    await store.moves.redrive(queue, ["first"])
    await store.moves.delete(queue, ["first"])


def _settlement(kind: str, job: str, token: str) -> Settlement:
    match kind:
        case "complete":
            return Complete(job, token, b"{}")
        case "fail":
            return Fail(job, token, FAULT)
        case "retry":
            return Retry(job, token, 1_000, FAULT)
        case "bury":
            return Bury(job, token, FAULT)
        case "snooze":
            return Snooze(job, token, 1_000)
        case _:
            return Release(job, token)


async def _commands(operator: Redis, call: Awaitable[Any]) -> int:
    """How many commands clients sent for the call; what scripts do inside counts not."""
    before = await _sent(operator)
    await call
    # The second question counts itself.
    return await _sent(operator) - before - 1


async def _sent(operator: Redis) -> int:
    stats = await operator.info("commandstats")
    outer = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_info")
    return sum(int(stats[name]["calls"]) for name in outer if name in stats)
