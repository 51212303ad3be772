"""Quotas hold on every way into the service, and when many come at the same time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.client.relay import relay
from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Every
from penstock.core.flows import JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration
from penstock.core.moves import Beat, Bury, Fault
from penstock.core.rollups import Deltas, FoldState
from penstock.core.states import WAITING
from penstock.schedules.ticker import Ticker
from penstock.service.app import Service
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.tenants.quota_repository import Quota, QuotaRepository
from penstock.service.tenants.quotas import StoredQuotas
from penstock.service.tenants.relay_backlogs import RelayBacklogs
from penstock.stores.absent import ANSWERS
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import Pause, Query, Spawn, StoredSchedule
from penstock.stores.wire import CALLS, MEDIA_TYPE
from penstock.testing.conformance.arrange import schedule_body
from penstock.testing.conformance.parts import Part
from tests.conformance.having import served
from tests.kit import intercepted
from tests.service.kit import client_of

KEY = DevelopmentKey.make()
PACKED = {"content-type": MEDIA_TYPE}
DECLARED = {"version": 1}


@asynccontextmanager
async def serving(store: Store, tenant: str = "acme") -> AsyncIterator[httpx.AsyncClient]:
    """A client of the tenant, at a process of the service with a handle of its own on the store."""
    store = store.clone()
    service = Service(
        store, authenticator=authenticator_of(None, ApiTokens(store), KEY), quotas=StoredQuotas(store)
    )
    made = KEY.mint(tenants=[tenant], subject="ada", scopes=["*"], seconds=600, now=time.time())
    async with service, client_of(service) as client:
        client.headers["authorization"] = f"Bearer {made}"
        yield client


def new(name: str, **more: Any) -> NewJob:
    return NewJob(id=name, nonce=name, task="t", payload=b"{}", **more)


async def called(
    client: httpx.AsyncClient, move: str, queue: str | None, /, tenant: str = "acme", **given: Any
) -> Any:
    """The answer of a call, or the problem."""
    call = CALLS[move]
    body = call.encode(tenant, queue if call.scope == "queue" else None, given)
    answer = await client.post(f"/v1/store/{move}", content=body, headers=PACKED)
    return call.decode_answer(answer.content) if answer.status_code == 200 else answer.json()


async def waiting(store: Store, queue: QueueRef) -> int:
    counts = await store.reads.counts(queue)
    return sum(counts[state] for state in WAITING)


async def running(store: Store, queue: QueueRef) -> Beat:
    """The lease of a job that runs."""
    await store.moves.enqueue(queue, [new("runs")])
    (job,) = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=600_000)).jobs
    return Beat(job.id, job.token)


# The length of queues


async def carried(store: Store, *queues: QueueRef) -> None:
    """Everything that waits in these queues for others is brought there."""
    for queue in queues:
        while await relay(store, queue):
            pass


@served(Part.FLOWS)
async def test_children_of_a_running_job_count_in_their_own_queue(store: Store, queue: QueueRef) -> None:
    tenant, target = queue.tenant, QueueRef(queue.tenant, "target")
    await QuotaRepository(store.key_value).set(tenant, Quota(queue_length=10))
    lease = await running(store, queue)
    answer: Any = None
    async with serving(store, tenant) as client:
        for batch in range(12):
            spawns = [Spawn("target", new(f"j{batch}-{n}")) for n in range(8)]
            answer = await called(client, "spawn", queue.name, tenant=tenant, lease=lease, spawns=spawns)
        await carried(store, queue)
    await QuotaRepository(store.key_value).unset(tenant)

    assert (answer["status"], answer["errors"][0]["parameter"]) == (429, "queue_length")
    assert await waiting(store, target) == 8


async def test_children_that_cannot_be_carried_over_yet_count_too() -> None:
    """A queue that is declared to be short fills up by entries of others."""
    store, a, target = MemoryStore(), QueueRef("acme", "a"), QueueRef("acme", "target")
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    await store.queues.declare(target, Declaration(max_length=1))
    await store.moves.enqueue(target, [new("first")])
    lease = await running(store, a)
    async with serving(store) as client:
        for batch in range(6):
            spawns = [Spawn("target", new(f"j{batch}-{n}")) for n in range(4)]
            await called(client, "spawn", "a", lease=lease, spawns=spawns)

    assert len(await store.flows.list_relay_entries(a)) + await waiting(store, target) <= 10


@served(Part.FLOWS)
async def test_children_from_many_queues_that_cannot_be_carried_over_yet_count_together(
    store: Store, queue: QueueRef
) -> None:
    """Each queue on its own has few for the one that is full; once that has room, they all arrive."""
    tenant, target = queue.tenant, QueueRef(queue.tenant, "target")
    await QuotaRepository(store.key_value).set(tenant, Quota(queue_length=10))
    await store.queues.declare(target, Declaration(max_length=1))
    await store.moves.enqueue(target, [new("first")])
    sources = [QueueRef(tenant, f"source{number}") for number in range(4)]
    async with serving(store, tenant) as client:
        for source in sources:
            lease = await running(store, source)
            spawns = [Spawn("target", new(f"{source.name}-{number}")) for number in range(4)]
            await called(client, "spawn", source.name, tenant=tenant, lease=lease, spawns=spawns)
        await store.queues.declare(target, Declaration(version=2))
        direct = await client.post("/v1/jobs", json={"jobs": [{"queue": "target", "task": "t"}] * 4})
        await carried(store, *sources)
    await QuotaRepository(store.key_value).unset(tenant)

    assert direct.status_code == 429
    assert await waiting(store, target) == 9


async def test_what_was_brought_to_its_queue_since_is_not_counted_as_on_its_way() -> None:
    store, source = MemoryStore(), QueueRef("acme", "source")
    now = 0.0

    async def exists(queue: QueueRef) -> bool:
        return await store.queues.find_queue(queue) is not None

    backlogs = RelayBacklogs(store.flows, exists, lambda: now)
    lease = await running(store, source)
    await store.flows.spawn(
        source, lease=lease, spawns=[Spawn("target", new("a")), Spawn("target", new("b"))]
    )
    counts = [await backlogs.on_their_way("acme"), await backlogs.on_their_way("acme", "source")]
    await carried(store, source)
    counts.append(await backlogs.on_their_way("acme"))
    now = 1.5
    counts.append(await backlogs.on_their_way("acme"))
    await backlogs.on_their_way("acme", "gone")

    assert [count["target"] for count in counts] == [0, 2, 2, 0]
    assert [info.queue.name for info in await store.queues.list_queues("acme")] == ["source", "target"]


@pytest.mark.parametrize("how", ["release", "retry", "snooze"])
async def test_jobs_that_are_given_back_find_their_places_still_taken(how: str) -> None:
    store, mail = MemoryStore(), QueueRef("acme", "mail")
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    held: list[dict[str, Any]] = []
    async with serving(store) as client:
        for _ in range(30):
            await client.post("/v1/queues/mail/jobs", json={"task": "t"})
            claims = await client.post("/v1/queues/mail/claims", json={"worker": "w", "limit": 10})
            held += claims.json()["jobs"]
        more = {} if how == "release" else {"delay": 0}
        back = [{"how": how, "id": job["id"], "token": job["token"], **more} for job in held]
        await client.post("/v1/queues/mail/claims/settle", json={"settlements": back})

    assert await waiting(store, mail) == 10


async def test_all_schedules_of_a_tenant_have_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.tenants.quotas.SCHEDULE_BYTES", 10_000)
    fields = {"queue": "mail", "task": "t", "every": 60, "payload": {"a": "x" * 3_000}}
    async with serving(MemoryStore()) as client:
        answers = [await client.put(f"/v1/schedules/s{n}", json=fields) for n in range(4)]
        again = await client.put("/v1/schedules/s0", json=fields)

    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert "at most 10000 in all" in answers[-1].json()["detail"]
    assert again.status_code == 200


async def test_jobs_of_a_flow_count_in_their_own_queues() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    async with serving(store) as client:
        for batch in range(5):
            spawns = [Spawn("b", new(f"b{batch}-{n}")) for n in range(4)]
            await called(client, "enqueue", "a", jobs=[new(f"a{batch}")], spawns=spawns)
        wide = [{"name": f"n{n}", "queue": "c", "task": "t"} for n in range(9)]
        first = await client.post("/v1/flows", json={"jobs": wide})
        second = await client.post("/v1/flows", json={"jobs": wide})
    await carried(store, QueueRef("acme", "a"))

    assert (first.status_code, second.status_code) == (201, 429)
    assert [await waiting(store, QueueRef("acme", name)) for name in "abc"] == [2, 8, 9]


@pytest.mark.parametrize("way", ["retry", "redrive", "record"])
async def test_dead_jobs_do_not_come_back_beyond_the_length(way: str) -> None:
    store, ref = MemoryStore(), QueueRef("acme", "mail")
    await store.moves.enqueue(ref, [new(f"j{n}") for n in range(20)])
    claims = await store.moves.claim(ref, worker="w", limit=20, lease_ms=60_000)
    await store.moves.settle(ref, [Bury(job.id, job.token, Fault("ERROR")) for job in claims.jobs])
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    ids = [f"j{n}" for n in range(20)]
    async with serving(store) as client:
        if way == "retry":
            answers = [await client.post(f"/v1/queues/mail/jobs/{each}/retry") for each in ids]
            assert [each.status_code for each in answers] == [200] * 10 + [429] * 10
        elif way == "redrive":
            path = "/v1/queues/mail/dead-letters/redrive"
            answers = [await client.post(path, json={"limit": 8}) for _ in range(2)]
            assert [each.status_code for each in answers] == [200, 429]
        else:
            refused = await called(client, "redrive", "mail", ids=ids)
            assert refused["status"] == 429
            await called(client, "redrive", "mail", ids=ids[:10])

    assert await waiting(store, ref) == (8 if way == "redrive" else 10)


@served(Part.KEY_VALUE)
async def test_many_at_once_do_not_pass_the_length(store: Store, queue: QueueRef) -> None:
    tenant = queue.tenant
    await QuotaRepository(store.key_value).set(tenant, Quota(queue_length=10))
    async with serving(store, tenant) as client:
        path = f"/v1/queues/{queue.name}/jobs"
        answers = await asyncio.gather(*(client.post(path, json={"task": "t"}) for _ in range(40)))
    await QuotaRepository(store.key_value).unset(tenant)

    assert {each.status_code for each in answers} == {201, 429}
    assert await waiting(store, queue) <= 10


async def test_schedules_fire_within_the_quotas() -> None:
    store, ref = MemoryStore(), QueueRef("acme", "mail")
    start = await store.clock.now()
    late = Schedule(
        name="s", spec=Every(1_000), task="t", payload=b"{}", catch_up=CatchUp.ALL, catch_up_limit=100
    )
    await store.schedules.put_schedule(StoredSchedule(ref, "s", encode_schedule(late), start))
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=10))
    await store.clock.advance_clock(60_000)
    ticker = Ticker(store, ref, StoredQuotas(store))
    while await ticker.tick():
        pass

    assert await waiting(store, ref) == 10


async def test_jobs_of_schedules_use_the_rate_of_the_tenant() -> None:
    store, ref = MemoryStore(), QueueRef("acme", "mail")
    start = await store.clock.now()
    late = Schedule(
        name="s", spec=Every(1_000), task="t", payload=b"{}", catch_up=CatchUp.ALL, catch_up_limit=50
    )
    await store.schedules.put_schedule(StoredSchedule(ref, "s", encode_schedule(late), start))
    await QuotaRepository(store.key_value).set("acme", Quota(jobs_per_second=0.001))
    await store.clock.advance_clock(40_000)
    quotas = StoredQuotas(store)
    await Ticker(store, ref, quotas).tick()
    async with serving(store) as client:
        refused = await client.post("/v1/queues/mail/jobs", json={"task": "t"})
    await store.clock.advance_clock(2_000)
    fired = await waiting(store, ref)
    await Ticker(store, ref, quotas).tick()

    assert fired > 10
    assert refused.status_code == 429
    assert await waiting(store, ref) == fired


# Schedules


@served(Part.KEY_VALUE)
async def test_many_schedules_at_once_do_not_pass_the_quota(store: Store, queue: QueueRef) -> None:
    """Not in one process, and not in two; by both ways of putting one."""
    tenant = queue.tenant
    await QuotaRepository(store.key_value).set(tenant, Quota(schedules=2))
    async with serving(store, tenant) as first, serving(store, tenant) as second:

        async def put(number: int) -> Any:
            client = (first, second)[number % 2]
            fields = {"queue": queue.name, "task": "t", "every": 3_600}
            if number % 3:
                return (await client.put(f"/v1/schedules/s{number}", json=fields)).status_code
            stored = StoredSchedule(queue, f"s{number}", schedule_body(f"s{number}"), None)
            told = await called(client, "put_schedule", None, tenant=tenant, schedule=stored)
            return 201 if told is None else told["status"]

        statuses = await asyncio.gather(*(put(number) for number in range(12)))
        kept = await store.schedules.list_schedules(tenant)
        fields = {"queue": queue.name, "task": "t2", "every": 3_600}
        changed = (await first.put(f"/v1/schedules/{kept[0].name}", json=fields)).status_code
        moved = await first.put(f"/v1/schedules/{kept[0].name}", json=fields | {"queue": "another"})
    await QuotaRepository(store.key_value).unset(tenant)

    assert sorted(statuses) == [201] * 2 + [429] * 10
    assert len(kept) == len(await store.schedules.list_schedules(tenant)) == 2
    assert (changed, moved.status_code) == (200, 200)


# Queues


JOB = {"task": "t"}
SCHEDULE = {"queue": "new", "task": "t", "every": 3_600}
WAYS: dict[str, Any] = {
    "create_job": ("POST", "/v1/queues/new/jobs", JOB),
    "create_jobs": ("POST", "/v1/jobs", {"jobs": [{"queue": "old", **JOB}, {"queue": "new", **JOB}]}),
    "create_flow": (
        "POST",
        "/v1/flows",
        {"jobs": [{"name": "a", "queue": "old", **JOB}, {"name": "b", "queue": "new", **JOB}]},
    ),
    "declare_queue": ("PUT", "/v1/queues/new", {}),
    "put_schedule": ("PUT", "/v1/schedules/s", SCHEDULE),
}
RECORDS: dict[str, Any] = {
    "enqueue": ("enqueue", "new", {"jobs": [new("a")]}),
    "enqueue with spawns": ("enqueue", "old", {"jobs": [new("a")], "spawns": [Spawn("new", new("b"))]}),
    "open_queue": ("open_queue", "new", {}),
    "declare": ("declare", "new", {"declaration": Declaration()}),
    "set_key_rule": ("set_key_rule", "new", {"key": "k", "rule": None}),
    "pause_queue": ("pause_queue", "new", {"pause": Pause(0)}),
    "register_reader": ("register_reader", "new", {"name": "r", "cursor": 0}),
    "put_schedule as a record": (
        "put_schedule",
        None,
        {"schedule": StoredSchedule(QueueRef("acme", "new"), "s", schedule_body("s"), None)},
    ),
}


async def names(store: Store, tenant: str = "acme") -> list[str]:
    return [info.queue.name for info in await store.queues.list_queues(tenant)]


@pytest.mark.parametrize("way", [*WAYS, *RECORDS, "spawn", "parent"])
async def test_no_way_opens_a_queue_beyond_the_quota(way: str) -> None:
    store, old = MemoryStore(), QueueRef("acme", "old")
    lease = await running(store, old)
    await QuotaRepository(store.key_value).set("acme", Quota(queues=1))

    async def request(client: httpx.AsyncClient) -> Any:
        if way in WAYS:
            method, path, body = WAYS[way]
            return (await client.request(method, path, json=body)).json()
        if way == "spawn":
            return await called(client, "spawn", "old", lease=lease, spawns=[Spawn("new", new("c"))])
        if way == "parent":
            child = new("c", parents=(JobRef("new", "p"),))
            return await called(client, "enqueue", "old", jobs=[child])
        move, queue, given = RECORDS[way]
        return await called(client, move, queue, **given)

    async with serving(store) as client:
        refused = await request(client)
        left = await names(store)
        schedules = await store.schedules.list_schedules("acme")
    await QuotaRepository(store.key_value).set("acme", Quota(queues=2))
    async with serving(store) as client:
        passed = await request(client)

    assert (refused["status"], refused["type"]) == (429, "urn:penstock:quota")
    (fault,) = refused["errors"]
    assert fault == {
        "parameter": "queues",
        "found": "1 and 1 more",
        "wanted": "at most 1: the tenant's quota",
    }
    assert (left, schedules) == (["old"], [])
    assert not (isinstance(passed, dict) and "status" in passed)
    assert await names(store) == ["new", "old"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/queues/new/claims", {"worker": "w"}),
        ("POST", "/v1/queues/new/claims/heartbeat", {"beats": [{"id": "a", "token": "x"}]}),
        ("POST", "/v1/queues/new/pause", {}),
        ("PUT", "/v1/queues/new/keys", {"key": "k", "weight": 2}),
        ("GET", "/v1/queues/new/events", None),
    ],
)
async def test_what_is_asked_of_a_queue_that_is_not_there_opens_none(
    method: str, path: str, body: Any
) -> None:
    store = MemoryStore()
    async with serving(store) as client:
        await client.request(method, path, json=body)

    assert await store.queues.list_queues("acme") == []


@served()
async def test_every_other_call_of_the_protocol_opens_no_queue(store: Store, queue: QueueRef) -> None:
    """Those that could, and are not in the table above, are answered without the store."""
    items: dict[str, Any] = {
        "limit": 1,
        "job": "x",
        "ids": ["x"],
        "query": Query(),
        "after": "0",
        "through": "0",
        "at": 0,
        "worker": "w",
        "from_cursor": "",
        "to_cursor": "1",
        "deltas": Deltas(FoldState()),
        "span_ms": 60_000,
        "since": 0,
        "now": 0,
    }
    opening = {move for move, _, _ in RECORDS.values()} | {"spawn"}
    others = [
        call
        for call in CALLS.values()
        if call.scope == "queue" and call.name not in opening and call.name not in ANSWERS
    ]
    async with serving(store, queue.tenant) as client:
        made: dict[str, list[str]] = {}
        for call in others:
            given = {name: items[name] for name in call.fields if name in items}
            await called(client, call.name, call.name.replace("_", "-"), tenant=queue.tenant, **given)
            made[call.name] = await names(store, queue.tenant)

    assert {"counts", "find", "read_events", "leases"} <= made.keys()
    assert {name: queues for name, queues in made.items() if queues} == {}


@served(Part.KEY_VALUE)
async def test_many_new_queues_at_once_do_not_pass_the_quota(store: Store, queue: QueueRef) -> None:
    tenant = queue.tenant
    await QuotaRepository(store.key_value).set(tenant, Quota(queues=3))
    async with serving(store, tenant) as first, serving(store, tenant) as second:
        answers = await asyncio.gather(
            *((first, second)[n % 2].post(f"/v1/queues/q{n}/jobs", json=JOB) for n in range(12))
        )
    await QuotaRepository(store.key_value).unset(tenant)

    assert sorted(each.status_code for each in answers) == [201] * 3 + [429] * 9
    assert len(await names(store, tenant)) == 3


@served(Part.KEY_VALUE)
@pytest.mark.parametrize("way", ["http", "protocol"])
async def test_a_queue_that_another_process_deleted_counts_until_nobody_takes_it_for_known(
    store: Store, queue: QueueRef, way: str
) -> None:
    """A process opens queues that it knows without asking, and it may know one that is gone."""
    tenant = queue.tenant
    await QuotaRepository(store.key_value).set(tenant, Quota(queues=2))
    opened: list[list[int]] = []
    async with serving(store, tenant) as knowing, serving(store, tenant) as deleting:
        for made in (["a", "b"], ["c", "d"]):
            opened.append(
                [(await knowing.put(f"/v1/queues/{name}", json=DECLARED)).status_code for name in made]
            )
            for name in await names(store, tenant):
                # Shown to the first process, deleted by the second.
                await knowing.put(f"/v1/queues/{name}", json=DECLARED)
                if way == "http":
                    assert (await deleting.delete(f"/v1/queues/{name}")).status_code == 204
                else:
                    await called(deleting, "delete_queue", name, tenant=tenant)
        again = (await knowing.put("/v1/queues/a", json=DECLARED)).status_code
        await store.clock.advance_clock(36_000)
        opened.append(
            [(await deleting.put(f"/v1/queues/{name}", json=DECLARED)).status_code for name in "bcd"]
        )
        left = await names(store, tenant)
    await QuotaRepository(store.key_value).unset(tenant)

    assert opened == [[200, 200], [429, 429], [200, 429, 429]]
    assert again == 200
    assert left == ["a", "b"]


async def test_a_tenant_without_a_quota_has_the_built_in_bound() -> None:
    store = MemoryStore()
    for number in range(1_000):
        await store.queues.open_queue(QueueRef("acme", f"q{number}"))
    await store.queues.open_queue(QueueRef("acme", "penstock.webhooks"))
    async with serving(store) as client:
        refused = await client.post("/v1/queues/one-more/jobs", json=JOB)
        known = await client.post("/v1/queues/q7/jobs", json=JOB)
        await QuotaRepository(store.key_value).set(None, Quota(queues=1_001))
    async with serving(store) as client:
        passed = await client.post("/v1/queues/one-more/jobs", json=JOB)

    assert (refused.status_code, known.status_code, passed.status_code) == (429, 201, 201)
    assert (await QuotaRepository(MemoryStore().key_value).of("acme")).queues == 1_000


class Counting(MemoryStore):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        for name in intercepted.PARTS:
            setattr(self, name, _CountingPart(getattr(self, name), self.calls))


class _CountingPart(intercepted.Part):
    def __init__(self, real: Any, calls: list[str]) -> None:
        super().__init__(real)
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            self.calls.append(name)
        return super().__getattr__(name)


async def test_an_enqueue_to_a_known_queue_costs_no_call_more() -> None:
    store = Counting()
    quotas = StoredQuotas(store)
    service = Service(store, authenticator=authenticator_of(None, ApiTokens(store), KEY), quotas=quotas)
    made = KEY.mint(tenants=["acme"], subject="ada", scopes=["*"], seconds=600, now=time.time())
    async with service, client_of(service) as client:
        client.headers["authorization"] = f"Bearer {made}"
        for _ in range(2):
            await client.post("/v1/queues/mail/jobs", json=JOB)
        store.calls.clear()
        await client.post("/v1/queues/mail/jobs", json=JOB)
        plain = list(store.calls)
        store.calls.clear()
        await called(client, "enqueue", "mail", jobs=[new("a")])

    assert [name for name in plain if name != "list_tenants"] == ["enqueue"]
    assert [name for name in store.calls if name != "list_tenants"] == ["enqueue"]


async def test_a_queue_that_is_gone_is_asked_for_again() -> None:
    store, ref = MemoryStore(), QueueRef("acme", "mail")
    service = Service(store, authenticator=authenticator_of(None, None, KEY))
    await store.queues.open_queue(ref)
    assert await service.known.has(ref)
    other = Service(MemoryStore(), authenticator=authenticator_of(None, None, KEY))

    service.known.forget(ref)
    assert await service.known.has(ref)
    assert not await other.known.has(ref)


async def test_a_reservation_whose_process_died_counts_for_a_while() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(queues=1))
    dead = StoredQuotas(store)
    held = dead.opening("acme", ["lost"])
    await held.__aenter__()
    async with serving(store) as client:
        refused = await client.post("/v1/queues/other/jobs", json=JOB)
        await store.clock.advance_clock(61_000)
        passed = await client.post("/v1/queues/other/jobs", json=JOB)
    await held.__aexit__(None, None, None)

    assert (refused.status_code, passed.status_code) == (429, 201)
