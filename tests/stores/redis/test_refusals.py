"""A server that worked and then refuses logins or writes for a while is waited for, as one that is away."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock import Penstock, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import new_job
from tests.kit.waiting import PATIENCE, until
from tests.stores.redis.operating import tell

Act = Callable[[Redis], Coroutine[Any, Any, None]]


async def _demote(operator: Redis) -> None:
    # Nobody is there: it keeps what it has, and is a replica nevertheless.
    await tell(operator, "REPLICAOF", "127.0.0.1", 1)


async def _promote(operator: Redis) -> None:
    await tell(operator, "REPLICAOF", "NO", "ONE")


async def _want_replicas(operator: Redis) -> None:
    await operator.config_set("min-replicas-to-write", 1)


async def _want_none(operator: Redis) -> None:
    await operator.config_set("min-replicas-to-write", 0)


async def _change_password(operator: Redis) -> None:
    await tell(operator, "ACL", "SETUSER", "app", "resetpass", ">other")
    await tell(operator, "CLIENT", "KILL", "USER", "app")


async def _change_password_back(operator: Redis) -> None:
    await tell(operator, "ACL", "SETUSER", "app", "resetpass", ">pw")


@pytest.mark.parametrize(
    ("refuse", "accept", "said"),
    [
        pytest.param(_demote, _promote, "now is a replica: the url has to name the primary", id="demoted"),
        pytest.param(_want_replicas, _want_none, "now accepts no writes: NOREPLICAS", id="lonely"),
        pytest.param(_change_password, _change_password_back, "now refused the user name", id="locked"),
    ],
)
async def test_workers_and_producers_wait_until_the_server_accepts_again(
    url: str, operator: Redis, caplog: pytest.LogCaptureFixture, refuse: Act, accept: Act, said: str
) -> None:
    """They say why, each kind of call once, and without a traceback."""
    caplog.set_level(logging.WARNING)
    await tell(operator, "ACL", "SETUSER", "app", "on", ">pw", "~penstock:*", "&penstock:*", "+@all")
    app = Penstock(url.replace("redis://", "redis://app:pw@"), retry_timeout=PATIENCE)
    mail = app.queue("mail")

    @mail.task
    async def send(number: int) -> int:
        return number

    # The scheduler writes only when something is due: give it something every second.
    app.every(seconds=1, kwargs={"number": 0})(send)

    async with asyncio.timeout(PATIENCE), app:
        worker = app.worker(poll=0.05, lease=1)
        working = asyncio.create_task(worker.run())
        before = await (await send.enqueue(1)).result()
        await refuse(operator)
        meanwhile = asyncio.create_task(send.enqueue(2))
        for logger in ("penstock.client", "penstock.worker", "penstock.maintenance"):
            await until(partial(_told, caplog, logger, said))
        is_over = working.done() or meanwhile.done()
        await accept(operator)
        after = await (await meanwhile).result()
        worker.stop()
        await working

    assert not is_over
    assert (before, after) == (1, 2)
    assert not [record for record in caplog.records if record.exc_info]
    assert _told(caplog, "penstock.client", said) == 1


async def test_a_producer_that_has_no_patience_is_told_at_once(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """The store itself repeats nothing."""
    await store.queues.open_queue(queue)
    await _want_replicas(operator)

    with pytest.raises(StoreUnavailableError, match="worked before and now accepts no writes"):
        await store.moves.enqueue(queue, [new_job("a")])


def _told(caplog: pytest.LogCaptureFixture, logger: str, said: str) -> int:
    return sum(record.name == logger and said in record.getMessage() for record in caplog.records)
