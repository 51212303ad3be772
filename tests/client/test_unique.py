"""Jobs that are one of a kind: unique, throttled, debounced."""

import pytest

from penstock import OptionError, Penstock, QueueRef, State, StoreError
from penstock.core.limits import Declaration
from penstock.core.payload import decode_json
from penstock.stores.memory import MemoryStore
from penstock.stores.values import QueueInfo
from penstock.tasks.task import Task
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE

Q = QueueRef("default", "default")


def make() -> tuple[Penstock, MemoryStore, Task[..., [int], int], Task[..., [int], int]]:
    store = MemoryStore()
    app = Penstock(store=store)

    @app.task
    async def sync(user: int) -> int:
        return user

    @app.task(unique="live")
    async def other(user: int) -> int:
        return user

    return app, store, sync, other


async def test_one_of_a_payload_waits() -> None:
    app, store, sync, _ = make()
    once = sync.options(unique="waiting")
    async with app:
        first = await once.enqueue(1)
        again = await once.enqueue(1)
        assert (first.created, again.created, again.id, again.same_payload) == (True, False, first.id, True)
        assert (await once.enqueue(2)).created
        await store.moves.claim(Q, worker="w", limit=10, lease_ms=30_000)
        assert (await once.enqueue(1)).created


async def test_one_of_a_payload_lives_and_tasks_do_not_share_kinds() -> None:
    app, store, sync, other = make()
    async with app:
        first = await other.enqueue(1)
        await store.moves.claim(Q, worker="w", limit=10, lease_ms=30_000)
        assert (await other.enqueue(1)).id == first.id
        assert (await sync.options(unique="live").enqueue(1)).created
        assert (await sync.options(unique="live", unique_key="a").enqueue(1)).created
        assert (await other.options(unique_key="a").enqueue(1)).created
        handles = await other.options(unique_key="b").enqueue_many([(1,), (2,)])
        assert [(each.created, each.same_payload) for each in handles] == [(True, True), (False, False)]


async def test_a_throttled_kind_has_one_job_in_the_window_whatever_became_of_it() -> None:
    app, store, sync, _ = make()
    seldom = sync.options(throttle=60)
    async with app:
        first = await seldom.enqueue(1)
        await app.worker(burst=True).run()
        assert (await seldom.enqueue(1)).id == first.id
        await store.clock.advance_clock(60_000)
        assert (await seldom.enqueue(1)).created


async def test_a_debounced_job_runs_once_with_the_newest_payload_after_a_quiet_time() -> None:
    app, store, sync, _ = make()
    async with app:
        first = await sync.options(debounce=10, unique_key="u").enqueue(1)
        assert await first.status() is State.DELAYED
        await store.clock.advance_clock(9_000)
        again = await sync.options(debounce=10, unique_key="u").enqueue(2)
        assert (again.id, again.created, again.replaced, first.replaced) == (first.id, False, True, False)
        await store.clock.advance_clock(9_000)
        await app.worker(burst=True).run()
        assert await first.status() is State.DELAYED
        await store.clock.advance_clock(1_000)
        await app.worker(burst=True).run()

        assert await first.result(timeout=PATIENCE) == 2
        assert decode_json("payload", (await first.info()).payload) == {"user": 2}


async def test_options_that_exclude_each_other_are_refused() -> None:
    _, _, sync, other = make()
    for given in (
        {"unique": "live", "throttle": 1},
        {"debounce": 1, "throttle": 1, "unique_key": "u"},
        {"debounce": 1, "unique_key": "u", "delay": 1},
        {"unique": "always"},
        {"throttle": 0},
    ):
        with pytest.raises(OptionError):
            sync.options(**given)
    with pytest.raises(OptionError, match="unique_key: found None, wanted a key beside debounce"):
        sync.options(debounce=5).call(1)
    with pytest.raises(OptionError, match="unique, throttle or debounce beside it"):
        sync.options(unique_key="u").call(1)
    with pytest.raises(OptionError, match="idempotency_key"):
        other.options(idempotency_key="k").call(1)
    with pytest.raises(OptionError, match="no delay"):
        sync.options(debounce=5, unique_key="u").options(delay=1).call(1)


def test_the_nearest_layer_says_which_rule_holds() -> None:
    app = Penstock("memory://")

    @app.queue("mail", delay=60, throttle=5).task(debounce=3, unique_key="u")
    def send() -> None: ...

    call = send.call()
    assert call.options.wait_ms == 3_000
    assert send.options(unique="live").call().options.wait_ms == 0
    assert send.options(result_retention=7).call().options.policy.result_retention_ms == 7_000


class _Without(InterceptedStore):
    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        raise StoreError("modes and limits are not available here yet")


async def test_a_store_without_limits_says_so() -> None:
    app = Penstock(store=_Without())
    app.queue("mail", max_active=1)
    async with app:
        with pytest.raises(StoreError, match="not available"):
            await app.queue("mail").counts()
