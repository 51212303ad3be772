"""Quotas: what a tenant may use, in one process of the service or in several, and when to come back."""

import asyncio

import pytest

from penstock.core.errors import ConfigError, OptionError, PayloadError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.states import State
from penstock.service.errors import QuotaError
from penstock.service.problems import problem_of
from penstock.service.tenants.queue_lengths import COUNTED_SECONDS, QueueLengths
from penstock.service.tenants.quota_repository import BUILT_IN, Quota, QuotaRepository, quota_of
from penstock.service.tenants.quotas import KNOWN_SECONDS, StoredQuotas
from penstock.service.tenants.rate_limiter import BURST_SECONDS
from penstock.service.tenants.usage import Usage
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE, KeyValueEntry, StoredSchedule
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from penstock.testing.conformance.parts import Part
from tests.conformance.having import served


class Tick:
    """A clock that tests turn, together with that of the store."""

    def __init__(self, store: Store) -> None:
        self.now = 100.0
        self.store = store

    def __call__(self) -> float:
        return self.now

    async def turn(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        await self.store.clock.advance_clock(round(seconds * 1000))


def frozen_store() -> MemoryStore:
    """A store whose clock stands still unless it is turned."""
    return MemoryStore(clock_us=lambda: 1_800_000_000_000_000)


async def admitted(quotas: StoredQuotas, jobs: int = 1, tenant: str = "acme", queue: str = "mail") -> bool:
    """Whether so many jobs are let in."""
    try:
        await quotas.admit(tenant, queue, jobs=jobs, largest=10)
    except QuotaError:
        return False
    return True


@served(Part.KEY_VALUE)
async def test_a_flood_is_refused_and_told_when_to_come_back(store: Store, queue: QueueRef) -> None:
    """On every store, and others go on."""
    repository, quotas = QuotaRepository(store.key_value), StoredQuotas(store)
    await repository.set(queue.tenant, Quota(jobs_per_second=5))
    # More than time could give back while the test runs.
    assert await admitted(quotas, 100_000, queue.tenant)

    with pytest.raises(QuotaError) as refused:
        await quotas.admit(queue.tenant, "mail", jobs=1, largest=10)
    problem, headers = problem_of(refused.value)
    assert (problem.status, problem.type) == (429, "urn:penstock:quota")
    assert 1_000 < int(headers["retry-after"]) <= 20_000
    assert await admitted(quotas, 100_000, f"{queue.tenant}-other")
    assert await repository.unset(queue.tenant)


async def test_a_rate_holds_over_time_and_after_a_pause() -> None:
    store = frozen_store()
    tick = Tick(store)
    await QuotaRepository(store.key_value).set("acme", Quota(jobs_per_second=100))
    quotas = StoredQuotas(store, clock=tick)
    await tick.turn(60)
    passed = 0
    for _ in range(1_000):
        passed += await admitted(quotas)
        await tick.turn(0.001)
    burst = 100 * BURST_SECONDS

    assert 100 <= passed <= 100 + burst + 1


async def test_processes_share_the_rate_of_a_tenant() -> None:
    store = frozen_store()
    tick = Tick(store)
    await QuotaRepository(store.key_value).set("acme", Quota(jobs_per_second=100))
    services = [StoredQuotas(store, clock=tick) for _ in range(4)]
    passed = 0
    for turn in range(2_000):
        passed += await admitted(services[turn % 4])
        await tick.turn(0.001)

    assert 150 <= passed <= 2 * 100 + 100 * BURST_SECONDS + 1


async def test_a_batch_that_is_larger_than_the_rate_is_paid_for_afterwards() -> None:
    store = frozen_store()
    tick = Tick(store)
    await QuotaRepository(store.key_value).set("acme", Quota(jobs_per_second=10))
    quotas = StoredQuotas(store, clock=tick)
    assert await admitted(quotas, 1_000)

    with pytest.raises(QuotaError) as refused:
        await quotas.admit("acme", "mail", jobs=1, largest=10)
    assert refused.value.retry_after == pytest.approx(1_000 / 10 - BURST_SECONDS)
    await tick.turn(refused.value.retry_after - 0.01)
    assert not await admitted(quotas)
    await tick.turn(0.02)
    assert await admitted(quotas)


async def test_a_queue_may_not_grow_beyond_its_length_and_workers_make_room() -> None:
    store = frozen_store()
    tick = Tick(store)
    ref = QueueRef("acme", "mail")
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    quotas = StoredQuotas(store, clock=tick)
    assert await admitted(quotas, 7)
    await enqueue(store, ref, [new_job(f"j{n}") for n in range(7)])

    assert not await admitted(quotas, 4)
    assert await admitted(quotas, 4, queue="other")
    assert await admitted(quotas, 3)
    await enqueue(store, ref, [new_job(f"k{n}") for n in range(3)])
    assert not await admitted(quotas)
    running = await claim(store, ref, 5)
    assert not await admitted(quotas), "what runs may be given back at any time"
    await store.moves.settle(ref, [Complete(job.id, job.token) for job in running])
    assert await admitted(quotas, 5)
    await tick.turn(COUNTED_SECONDS)
    assert await admitted(quotas, 5)


async def test_what_was_let_in_counts_before_it_is_there() -> None:
    store = frozen_store()
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    quotas = StoredQuotas(store, clock=Tick(store))
    passed = [await admitted(quotas, 1) for _ in range(10)]
    await enqueue(store, QueueRef("acme", "mail"), [new_job(f"j{n}") for n in range(10)])

    assert all(passed)
    assert not await admitted(quotas)


async def test_what_comes_in_while_a_queue_is_counted_is_counted_too() -> None:
    """The count may be from before, and what is on its way no longer on its way."""
    store, queue = MemoryStore(), QueueRef("acme", "mail")
    counted, go_on = asyncio.Event(), asyncio.Event()
    reads = store.reads
    count = reads.counts

    async def slowly(queue: QueueRef) -> dict[State, int]:
        found = await count(queue)
        counted.set()
        await go_on.wait()
        return found

    lengths = QueueLengths(reads, lambda: 0.0)
    await lengths.enter(queue, 1, most=2)
    await lengths.enter(queue, 1, most=2)
    reads.counts = slowly  # type: ignore[method-assign]
    third = asyncio.create_task(lengths.enter(queue, 1, most=2))
    await counted.wait()
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    lengths.entered(queue, 2)
    go_on.set()
    with pytest.raises(QuotaError):
        await third


async def test_a_payload_beyond_the_quota_is_named() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(payload_bytes=100))
    quotas = StoredQuotas(store)
    await quotas.admit("acme", "mail", jobs=1, largest=100)

    with pytest.raises(PayloadError, match="101 bytes"):
        await quotas.admit("acme", "mail", jobs=1, largest=101)


async def test_schedules_are_counted() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(schedules=1))
    quotas = StoredQuotas(store)
    async with quotas.adding_schedule("acme", "mail", "nightly", 2):
        await store.schedules.put_schedule(StoredSchedule(QueueRef("acme", "mail"), "nightly", b"{}", None))

    with pytest.raises(QuotaError, match="schedules: found 1 and 1 more, wanted at most 1"):
        async with quotas.adding_schedule("acme", "mail", "weekly", 2):
            pytest.fail("a second schedule was let in")
    async with quotas.adding_schedule("globex", "mail", "nightly", 2):
        pass


async def test_streams_are_counted_while_they_last() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(streams=2))
    quotas = StoredQuotas(store)
    async with quotas.stream("acme"):
        async with quotas.stream("acme"):
            with pytest.raises(QuotaError, match="streams"):
                async with quotas.stream("acme"):
                    pytest.fail("a third stream began")
        async with quotas.stream("acme"), quotas.stream("globex"), quotas.stream(EVERYONE):
            pass
    with pytest.raises(LookupError):
        async with quotas.stream("acme"):
            raise LookupError
    async with quotas.stream("acme"), quotas.stream("acme"):
        pass


async def test_a_change_of_a_quota_is_felt_soon() -> None:
    store = frozen_store()
    tick = Tick(store)
    quotas = StoredQuotas(store, clock=tick)
    assert await admitted(quotas, 1_000)
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=1))
    assert await admitted(quotas, 1_000)
    await tick.turn(KNOWN_SECONDS)

    assert not await admitted(quotas, 1_000)


@served(Part.KEY_VALUE)
async def test_a_tenant_has_the_defaults_where_nothing_else_is_set(store: Store, queue: QueueRef) -> None:
    repository, name = QuotaRepository(store.key_value), queue.tenant
    await repository.set(None, Quota(streams=5, schedules=7))
    await repository.set(name, Quota(streams=9))

    most, schedules = BUILT_IN.queues, BUILT_IN.schedules
    assert await repository.of(name) == Quota(streams=9, schedules=7, queues=most)
    assert await repository.of(f"{name}-other") == Quota(streams=5, schedules=7, queues=most)
    assert (await repository.all())[name] == Quota(streams=9)
    assert await repository.unset(None)
    assert await repository.of(name) == Quota(streams=9, queues=most, schedules=schedules)
    assert await repository.unset(name)
    assert not await repository.unset(name)
    assert await repository.of(name) == BUILT_IN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jobs_per_second", 0),
        ("jobs_per_second", -1),
        ("queue_length", -1),
        ("payload_bytes", 0),
        ("streams", 1.5),
    ],
)
def test_a_quota_that_cannot_be_is_named(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=name):
        quota_of(**{name: value})


@served(Part.KEY_VALUE)
async def test_usage_is_added_up_over_processes(store: Store, queue: QueueRef) -> None:
    first, second = Usage(store), Usage(store)
    first.note(queue.tenant, jobs=3)
    first.note(queue.tenant, jobs=4, refused=1)
    second.note(queue.tenant, jobs=10)
    await first.flush()
    await second.flush()
    await first.flush()

    # Midnight may lie between.
    days = await first.of(queue.tenant)
    assert (sum(day.jobs for day in days), sum(day.refused for day in days)) == (17, 1)


async def test_what_a_quota_lets_in_and_refuses_is_counted() -> None:
    store = frozen_store()
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    usage = Usage(store)
    quotas = StoredQuotas(store, usage)
    await admitted(quotas, 7)
    await admitted(quotas, 20)
    await usage.flush()

    [day] = await usage.of("acme")
    assert (day.day, day.jobs, day.refused) == ("2027-01-15", 7, 20)


async def test_usage_that_could_not_be_written_is_written_later() -> None:
    store = MemoryStore()
    usage = Usage(store)
    usage.note("acme", jobs=1)
    usage.note("globex", jobs=2)
    keep = store.key_value.put_entry

    async def failing(*args: object, **more: object) -> None:
        raise ConnectionError

    store.key_value.put_entry = failing  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await usage.flush()
    store.key_value.put_entry = keep  # type: ignore[method-assign]
    await usage.flush()

    assert [day.jobs for name in ("acme", "globex") for day in await usage.of(name)] == [1, 2]


async def test_usage_of_one_tenant_that_cannot_be_written_keeps_no_other_waiting() -> None:
    """Its entries may be on a node that is away, or out of bounds for the service's own role."""
    store = MemoryStore()
    usage = Usage(store)
    kept = store.key_value.get_entry

    async def failing(tenant: str, namespace: str, name: str) -> KeyValueEntry | None:
        if tenant == "globex":
            raise ConfigError("this role was not admitted to the tenant globex")
        return await kept(tenant, namespace, name)

    store.key_value.get_entry = failing  # type: ignore[method-assign]
    for _ in range(2):
        for name in ("acme", "globex", "initech"):
            usage.note(name, jobs=1)
        with pytest.raises(ConfigError):
            await usage.flush()
    store.key_value.get_entry = kept  # type: ignore[method-assign]
    before = [day.jobs for name in ("acme", "initech") for day in await usage.of(name)]
    await usage.flush()

    assert before == [2, 2]
    assert [day.jobs for day in await usage.of("globex")] == [2]


async def test_usage_that_others_have_overwritten_is_counted_anew() -> None:
    """A tenant with a role of its own in the database can write what it likes there."""
    store = frozen_store()
    usage = Usage(store)
    for body in (b"nonsense", b'{"day":1}', b'{"day":"2027-01-15","jobs":"1"}'):
        await store.key_value.put_entry("acme", "usage", "2027-01-15", body)
        unread = await usage.of("acme")
        usage.note("acme", jobs=1)
        await usage.flush()

        assert unread == []
        assert [day.jobs for day in await usage.of("acme")] == [1]


async def test_days_are_kept_for_a_year_and_then_forgotten() -> None:
    store = frozen_store()
    usage = Usage(store)
    for _ in range(3):
        usage.note("acme", jobs=1)
        await usage.flush()
        await store.clock.advance_clock(300 * 86_400_000)
    usage.note("acme", jobs=1)
    await usage.flush()

    assert len(await store.key_value.list_entries("acme", "usage")) == 2
