"""The producing side on every store: from enqueue to result, with and without await."""

import asyncio
import secrets
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Fail, Penstock, State
from penstock.core.errors import OptionError, QueueFullError
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import Part
from tests.conformance.having import having
from tests.conformance.stores import Kind, Place
from tests.kit.waiting import PATIENCE

PAGES = (("ada", 2), ("bob", 1), ("bob", 2))


@pytest.fixture
def unopened(kind: Kind, where: Place) -> Store:
    """A store of each kind that is not open yet."""
    return kind.connect(kind.address(where))


async def test_from_enqueue_to_result(unopened: Store) -> None:
    app = Penstock(store=unopened, tenant=f"t{secrets.token_hex(4)}")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        pool = app.worker(concurrency=20)
        working = asyncio.create_task(pool.run())
        one = await double.enqueue(1)
        assert await one.result(timeout=PATIENCE) == 2
        many = await double.enqueue_many([(number,) for number in range(100)])
        together = await asyncio.gather(*(double.enqueue(number) for number in range(100)))
        results = await asyncio.gather(*(each.result(timeout=PATIENCE) for each in [*many, *together]))
        pool.stop()
        await working

        assert results == [2 * number for number in range(100)] * 2
        assert await one.status() is State.COMPLETED


async def test_jobs_are_found_retried_cancelled_and_deleted_by_a_filter(unopened: Store) -> None:
    app = Penstock(store=unopened, tenant=f"t{secrets.token_hex(4)}")
    mail = app.queue("mail")

    @mail.task
    async def send(to: str) -> str:
        raise Fail(f"no such address: {to}")

    async with app:
        for to in ("ada", "bob", "eve"):
            await send.options(key=to).enqueue(to)
        pool = app.worker(concurrency=1)
        working = asyncio.create_task(pool.run())
        await mail.drain(20)
        pool.stop()
        await working

        assert {job.key for job in await mail.jobs(states=["failed"], where="error like '%b'")} == {"bob"}
        assert await mail.jobs(since=datetime.now(UTC) + timedelta(hours=1)) == []
        assert await mail.retry_all(where="json_extract(payload, '$.to') <> 'eve'") == 2
        assert await mail.cancel_all(key="bob") == 1
        assert await mail.delete_all(states=["failed", "cancelled"], limit=1) == 1
        assert sum((await mail.counts()).values()) == 2
        for wrong in ({"since": datetime.now()}, {"states": ["active"]}, {"where": "1 ="}, {}):  # noqa: DTZ005
            with pytest.raises(OptionError, match="wanted"):
                await mail.delete_all(**{"states": ["failed"], **wrong} if wrong else {})  # type: ignore[arg-type]


async def test_without_await_beside_a_running_worker(unopened: Store) -> None:
    app = Penstock(store=unopened, tenant=f"t{secrets.token_hex(4)}")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    def produce() -> list[int]:
        with app.blocking as queue:
            once = queue.enqueue(double.options(idempotency_key="k"), 1)
            again = queue.enqueue(double.options(idempotency_key="k"), 1)
            assert (once.id, once.created, again.created) == (again.id, True, False)
            handles = [once, *queue.enqueue_many(double, [(number,) for number in range(2, 50)])]
            return [queue.result(handle, timeout=PATIENCE) for handle in handles]

    pool = app.worker()
    working = asyncio.create_task(pool.run())
    results = await asyncio.to_thread(produce)
    pool.stop()
    await working

    assert results == [2 * number for number in range(1, 50)]


@having(Part.KEYS, Part.LIMITS, Part.UNIQUE)
async def test_keys_kinds_and_bounds_hold_for_an_app(unopened: Store) -> None:
    app = Penstock(store=unopened, tenant=f"t{secrets.token_hex(4)}")
    sync = app.queue("sync", mode="keyed", key_limit=1, max_length=4)
    running: Counter[str] = Counter()
    most = 0

    @sync.task
    async def pull(user: str, page: int) -> int:
        nonlocal most
        running[user] += 1
        most = max(most, running[user])
        await asyncio.sleep(0)
        running[user] -= 1
        return page

    async with app:
        only = pull.options(key="ada", unique="waiting")
        first, same = await only.enqueue("ada", 1), await only.enqueue("ada", 1)
        rest = [await pull.options(key=user).enqueue(user, page) for user, page in PAGES]
        with pytest.raises(QueueFullError):
            await pull.options(key="bob").enqueue("bob", 3)
        with pytest.raises(OptionError, match="key"):
            await pull.enqueue("eve", 1)
        await app.worker(concurrency=8, burst=True).run()
        results = [await each.result(timeout=PATIENCE) for each in (first, *rest)]

    assert (same.id, same.created) == (first.id, False)
    assert (results, most) == ([1, 2, 1, 2], 1)
