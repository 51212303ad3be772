"""A token for one queue is refused wherever a request names another one: in a path, a body, a record.

The tables below have to name every route and every field that can hold the name of a queue: one that is added
to the service and not here fails the tests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from msgspec import inspect as types

from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat, Complete
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.rollups import Deltas, FoldState
from penstock.core.states import State
from penstock.service.examples import EXAMPLES
from penstock.service.routes import ROUTES
from penstock.service.routing import Route
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import (
    Adoption,
    Firing,
    OrderKind,
    Pause,
    RunningJob,
    Spawn,
    StoredSchedule,
    WorkerEntry,
)
from penstock.stores.wire import CALLS, MEDIA_TYPE
from penstock.testing.conformance.arrange import schedule_body
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked

A, B = QueueRef("acme", "a"), QueueRef("acme", "b")
NEW = NewJob(id="x", nonce="n", task="send", payload=b"{}")
FOREIGN = (JobRef("b", "parent"),)
WITH_PARENT = msgspec.structs.replace(NEW, parents=FOREIGN)
WITH_CHILD = msgspec.structs.replace(NEW, awaits=FOREIGN)
LEASE = Beat("x", "t")
FIRING = Firing("s", 1, (NEW,), None, 1)

NAMES_NONE = {
    "list_queues": "shows what the token may see",
    "list_schedules": "shows what the token may see",
    "list_workers": "shows what the token may see",
    "list_stats": "shows what the token may see",
    "list_scaling_decisions": "takes a token for all queues",
    "list_worker_versions": "wants the scope for all queues",
    "list_webhooks": "shows what the token may manage",
    "metrics": "wants the scope of an operator",
    "live": "takes no token",
    "ready": "takes no token",
    "openapi": "takes no token",
    "hello": "says nothing of a queue",
}
"""Routes that name no queue, neither in their path nor in what they take."""

TAKES_NO_QUEUE = {
    "list_stats": "its query is a length of time",
    "list_scaling_decisions": "its query is a number",
}
"""Those of them that were looked at because they take something."""

SCHEDULES = {
    "show_schedule",
    "remove_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "next_runs",
}
"""Routes that name a schedule, which is one of a queue."""

WORKERS = {"show_worker", "drain_worker", "stop_worker"}
"""Routes that name a worker, which serves some queues; one of other queues is not there for a token."""

WEBHOOKS = {
    "show_webhook",
    "change_webhook",
    "delete_webhook",
    "rotate_webhook",
    "pause_webhook",
    "resume_webhook",
    "ping_webhook",
    "list_deliveries",
    "show_delivery",
    "redeliver",
}
"""Routes that name a webhook, which is about some queues; one of other queues is not there for a token."""

BODIES: dict[str, dict[str, Any]] = {
    "create_jobs": {"jobs[].queue": {"jobs": [{"queue": "b", "task": "t"}]}},
    "create_flow": {"jobs[].queue": {"jobs": [{"name": "x", "queue": "b", "task": "t"}]}},
    "put_schedule": {"queue": {"queue": "b", "task": "t", "every": 60}},
    "create_webhook": {"queues[]": {"url": "https://8.8.8.8/", "queues": ["a", "b"]}},
    "change_webhook": {"queues[]": {"url": "https://8.8.8.8/", "queues": ["a", "b"]}},
}
"""By operation and field: a body that names queue b there."""

RECORDS: dict[str, dict[str, Any]] = {
    "enqueue": {
        "jobs[].parents[].queue": {"jobs": [WITH_PARENT]},
        "jobs[].awaits[].queue": {"jobs": [WITH_CHILD]},
        "spawns[].queue": {"jobs": [NEW], "spawns": [Spawn("b", NEW)]},
        "spawns[].job.parents[].queue": {"jobs": [NEW], "spawns": [Spawn("a", WITH_PARENT)]},
        "spawns[].job.awaits[].queue": {"jobs": [NEW], "spawns": [Spawn("a", WITH_CHILD)]},
    },
    "spawn": {
        "spawns[].queue": {"lease": LEASE, "spawns": [Spawn("b", NEW)]},
        "spawns[].job.parents[].queue": {"lease": LEASE, "spawns": [Spawn("a", WITH_PARENT)]},
        "spawns[].job.awaits[].queue": {"lease": LEASE, "spawns": [Spawn("a", WITH_CHILD)]},
    },
    "fire": {
        "firing.jobs[].parents[].queue": {"firing": msgspec.structs.replace(FIRING, jobs=(WITH_PARENT,))},
        "firing.jobs[].awaits[].queue": {"firing": msgspec.structs.replace(FIRING, jobs=(WITH_CHILD,))},
    },
    "child_ended": {
        "endings[].child.queue": {"endings": [ChildEnding("x", JobRef("b", "y"), State.COMPLETED, b"1")]}
    },
    "adopt": {"adoptions[].children[].queue": {"adoptions": [Adoption("x", FOREIGN)]}},
    "register_worker": {
        "worker.jobs[].queue": {
            "worker": WorkerEntry(
                "w", "h", 1, "1", {"a": 1}, ("t",), jobs=(RunningJob("b", "j", "t", 1, 1),)
            ),
            "lease_ms": 1_000,
        }
    },
    "put_schedule": {
        "schedule.queue.name": {"schedule": StoredSchedule(B, "s", schedule_body("s"), None)},
    },
}
"""By call of the store's protocol and field: arguments that name queue b there, in a call for queue a."""


def paths_of(kind: Any) -> set[str]:
    """Every field of a type that holds the name of a queue, as a path."""

    def walk(info: Any, path: str, seen: tuple[type, ...]) -> Iterator[str]:
        match info:
            case types.StructType(cls=cls, fields=fields) if cls not in seen:
                for each in fields:
                    yield from walk(each.type, f"{path}.{each.name}", (*seen, cls))
                    is_name = each.name in ("queue", "queues") or (cls is QueueRef and each.name == "name")
                    if is_name and isinstance(each.type, types.StrType):
                        yield f"{path}.{each.name}"
                    if is_name and isinstance(each.type, types.VarTupleType | types.ListType):
                        yield f"{path}.{each.name}[]"
            case types.ListType(item_type=item) | types.VarTupleType(item_type=item):
                yield from walk(item, f"{path}[]", seen)
            case types.UnionType(types=kinds):
                for one in kinds:
                    yield from walk(one, path, seen)

    return {path.removeprefix(".") for path in walk(types.type_info(kind), "", ())}


def given_paths(call: Any) -> set[str]:
    return {
        f"{name}{'' if path.startswith('[') else '.'}{path}"
        for name, codec in call.codecs.items()
        for path in paths_of(codec.type)
    }


def by_name(name: str) -> Route:
    return next(row for row in ROUTES if row.name == name)


def kind_of(row: Route) -> set[str]:
    """The tables that a route stands in."""
    found = {
        "path": "{queue}" in row.path,
        "body": row.name in BODIES,
        "none": row.name in NAMES_NONE,
        "schedule": row.name in SCHEDULES,
        "webhook": row.name in WEBHOOKS,
        "worker": row.name in WORKERS,
        "store": row.name in ("call_store", "subscriptions"),
    }
    return {name for name, is_one in found.items() if is_one}


def test_every_route_is_in_one_of_the_tables() -> None:
    assert [row.name for row in ROUTES if not kind_of(row)] == []
    assert [row.name for row in ROUTES if "none" in kind_of(row) and len(kind_of(row)) > 1] == []
    # One that takes a body or a query and is about no queue has to be looked at by whoever adds it.
    taking = [name for name in NAMES_NONE if by_name(name).takes or by_name(name).query]
    assert taking == [*TAKES_NO_QUEUE]


def test_every_field_of_a_body_or_query_that_names_a_queue_is_tried() -> None:
    named = {
        row.name: paths
        for row in ROUTES
        for kind in (row.takes, row.query)
        if kind not in (None, bytes) and (paths := paths_of(kind))
    }

    assert named == {name: set(bodies) for name, bodies in BODIES.items()}


def test_every_field_of_a_record_that_names_a_queue_is_tried() -> None:
    named = {name: paths for name, call in CALLS.items() if (paths := given_paths(call))}

    assert named == {name: set(given) for name, given in RECORDS.items()}


@asynccontextmanager
async def limited(store: Store | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A service whose `acme` is limited to queue a; `all` may do everything for the same tenant."""
    verbs = frozenset({"read", "enqueue", "work", "manage", "store"})
    some = GrantedPrincipal(verbs=verbs, queues=frozenset({"a"}))
    everything = GrantedPrincipal(verbs=verbs, queues=None)
    async with asked(
        store or MemoryStore(), authenticator=HeaderAuthenticator(acme=some, all=everything)
    ) as client:
        yield client


async def called(client: httpx.AsyncClient, move: str, /, queue: str | None = "a", **given: Any) -> Any:
    """The answer of a call, or the problem."""
    call = CALLS[move]
    body = call.encode("acme", queue if call.scope == "queue" else None, given)
    answer = await client.post(f"/v1/store/{move}", content=body, headers={"content-type": MEDIA_TYPE})
    return call.decode_answer(answer.content) if answer.status_code == 200 else answer.json()


async def state_of(store: Store) -> Any:
    """All that could have been changed."""
    queues = [info.queue for info in await store.queues.list_queues("acme")]
    return [
        (
            ref.name,
            await store.reads.counts(ref),
            await store.events.event_range(ref),
            await store.flows.list_relay_entries(ref),
        )
        for ref in queues
    ], await store.schedules.list_schedules("acme")


@pytest.mark.parametrize("row", [row for row in ROUTES if "{queue}" in row.path], ids=lambda row: row.name)
async def test_a_queue_in_a_path_has_to_be_in_the_scopes(row: Route) -> None:
    path = row.path.replace("{queue}", "b").replace("{id}", "x")
    async with limited() as client:
        answer = await client.request(row.method, path, json=EXAMPLES.get(row.name))

    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, bodies in BODIES.items() for field in bodies]
)
async def test_a_queue_in_a_body_has_to_be_in_the_scopes(name: str, field: str) -> None:
    store, row = MemoryStore(), by_name(name)
    async with limited(store) as client:
        hook = await client.post("/v1/webhooks", json={"url": "https://8.8.8.8/", "queues": ["a"]})
        path = row.path.replace("{name}", "s").replace("{id}", hook.json()["id"])
        before = await state_of(store)
        answer = await client.request(row.method, path, json=BODIES[name][field])
        status = answer.status_code
        if name == "create_jobs":
            # Each job of a batch has an outcome of its own.
            status = answer.json()["outcomes"][0]["problem"]["status"]

        assert status == 403
        assert await state_of(store) == before


@pytest.mark.parametrize("name", sorted(SCHEDULES))
async def test_a_schedule_of_another_queue_is_out_of_reach(name: str) -> None:
    store, row = MemoryStore(), by_name(name)
    async with limited(store) as client:
        await store.schedules.put_schedule(StoredSchedule(B, "s", schedule_body("s"), None))
        before = await state_of(store)
        answer = await client.request(row.method, row.path.replace("{name}", "s"))

        assert answer.status_code == 403
        assert await state_of(store) == before


async def test_a_schedule_is_not_moved_out_of_another_queue_by_one_of_its_name() -> None:
    """There can be two of a name where they were put as records: the second is not the token's to remove."""
    store = MemoryStore()
    async with limited(store) as client:
        for ref in (A, B):
            await store.schedules.put_schedule(StoredSchedule(ref, "s", schedule_body("s"), None))
        answer = await client.put("/v1/schedules/s", json={"queue": "a", "task": "t", "every": 60})

        assert answer.status_code == 403
        assert [each.queue for each in await store.schedules.list_schedules("acme")] == [A, B]


@pytest.mark.parametrize("name", sorted(WEBHOOKS))
async def test_a_webhook_of_another_queue_is_not_there(name: str) -> None:
    row = by_name(name)
    async with limited() as client:
        fields = {"url": "https://8.8.8.8/", "queues": ["a", "b"]}
        hook = (await client.post("/v1/webhooks", json=fields, headers={"x-tenant": "all"})).json()["id"]
        path = row.path.replace("{id}", hook).replace("{delivery}", "x")
        answer = await client.request(row.method, path, json=EXAMPLES.get(name))

    assert answer.status_code == 404


@pytest.mark.parametrize("move", [name for name, call in CALLS.items() if call.scope == "queue"])
async def test_a_call_for_another_queue_is_refused(move: str) -> None:
    """Before its arguments are looked at, as far as they can be read at all."""
    items: dict[str, Any] = {
        "jobs": [NEW],
        "beats": [LEASE],
        "lease": LEASE,
        "reports": [],
        "settlements": [],
        "expiries": [],
        "spawns": [],
        "ids": ["x"],
        "endings": [],
        "adoptions": [],
        "firing": FIRING,
        "numbers": [1],
        "through": "1" if move == "event_columns" else 1,
        "name": "s",
        "from_cursor": "0",
        "to_cursor": "1",
        "deltas": Deltas(FoldState()),
        "span_ms": 60_000,
        "since": 1,
        "now": 1,
        "paused": True,
        "worker": "w",
        "limit": 1,
        "lease_ms": 1_000,
        "keys": ["k"],
        "entries": ["x"],
        "floor_us": 0,
        "job": "x",
        "query": msgspec.convert({}, CALLS["find"].codecs["query"].type),
        "declaration": msgspec.convert({}, CALLS["declare"].codecs["declaration"].type),
        "key": "k",
        "rule": None,
        "pause": None,
        "after": "0",
        "at": 0,
        "cursor": "0",
    }
    store = MemoryStore()
    if move in ("children", "list_relay_entries", "damaged_events"):
        items["after"] = 0
    given = {name: items[name] for name in CALLS[move].fields if name in items}
    async with limited(store) as client:
        answer = await called(client, move, "b", **given)

        assert (answer["status"], answer["type"]) == (403, "urn:penstock:forbidden")
        assert await store.queues.list_queues("acme") == []


@pytest.mark.parametrize(
    ("move", "field"), [(move, field) for move, given in RECORDS.items() for field in given]
)
async def test_a_queue_in_a_record_has_to_be_in_the_scopes(move: str, field: str) -> None:
    store = MemoryStore()
    async with limited(store) as client:
        await store.moves.enqueue(A, [NEW])
        claims = await store.moves.claim(A, worker="w", limit=1, lease_ms=60_000)
        given = dict(RECORDS[move][field])
        if "lease" in given:
            given["lease"] = Beat("x", claims.jobs[0].token)
        before = await state_of(store)
        answer = await called(client, move, **given)

        assert (answer["status"], answer["type"]) == (403, "urn:penstock:forbidden")
        assert await state_of(store) == before


async def test_bells_of_another_queue_are_refused() -> None:
    body = msgspec.msgpack.encode({"tenant": "acme", "topics": [["a", "ready"], ["b", "ready"]]})
    async with limited() as client:
        answer = await client.post(
            "/v1/store/subscriptions", content=body, headers={"content-type": MEDIA_TYPE}
        )

    assert answer.status_code == 403


async def flow(store: Store) -> str:
    """A parent in queue b that waits for job x of queue a, which runs: the token of its lease."""
    child = msgspec.structs.replace(NEW, parents=(JobRef("b", "p"),))
    parent = NewJob(id="p", nonce="m", task="join", payload=b"{}", awaits=(JobRef("a", "x"),))
    await store.moves.enqueue(B, [parent])
    await store.moves.enqueue(A, [child])
    claims = await store.moves.claim(A, worker="w", limit=1, lease_ms=60_000)
    return claims.jobs[0].token


async def test_a_parent_of_another_queue_hears_of_an_ending_by_the_service() -> None:
    """Who settled the child carries what is in its scopes; the service carries the rest."""
    store = MemoryStore()
    async with limited(store) as client:
        token = await flow(store)
        done = await called(client, "settle", settlements=[Complete("x", token, b"1")])
        told = await called(client, "child_ended", "b", endings=[ChildEnding("p", JobRef("a", "x"), None)])
        shown = await called(client, "list_relay_entries")

        assert done == [Applied(State.COMPLETED)]
        assert told["status"] == 403
        assert shown == []
        (parent,) = await store.reads.get(B, ["p"])
        assert parent is not None
        assert parent.state is State.PENDING
        assert await store.flows.list_relay_entries(A) == []


async def test_an_ending_for_another_queue_is_not_forgotten_by_a_token() -> None:
    store = MemoryStore()
    async with limited(store) as client:
        token = await flow(store)
        await store.moves.settle(A, [Complete("x", token, b"1")])
        (entry,) = await store.flows.list_relay_entries(A)
        refused = await called(client, "delete_relay_entries", numbers=[entry.number])

        assert refused["status"] == 403
        assert await store.flows.list_relay_entries(A) == [entry]
        assert await called(client, "delete_relay_entries", numbers=[entry.number + 1]) is None


async def test_entries_within_the_scopes_are_shown_and_forgotten_as_before() -> None:
    store = MemoryStore()
    child = msgspec.structs.replace(NEW, id="y", parents=(JobRef("a", "x"),))
    async with limited(store) as client:
        parent = msgspec.structs.replace(NEW, awaits=(JobRef("a", "y"),))
        await called(client, "enqueue", jobs=[parent], spawns=[Spawn("a", child)])
        entries = await called(client, "list_relay_entries")
        carried = [entry.what.id for entry in entries]
        await called(client, "delete_relay_entries", numbers=[entry.number for entry in entries])

        assert carried in ([], ["y"])
        assert await store.flows.list_relay_entries(A) == []


async def test_what_stands_behind_an_entry_out_of_the_scopes_is_not_shown() -> None:
    """Carried before it, it could end before those that wait for it are there."""
    store = MemoryStore()
    child = msgspec.structs.replace(NEW, id="y", parents=(JobRef("b", "z"),))
    other = NewJob(id="z", nonce="o", task="join", payload=b'"secret"', awaits=(JobRef("a", "y"),))
    async with limited(store) as client:
        await store.moves.enqueue(A, [NEW], [Spawn("b", other), Spawn("a", child)])
        shown = await called(client, "list_relay_entries")

        assert shown == []
        assert [job.state for job in await store.reads.get(B, ["z"]) if job] == [State.BLOCKED]
        assert [job.state for job in await store.reads.get(A, ["y"]) if job] == [State.PENDING]


async def test_a_running_job_adds_children_for_the_parents_that_it_has() -> None:
    """They are in another queue, and named because the job was made with them."""
    store = MemoryStore()
    async with limited(store) as client:
        token = await flow(store)
        more = NewJob(id="y", nonce="o", task="send", payload=b"{}", parents=(JobRef("b", "p"),))
        added = await called(client, "spawn", lease=Beat("x", token), spawns=[Spawn("a", more)])
        other = msgspec.structs.replace(more, id="z", parents=(JobRef("b", "q"),))
        refused = await called(client, "spawn", lease=Beat("x", token), spawns=[Spawn("a", other)])
        lost = await called(client, "spawn", lease=Beat("x", "stale"), spawns=[Spawn("a", more)])
        await called(client, "list_relay_entries")

        assert added == Applied(State.ACTIVE)
        assert refused["status"] == 403
        assert lost == Refused(Refusal.LOST)
        children = await store.flows.children(B, "p")
        assert [child.ref for child in children] == [JobRef("a", "x"), JobRef("a", "y")]


async def test_an_explanation_looks_at_no_child_of_another_queue() -> None:
    store = MemoryStore()
    async with limited(store) as client:
        parent = msgspec.structs.replace(NEW, awaits=(JobRef("b", "c"),))
        await store.moves.enqueue(A, [parent])
        child = NewJob(id="c", nonce="o", task="t", payload=b"{}", delay_ms=60_000)
        path = "/v1/queues/a/jobs/x/explain"
        before = (await client.get(path)).json()
        await store.moves.enqueue(B, [child])
        after = (await client.get(path)).json()
        everything = (await client.get(path, headers={"x-tenant": "all"})).json()

    assert before == after
    assert "b/c (delayed)" in str(everything)


async def test_a_worker_of_another_queue_is_neither_replaced_nor_removed() -> None:
    """Jobs of that queue would find nobody who knows their tasks."""
    store = MemoryStore()
    theirs = WorkerEntry("w", "host", 1, "1", {"b": 1}, ("t",))
    await store.workers.register_worker("acme", theirs, 60_000)
    async with limited(store) as client:
        mine = WorkerEntry("w", "host", 1, "1", {"a": 1}, ("t",))
        replaced = await called(client, "register_worker", None, worker=mine, lease_ms=1_000)
        removed = await called(client, "unregister_worker", None, worker="w")
        own = WorkerEntry("v", "host", 1, "1", {"a": 1}, ("t",))
        kept = await called(client, "register_worker", None, worker=own, lease_ms=1_000)
        again = await called(client, "unregister_worker", None, worker="v")

    assert (replaced["status"], removed["status"], kept, again) == (403, 403, None, True)
    (left,) = await store.workers.list_workers("acme")
    assert msgspec.structs.replace(left, renewed_at=0) == theirs


async def test_a_worker_shows_only_queues_and_jobs_that_the_token_is_for() -> None:
    store = MemoryStore()
    jobs = tuple(RunningJob(queue, "j", "t", 1, 5) for queue in ("a", "b"))
    both = WorkerEntry("w", "h", 1, "1", {"a": 2, "b": 3}, ("t",), busy={"a": 1, "b": 2}, jobs=jobs)
    await store.workers.register_worker("acme", both, 60_000)
    async with limited(store) as client:
        (seen,) = await called(client, "list_workers", None)
        foreign = [
            msgspec.structs.replace(both, name="v", queues={"a": 1}, busy={}),
            msgspec.structs.replace(both, name="v", queues={"a": 1}, jobs=()),
        ]
        refused = [
            await called(client, "register_worker", None, worker=each, lease_ms=1_000) for each in foreign
        ]

    assert (seen.queues, seen.busy, seen.jobs) == ({"a": 2}, {"a": 1}, jobs[:1])
    assert [each["status"] for each in refused] == [403, 403]


async def test_a_worker_is_ordered_about_by_tokens_for_all_of_its_queues() -> None:
    store = MemoryStore()
    workers = {
        "mine": ({"a": 1}, 0),
        "shared": ({"a": 1, "b": 1}, 0),
        "theirs": ({"b": 1}, 0),
        "crowd": ({"a": 1}, 5),
    }
    for name, (queues, more) in workers.items():
        entry = WorkerEntry(name, "h", 1, "1", queues, ("t",), instance="i", more_queues=more)
        await store.workers.register_worker("acme", entry, 60_000)
    async with limited(store) as client:
        shown = {name: (await client.get(f"/v1/workers/{name}")).status_code for name in workers}
        ordered = {
            name: [(await client.post(f"/v1/workers/{name}/{order}")).status_code for order in OrderKind]
            for name in workers
        }
        called_ones = {
            name: await called(client, "order_worker", None, worker=name, order=OrderKind.STOP, by="me")
            for name in workers
        }
        read = await called(client, "worker_order", None, worker="theirs", instance="i")
        versions = [
            (await client.get("/v1/worker-versions", headers=headers)).status_code
            for headers in ({}, {"x-tenant": "all"})
        ]
        store_versions = await called(client, "list_versions", None)

    assert shown == {"mine": 200, "shared": 200, "theirs": 404, "crowd": 200}
    assert ordered == {"mine": [202, 202], "shared": [403, 403], "theirs": [404, 404], "crowd": [403, 403]}
    assert called_ones["mine"] is True
    assert called_ones["theirs"] is False
    assert (called_ones["shared"]["status"], called_ones["crowd"]["status"]) == (403, 403)
    assert read["status"] == 403
    assert versions == [403, 200]
    assert store_versions["status"] == 403
    found = await store.workers.worker_order("acme", "mine", "i")
    assert found is not None
    assert found.by != "me", "the author of an order is who the token is of"
    assert await store.workers.worker_order("acme", "shared", "i") is None


async def test_workers_and_readers_have_a_number_and_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.routes.store.MOST_WORKERS", 2)
    monkeypatch.setattr("penstock.service.routes.store.MOST_READERS", 2)
    async with limited(MemoryStore()) as client:
        await called(client, "open_queue", "a")
        workers, readers = [], []
        for name in ("u", "v", "w", "u"):
            entry = WorkerEntry(name, "host", 1, "1", {"a": 1}, ("t",))
            workers.append(await called(client, "register_worker", None, worker=entry, lease_ms=60_000))
            readers.append(await called(client, "register_reader", "a", name=name, cursor="0"))
        wide = WorkerEntry("x", "host", 1, "1", {"a": 1}, tuple(f"task-{n:010}" for n in range(5_000)))
        large = await called(client, "register_worker", None, worker=wide, lease_ms=60_000)

    assert [worker and worker["status"] for worker in workers] == [None, None, 429, None]
    assert (readers[2]["status"], readers[3].name) == (429, "u")
    assert (large["status"], large["errors"][0]["pointer"]) == (400, "/worker")


async def test_workers_of_a_tenant_have_a_size_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read together, by each who registers as well; many can come at the same time."""
    monkeypatch.setattr("penstock.service.routes.store.WORKERS_BYTES", 8_000)
    store = MemoryStore()
    tasks = tuple(f"task-{n:010}" for n in range(150))
    async with limited(store) as client:
        await called(client, "open_queue", "a")
        entries = [WorkerEntry(name, "host", 1, "1", {"a": 1}, tasks) for name in "uvwxyz"]
        said = await asyncio.gather(
            *(called(client, "register_worker", None, worker=each, lease_ms=60_000) for each in entries)
        )
        registered = await store.workers.list_workers("acme")
        again = await called(client, "register_worker", None, worker=registered[0], lease_ms=60_000)
        pause = await called(client, "pause_queue", "a", pause=Pause(0, "x" * 501))

    assert sorted(0 if each is None else each["status"] for each in said) == [0, 0, 0, 429, 429, 429]
    assert len(registered) == 3
    assert again is None
    assert pause["status"] == 400
