"""The store's protocol over HTTP: every call of it is there, and none reaches beyond its tenant."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.moves import Beat, Complete, Expire, Fault, Report, Retry
from penstock.core.outcomes import Applied, Enqueued
from penstock.core.retry import Backoff, Shape
from penstock.core.states import State
from penstock.service.app import Service
from penstock.service.tenant_upkeep import TenantUpkeep
from penstock.stores.absent import ANSWERS
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.sqlite import SqliteStore
from penstock.stores.values import Adoption, Firing, Pause, Query, Relay, Spawn, StoredSchedule, Topic
from penstock.stores.wire import CALLS, MEDIA_TYPE
from penstock.testing.conformance.arrange import schedule_body
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, until
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked, client_of
from tests.service.test_events import streaming

FIELDS: dict[str, Any] = {"id": "a", "nonce": "n", "task": "send"}
NEW = NewJob(id="a", nonce="n", task="send", payload=b'{"to":"ada"}')


async def called(
    client: httpx.AsyncClient, move: str, /, queue: str | None = "mail", tenant: str = "acme", **given: Any
) -> Any:
    """The answer of a call, or the problem."""
    call = CALLS[move]
    answer = await client.post(
        f"/v1/store/{move}", content=call.encode(tenant, queue, given), headers={"content-type": MEDIA_TYPE}
    )
    if answer.status_code != 200:
        return answer.json()
    return call.decode_answer(answer.content)


def test_every_call_of_the_protocol_has_a_row() -> None:
    own = {"open", "close", "clone", "subscribe", "subscribe_tenant"}
    public = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))}

    assert public - own <= CALLS.keys()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arguments_and_answers_of_every_call_have_a_form_on_the_wire(call: Any) -> None:
    msgspec.msgpack.Decoder(call.arguments)
    msgspec.msgpack.Decoder(call.answer.type)


async def test_a_job_goes_from_enqueue_to_its_end_as_records() -> None:
    async with asked() as client:
        made = await called(client, "enqueue", jobs=[NEW])
        claims = await called(client, "claim", worker="w", limit=5, lease_ms=30_000)
        token = claims.jobs[0].token
        retry = Retry("a", token, 0, Fault("ERROR", "boom"))
        done = await called(client, "settle", settlements=[retry, Complete("a", "x", b"1")])
        (job,) = await called(client, "get", ids=["a"])
        events = await called(client, "read_events")

    assert made == [Enqueued("a", True, State.PENDING)]
    assert claims.jobs[0].payload == NEW.payload
    assert done[0] == Applied(State.DELAYED)
    assert (job.state, job.error, job.tenant) == (State.DELAYED, "boom", "acme")
    assert [event.seq for event in events] == [1, 2, 3]


async def test_one_of_several_records_comes_back_as_what_it_was() -> None:
    call = CALLS["list_relay_entries"]
    relays = [Relay(1, "mail", NEW)]

    assert call.decode_answer(call.encode_answer(relays)) == relays


async def test_another_tenant_is_forbidden_and_an_operator_names_one_of_its_own() -> None:
    operator = GrantedPrincipal(tenant="*", tenants=("acme", "bcme"))
    async with asked(authenticator=HeaderAuthenticator(op=operator)) as client:
        refused = await called(client, "list_queues", None, "bcme")
        client.headers["x-tenant"] = "op"
        await called(client, "enqueue", tenant="bcme", jobs=[NEW])
        tenants = await called(client, "list_tenants", None)
        foreign = await called(client, "list_queues", None, "ccme")

    assert (refused["status"], foreign["status"]) == (403, 403)
    assert tenants == ["bcme"]


async def test_a_schedule_is_put_where_the_token_is_from_whatever_it_says() -> None:
    store = MemoryStore()
    schedule = StoredSchedule(QueueRef("other", "mail"), "s", schedule_body("s"), None)
    async with asked(store) as client:
        await called(client, "put_schedule", None, schedule=schedule)
        kept = [await store.schedules.list_schedules(tenant) for tenant in ("acme", "other")]

    assert [[each.queue for each in some] for some in kept] == [[QueueRef("acme", "mail")], []]


async def test_shelves_of_the_service_are_out_of_reach() -> None:
    store = MemoryStore()
    async with asked(store) as client:
        await store.key_value.put_entry("acme", "secrets", "a", b"hidden")
        hidden = await called(client, "get_entry", None, namespace="secrets", name="a")
        await called(client, "put_entry", None, namespace="own", name="a", body=b"mine")
        own = await called(client, "get_entry", None, namespace="own", name="a")

    assert hidden is None
    assert own.body == b"mine"


async def test_the_clock_of_all_tenants_is_turned_only_where_that_was_allowed() -> None:
    async with asked() as client:
        refused = await called(client, "advance_clock", None, by_ms=1_000)
    async with asked(allow_clock_control=True) as client:
        before = await called(client, "now", None)
        await called(client, "advance_clock", None, by_ms=60_000)
        after = await called(client, "now", None)

    assert refused["status"] == 403
    assert after - before >= 60_000


@pytest.mark.parametrize(
    "new",
    [
        msgspec.structs.replace(NEW, id="no name!"),
        msgspec.structs.replace(NEW, priority=10),
        msgspec.structs.replace(NEW, delay_ms=-1),
        msgspec.structs.replace(NEW, run_at=2**60),
        msgspec.structs.replace(NEW, key="k" * 513),
        msgspec.structs.replace(NEW, nonce="\0"),
        msgspec.structs.replace(NEW, options=Options(max_attempts=0)),
    ],
)
async def test_a_record_that_no_client_here_would_make_is_refused(new: NewJob) -> None:
    async with asked() as client:
        answer = await called(client, "enqueue", jobs=[new])
        counts = await called(client, "counts")

    assert (answer["status"], answer["type"]) == (400, "urn:penstock:invalid")
    assert sum(counts.values()) == 0


@pytest.mark.parametrize(
    ("move", "given"),
    [
        ("read_events", {"limit": 100_001}),
        ("claim", {"worker": "w", "limit": 10**9, "lease_ms": 1_000}),
        ("find", {"query": Query(limit=10**9)}),
    ],
)
async def test_no_answer_is_asked_for_that_memory_could_not_hold(move: str, given: dict[str, Any]) -> None:
    async with asked() as client:
        answer = await called(client, move, **given)

    pointer = "/query/limit" if move == "find" else "/limit"
    assert (answer["status"], answer["errors"][0]["pointer"]) == (400, pointer)


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x90", b"\x81\xa5queue\x01", b"\x81\xa1x\x01", b"\xdf\xff\xff\xff\xff"]
)
async def test_bytes_that_are_no_call_are_refused(body: bytes) -> None:
    async with asked() as client:
        answer = await client.post("/v1/store/counts", content=body, headers={"content-type": MEDIA_TYPE})

    assert answer.status_code == 400


async def test_a_stream_of_bells_tells_which_one_rang() -> None:
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator())
    body = msgspec.msgpack.encode({"tenant": "acme", "topics": [["mail", "ready"], ["mail", "ended"]]})
    async with service, client_of(service) as client:
        async with streaming(service, "/v1/store/subscriptions", method="POST", body=body) as pieces:
            await pieces.get()  # the head
            hung = msgspec.json.decode((await pieces.get())["body"])
            await called(client, "enqueue", jobs=[NEW])
            ring = msgspec.json.decode((await pieces.get())["body"])

        assert (hung, ring) == (None, ["mail", Topic.READY])
        assert service.waiting == set()


async def test_a_listed_backoff_without_delays_is_refused() -> None:
    empty = msgspec.structs.replace(NEW, options=Options(backoff=Backoff(shape=Shape.LISTED)))
    async with asked() as client:
        answer = await called(client, "enqueue", jobs=[empty])

    assert (answer["status"], answer["errors"][0]["pointer"]) == (400, "/jobs/0/options/backoff/delays_ms")


FIRING = Firing("nightly", 1, (), None, 1)


@pytest.mark.parametrize(
    ("move", "given"),
    [
        ("enqueue", {"jobs": [NEW]}),
        ("claim", {"worker": "w", "limit": 1, "lease_ms": 1_000}),
        ("open_queue", {}),
        ("fire", {"firing": FIRING}),
        ("find", {"query": Query()}),
    ],
)
async def test_the_services_own_queues_are_closed_to_every_call(move: str, given: dict[str, Any]) -> None:
    store = MemoryStore()
    async with asked(store) as client:
        refused = await called(client, move, "penstock.webhooks", **given)
        made = await store.queues.list_queues("acme")

    assert refused["status"] == 403
    assert made == []


async def test_jobs_are_not_spawned_into_the_services_own_queues() -> None:
    async with asked() as client:
        spawns = [Spawn("penstock.webhooks", NEW)]
        refused = await called(client, "enqueue", jobs=[NEW], spawns=spawns)
        child = msgspec.structs.replace(NEW, parents=(JobRef("penstock.webhooks", "a"),))
        told = await called(client, "enqueue", jobs=[child])

    assert (refused["status"], told["status"]) == (403, 403)


async def test_the_services_own_readers_and_queues_are_not_shown_or_moved() -> None:
    store = MemoryStore()
    async with asked(store) as client:
        await store.queues.open_queue(QueueRef("acme", "penstock.webhooks"))
        await called(client, "enqueue", jobs=[NEW])
        kept = await called(client, "register_reader", name="penstock.webhooks", cursor=1)
        dropped = await called(client, "unregister_reader", name="penstock.webhooks")
        queues = await called(client, "list_queues", None)

    assert (kept["status"], dropped["status"]) == (403, 403)
    assert [each.queue.name for each in queues] == ["mail"]


@pytest.mark.parametrize("move", ANSWERS)
async def test_a_call_that_could_find_nothing_makes_no_queue(move: str, tmp_path: Path) -> None:
    items: dict[str, Any] = {
        "beats": [Beat("a", "x")],
        "lease": Beat("a", "x"),
        "reports": [Report("a", "x", b"1")],
        "settlements": [Complete("a", "x", b"1")],
        "expiries": [Expire("a", "x", State.PENDING, Fault("ERROR"))],
        "spawns": [Spawn("mail", NEW)],
        "ids": ["a"],
        "endings": [ChildEnding("a", JobRef("mail", "b"), State.COMPLETED)],
        "adoptions": [Adoption("a", (JobRef("mail", "b"),))],
        "firing": Firing("nightly", 1, (), None, 1),
        "numbers": [1],
        "through": 1,
        "name": "nightly",
        "paused": True,
        "worker": "w",
        "limit": 1,
        "lease_ms": 1_000,
        "keys": ["k"],
        "entries": ["a"],
        "after": 1,
        "floor_us": 0,
        "limits": ClaimLimits(),
    }
    if move == "list_quarantined":
        items["after"] = "a"
    given = {name: items[name] for name in CALLS[move].fields}
    async with asked(SqliteStore(tmp_path / "jobs.db")) as client:
        answer = await called(client, move, **given)
        queues = await called(client, "list_queues", None)
        await called(client, "open_queue")
        there = await called(client, move, **given)

    assert queues == []
    assert answer == there


@pytest.mark.parametrize(
    ("body", "next_at"),
    [
        (b"garbage", 1),
        (b"", 1),
        (b"\xff", 1),
        (schedule_body("other"), 1),
        (schedule_body("s").replace(b"60000", b"0"), 1),
        (schedule_body("s").replace(b"60000", b"-5"), 1),
        (schedule_body("s").replace(b'"priority":5', b'"priority":11'), 1),
        (schedule_body("s").replace(b'"options":{', b'"options":{"max_attempts":0'), 1),
        (schedule_body("s"), 2**53),
    ],
)
async def test_a_schedule_that_no_client_here_would_make_is_refused(body: bytes, next_at: int) -> None:
    async with asked() as client:
        schedule = StoredSchedule(QueueRef("acme", "mail"), "s", body, next_at)
        refused = await called(client, "put_schedule", None, schedule=schedule)
        listed = await client.get("/v1/schedules")

    assert (refused["status"], refused["type"]) == (400, "urn:penstock:invalid")
    assert listed.json() == {"schedules": []}


async def test_a_schedule_that_cannot_be_read_is_shown_and_removed_over_http() -> None:
    store = MemoryStore()
    async with asked(store) as client:
        await store.schedules.put_schedule(StoredSchedule(QueueRef("acme", "mail"), "odd", b"garbage", 1))
        (listed,) = (await client.get("/v1/schedules")).json()["schedules"]
        runs = await client.get("/v1/schedules/odd/runs")
        put = await client.put("/v1/schedules/good", json={"queue": "mail", "task": "t", "every": 60})
        removed = await client.delete("/v1/schedules/odd")
        left = (await client.get("/v1/schedules")).json()["schedules"]

    assert (listed["name"], listed["queue"], listed["when"]) == ("odd", "mail", "cannot be read")
    assert "cannot be read" in listed["fault"]
    assert (runs.status_code, put.status_code, removed.status_code) == (409, 201, 200)
    assert [each["name"] for each in left] == ["good"]


async def test_a_token_for_some_queues_sees_and_puts_only_what_is_theirs() -> None:
    some = GrantedPrincipal(verbs=frozenset({"store"}), queues=frozenset({"mail"}))
    async with asked(authenticator=HeaderAuthenticator(some=some)) as client:
        for queue, name in (("mail", "digest"), ("billing", "nightly")):
            await called(client, "open_queue", queue)
            schedule = StoredSchedule(QueueRef("acme", queue), name, schedule_body(name), None)
            await called(client, "put_schedule", None, schedule=schedule)
        client.headers["x-tenant"] = "some"
        queues = await called(client, "list_queues", None)
        schedules = await called(client, "list_schedules", None)
        beside = StoredSchedule(QueueRef("acme", "mail"), "nightly", schedule_body("nightly"), None)
        refused = await called(client, "put_schedule", None, schedule=beside)
        again = await called(client, "put_schedule", None, schedule=schedules[0])

    assert [each.queue.name for each in queues] == ["mail"]
    assert [each.name for each in schedules] == ["digest"]
    assert refused["status"] == 403
    assert again is None


@pytest.mark.parametrize(
    ("move", "given"),
    [
        ("put_entry", {"name": "a", "body": b"x"}),
        ("get_entry", {"name": "a"}),
        ("list_entries", {}),
        ("delete_entry", {"name": "a"}),
    ],
)
async def test_shelves_need_the_scope_of_all_queues(move: str, given: dict[str, Any]) -> None:
    some = GrantedPrincipal(queues=frozenset({"mail"}))
    async with asked(authenticator=HeaderAuthenticator(acme=some)) as client:
        refused = await called(client, move, None, namespace="own", **given)

    assert refused["status"] == 403
    assert "all queues" in refused["detail"]


@pytest.mark.parametrize(
    ("move", "given", "pointer"),
    [
        ("enqueue", {"jobs": [NewJob(**FIELDS, payload=b"\xff\x00")]}, "/jobs/0/payload"),
        ("enqueue", {"jobs": [NewJob(**FIELDS, payload=b"a\0")]}, "/jobs/0/payload"),
        ("enqueue", {"jobs": [NewJob(**FIELDS, payload=b"", run_at=2**53)]}, "/jobs/0/run_at"),
        ("enqueue", {"jobs": [NewJob(**FIELDS, payload=b"", instant=2**53)]}, "/jobs/0/instant"),
        ("progress", {"reports": [Report("a", "x", b"\xff")]}, "/reports/0/value"),
        ("settle", {"settlements": [Complete("a", "x", b"\xff")]}, "/settlements/0/result"),
        ("settle", {"settlements": [Retry("a", "x", 2**53, Fault("E"))]}, "/settlements/0/delay_ms"),
        ("claim", {"worker": "w", "limit": -1, "lease_ms": 1_000}, "/limit"),
        ("promote", {"limit": -1}, "/limit"),
        ("find", {"query": Query(limit=-1)}, "/query/limit"),
        ("claim", {"worker": "w\n", "limit": 1, "lease_ms": 1_000}, "/worker"),
        ("claim", {"worker": "w", "limit": 1, "lease_ms": -1}, "/lease_ms"),
        ("claim", {"worker": "w", "limit": 1, "lease_ms": 10**9}, "/lease_ms"),
        ("heartbeat", {"beats": [Beat("a", "x")], "lease_ms": 0}, "/lease_ms"),
        ("unregister_reader", {"name": "r\n"}, "/reader"),
        ("read_events", {"after": "x"}, "/after"),
        ("find", {"query": Query(after="x")}, "/query/after"),
        ("pause_queue", {"pause": Pause(0), "for_ms": 2**53}, "/for_ms"),
    ],
)
async def test_a_value_that_some_store_cannot_keep_is_named(
    move: str, given: dict[str, Any], pointer: str, tmp_path: Path
) -> None:
    async with asked(SqliteStore(tmp_path / "jobs.db")) as client:
        await called(client, "open_queue")
        answer = await called(client, move, **given)

    assert (answer["status"], answer["errors"][0]["pointer"]) == (400, pointer)


async def test_only_queues_of_the_token_are_told_to_be_due() -> None:
    store = MemoryStore()
    for tenant, name in (("acme", "mail"), ("acme", "web"), ("acme", "penstock.webhooks"), ("other", "mail")):
        await store.moves.enqueue(QueueRef(tenant, name), [msgspec.structs.replace(NEW, delay_ms=1_000)])
    authenticator = HeaderAuthenticator(
        acme=GrantedPrincipal(queues=frozenset({"mail", "penstock.webhooks"}))
    )
    async with asked(store, authenticator=authenticator) as client:
        page = await called(client, "due_queues", queue=None, within_ms=60_000)
        named = await called(client, "due_queues", queue=None, names=["web", "mail"], within_ms=60_000)
        other = await called(client, "due_queues", queue=None, tenant="other")
        wrong = await called(client, "due_queues", queue=None, names=["a/b"])

    assert [each.name for each in page.queues] == [each.name for each in named.queues] == ["mail"]
    assert (other["status"], wrong["status"]) == (403, 400)


async def test_a_schedule_that_is_put_is_looked_at_before_the_next_look_at_all_queues() -> None:
    class Named(InterceptedStore):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[list[str]] = []

        async def due_queues(self, tenant: str, names: Any = None, **given: Any) -> Any:
            self.names.append(list(names or []))
            return await self.real.upkeep.due_queues(tenant, names, **given)

    store = Named()
    async with asked(store, upkeep=TenantUpkeep(store)) as client, asyncio.timeout(PATIENCE):
        await store.queues.open_queue(QueueRef("acme", "web"))
        await until(lambda: store.names)
        body = {"queue": "mail", "task": "digest", "every": 60}
        (await client.put("/v1/schedules/beat", json=body)).raise_for_status()
        await until(lambda: ["mail"] in store.names)


@pytest.mark.parametrize(
    ("call", "given", "field"),
    [
        ("enqueue", {"jobs": [NewJob(**FIELDS, payload=b'"%s"' % (b"x" * (1 << 20)))]}, "/jobs/0/payload"),
        ("settle", {"settlements": [Complete("a", "x", b"1" * ((1 << 20) + 1))]}, "/settlements/0/result"),
        ("progress", {"reports": [Report("a", "x", b"1" * ((64 << 10) + 1))]}, "/reports/0/value"),
    ],
)
async def test_payloads_results_and_progress_have_the_sizes_of_any_client(
    call: str, given: dict[str, Any], field: str
) -> None:
    async with asked() as client:
        await called(client, "open_queue")
        problem = await called(client, call, **given)

    assert (problem["status"], problem["errors"][0]["pointer"]) == (400, field)
