"""A server at its maxmemory takes no new jobs in; all else goes on, also for who comes only then."""

import asyncio
import os
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock import Penstock, StoreFullError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.cli.conftest import Shell
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE, eventually
from tests.stores.redis.operating import tell

MAIL = QueueRef("default", "mail")


async def test_a_worker_that_starts_at_maxmemory_drains_the_queue(url: str, operator: Redis) -> None:
    """It serves one more queue that is new, and has a schedule to put."""
    ran: list[int] = []
    before, after = _app(url, ran), _app(url, ran)
    async with before:
        for number in range(3):
            await before.by_name("send", queue="mail").enqueue(number=number)
    await tell(operator, "CONFIG", "SET", "maxmemory", "1mb")
    after.queue("new", mode="keyed", max_active=3)
    after.cron("0 3 1 1 *", name="yearly")(after.by_name("send", queue="mail").call(number=9))

    async with asyncio.timeout(PATIENCE), after:
        await after.worker(burst=True).run()
        counts = await after.store.reads.counts(MAIL)
        [schedule] = await after.store.schedules.list_schedules("default")
        with pytest.raises(StoreFullError):
            await after.store.moves.enqueue(MAIL, [new_job()])
    await tell(operator, "CONFIG", "SET", "maxmemory", "0")

    assert sorted(ran) == [0, 1, 2]
    assert (counts[State.COMPLETED], counts[State.PENDING]) == (3, 0)
    assert schedule.name == "yearly"


async def test_a_scheduler_that_starts_at_maxmemory_recovers_the_leases_of_a_dead_worker(
    url: str, operator: Redis
) -> None:
    """And readers of events keep their places."""
    async with opened(RedisStore(url)) as store:
        await enqueue(store, MAIL, [new_job("a")])
        await store.moves.claim(MAIL, worker="dead", limit=1, lease_ms=1)
    await tell(operator, "CONFIG", "SET", "maxmemory", "1mb")
    app = _app(url, [])

    async with asyncio.timeout(PATIENCE), app:
        await app.store.readers.register_reader(MAIL, "mirror", 0)
        scheduler = app.scheduler(["mail"])
        keeping = asyncio.create_task(scheduler.run())

        async def is_free() -> bool:
            return not await app.store.reads.leases(MAIL)

        await eventually(is_free)
        scheduler.stop()
        await keeping
        [job] = await app.store.reads.get(MAIL, ["a"])
        await app.store.readers.remove_expired_readers(MAIL)
        readers = await app.store.readers.list_readers(MAIL)
    await tell(operator, "CONFIG", "SET", "maxmemory", "0")

    assert job is not None
    # It may be due again already.
    assert job.state in {State.DELAYED, State.PENDING}
    assert job.delivery == 1
    assert [reader.name for reader in readers] == ["mirror"]


COMMANDS = (
    "jobs list",
    "jobs list --state dead",
    "jobs show waits",
    "jobs explain waits",
    "jobs cancel waits",
    "jobs retry waits",
    "jobs retry dead-1",
    "queues list",
    "queues show mail",
    "queues pause mail --for 10m",
    "queues resume mail",
    "queues declare mail --rate 5/s",
    "queues declare keyed --mode keyed",
    "queues limits mail",
    "queues keys keyed --set ada --weight 3",
    "queues keys keyed --unset ada",
    "queues drain keyed --timeout 1s",
    "flows show waits",
    "flows cancel waits",
    "schedules list",
    "schedules show nightly",
    "schedules pause nightly",
    "schedules resume nightly",
    "schedules remove nightly",
    "dlq list",
    "dlq show dead-3",
    "dlq redrive --limit 1",
    "dlq purge --yes",
    "queues purge mail --yes",
    "events tail --queue mail --reader mirror",
    "events readers",
    "events forget mirror --queue mail",
    "doctor",
)


def test_each_command_works_at_maxmemory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but those that enqueue, which say why they do not."""
    for name in [each for each in os.environ if each.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", url)
    shell = Shell(tmp_path, url, capsys)
    shell.dead("dead-1", "dead-2", "dead-3")
    shell.enqueue("waits", "waits-2")
    shell("schedules", "add", "nightly", "send", "--cron", "0 3 * * *", "--queue", "mail")
    asyncio.run(_limit(url, "1mb"))

    # What `doctor` finds in a server that keeps nothing on disk is no error.
    failed = {line: shell.err for line in COMMANDS if shell(*line.split()) and shell.err}
    refused = shell("enqueue", "send", "--queue", "mail"), shell.err
    asyncio.run(_limit(url, "0"))

    assert failed == {}
    assert refused[0] != 0
    assert "maxmemory" in refused[1]


def _app(url: str, ran: list[int]) -> Penstock:
    app = Penstock(url)

    async def send(number: int) -> None:
        ran.append(number)

    app.queue("mail").task(send)
    return app


async def _limit(url: str, memory: str) -> None:
    operator = Redis.from_url(url)
    await tell(operator, "CONFIG", "SET", "maxmemory", memory)
    await operator.aclose()
