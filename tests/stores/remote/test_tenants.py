"""What a token does not allow stays refused through the store, on whatever store the service has."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import JobContext, Penstock, chain, group
from penstock.core.errors import ConfigError, PayloadError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.service.limits import Limits
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE, Topic
from penstock.testing.conformance.arrange import new_job
from tests.conformance.having import served
from tests.conformance.stores import Kind, Place
from tests.kit.service import token
from tests.kit.waiting import PATIENCE
from tests.stores.remote.kit import opened

ACME, OTHER = QueueRef("acme", "q"), QueueRef("other", "q")


def _url(where: Place, text: str, make: Callable[[], Store] = MemoryStore, **more: Any) -> str:
    scheme, _, rest = where.service(make, **more).partition("://")
    return f"{scheme}://{text}@{rest.rpartition('@')[2]}"


async def test_a_tenant_reaches_its_own_queues_alone(where: Place) -> None:
    async with opened(_url(where, token("acme"))) as store:
        await store.moves.enqueue(ACME, [new_job("a")])
        refused = 0
        for call in (
            store.moves.enqueue(OTHER, [new_job("b")]),
            store.reads.get(OTHER, ["a"]),
            store.queues.list_queues("other"),
            store.events.read_events(OTHER),
            store.key_value.get_entry("other", "s", "a"),
            store.key_value.get_entry(EVERYONE, "s", "a"),
            store.key_value.list_entries(EVERYONE, "api-tokens"),
        ):
            with pytest.raises(ConfigError, match="does not let this token"):
                await call
            refused += 1

        assert refused == 7
        assert await store.queues.list_tenants() == ["acme"]


async def test_a_token_for_one_queue_is_for_no_other(where: Place) -> None:
    async with opened(_url(where, token("acme", scopes=("store:q",)))) as store:
        await store.moves.enqueue(ACME, [new_job("a")])

        assert await store.reads.counts(ACME)
        with pytest.raises(ConfigError, match="scopes"):
            await store.reads.counts(QueueRef("acme", "mail"))


async def test_a_token_without_the_scope_opens_no_store(where: Place) -> None:
    with pytest.raises(ConfigError, match="store is not in the token's scopes"):
        async with opened(_url(where, token("acme", scopes=("read", "work")))):
            pass


async def test_a_store_says_where_it_is_without_its_token(where: Place) -> None:
    text = token("acme")
    url = _url(where, text)
    async with opened(url) as store:
        info = await store.health.info()

    assert (info.kind, info.url) == ("memory", url.replace(f"{text}@", "").partition("?")[0])


async def test_calls_too_large_for_one_request_are_made_in_parts(where: Place) -> None:
    large = b'"' + b"x" * 9_000 + b'"'
    url = _url(where, token("acme"), limits=Limits(body_bytes=20_000))
    async with opened(url) as store:
        made = await store.moves.enqueue(ACME, [new_job(f"j{n}", payload=large) for n in range(7)])
        jobs = (await store.moves.claim(ACME, worker="w", limit=7, lease_ms=60_000)).jobs
        done = await store.moves.settle(ACME, [Complete(job.id, job.token, large) for job in jobs])
        with pytest.raises(PayloadError, match=r"jobs: found .* bytes, wanted at most 20000 bytes"):
            await store.moves.enqueue(ACME, [new_job(payload=large * 3)])
        events = await store.events.read_events(ACME)

    assert [each.id for each in made] == [job.id for job in jobs] == [f"j{n}" for n in range(7)]
    assert done == [Applied(State.COMPLETED)] * 7
    assert len(events) == 21


async def test_a_worker_of_one_queue_serves_a_flow_that_ends_in_another(where: Place) -> None:
    """Its children end, and add more, for a parent that its token is not for: the service carries that."""
    url = _url(where, token("acme"))
    scheme, _, rest = url.partition("://")
    limited = f"{scheme}://{token('acme', scopes=('store:a', 'work:a'))}@{rest.rpartition('@')[2]}"
    far, near = Penstock(limited, tenant="acme"), Penstock(url, tenant="acme")
    theirs, ours = far.queue("a"), near.queue("a")

    @theirs.task(name="leaf")
    async def leaf(number: int) -> int:
        return number

    @theirs.task(name="split")
    async def split(ctx: JobContext, number: int) -> int:
        await ctx.spawn(leaf.options(id=f"leaf-{number}").call(10 * number))
        return number

    @ours.task(name="split")
    async def asked_for(number: int) -> int:
        raise NotImplementedError("it runs elsewhere")

    @near.queue("b").task
    async def join(ctx: JobContext) -> int:
        return sum(child.result for child in await ctx.children() if child.result)

    async with near, far:
        handle = await chain(group([asked_for.call(1), asked_for.call(2)]), join.call()).enqueue()
        pools = [far.worker(queues={"a": 2}), near.worker(queues={"b": 1})]
        working = [asyncio.create_task(pool.run()) for pool in pools]
        result = await handle.result(timeout=PATIENCE)
        for pool in pools:
            pool.stop()
        await asyncio.gather(*working)

    assert result == 1 + 2 + 10 + 20


@served(only_shared=True)
async def test_an_app_works_through_a_service_on_every_store(kind: Kind, where: Place) -> None:
    address = kind.address(where)
    app = Penstock(_url(where, token("acme"), lambda: kind.connect(address)), tenant="acme")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        pool = app.worker(concurrency=20)
        working = asyncio.create_task(pool.run())
        handles = await double.enqueue_many([(number,) for number in range(100)])
        results = await asyncio.gather(*(each.result(timeout=PATIENCE) for each in handles))
        pool.stop()
        await working
        async with app.store.notifier.subscribe(QueueRef("acme", "default"), Topic.READY) as subscription:
            await double.enqueue(1)
            was_notified = await subscription.wait(PATIENCE)
        events = await app.store.events.read_events(QueueRef("acme", "default"))

    assert results == [2 * number for number in range(100)]
    assert was_notified
    assert len(events) >= 301
