"""Every text and number of the store's protocol is checked: none is passed on to a store as it came.

The test takes a good message of every call, spoils one value of it at a time, and wants each refused. What
may hold any text or number stands in a table, with the reason.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.core.flows import ChildEnding, ChildPolicy, JobRef
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate
from penstock.core.moves import Beat, Bury, Complete, Expire, Fail, Fault, Release, Report, Retry, Snooze
from penstock.core.retry import Backoff, Shape
from penstock.core.rollups import Deltas, FoldState
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.memory import MemoryStore
from penstock.stores.values import (
    Adoption,
    Firing,
    OrderKind,
    Pause,
    Query,
    RunningJob,
    Spawn,
    StoredSchedule,
    WorkerEntry,
)
from penstock.stores.wire import CALLS, MEDIA_TYPE
from penstock.testing.conformance.arrange import schedule_body
from tests.service.kit import asked

JOB = NewJob(
    id="a",
    nonce="n",
    task="t",
    payload=b"{}",
    run_at=1,
    delay_ms=1,
    idempotency_key="i",
    key="k",
    options=Options(
        max_attempts=1,
        backoff=Backoff(shape=Shape.LISTED, base_ms=1, cap_ms=1, delays_ms=(1,)),
        timeout_ms=1,
        retention_ms=1,
        key_retention_ms=1,
        result_retention_ms=1,
    ),
    unique=Unique("u", UniqueRule.THROTTLE, 1),
    awaits=(JobRef("mail", "b"),),
    parents=(JobRef("mail", "c"),),
    child_policy=ChildPolicy.WAIT,
    schedule="s",
    instant=1,
)
FAULT = Fault("ERROR", "boom", "f1")
RATE = Rate(1, 1_000, 1)
GIVEN: dict[str, dict[str, Any]] = {
    "enqueue": {"jobs": [JOB], "spawns": [Spawn("mail", JOB)], "mode": Mode.GLOBAL},
    "promote": {"limit": 1},
    "claim": {"worker": "w", "limit": 1, "lease_ms": 1_000, "floor_us": 0, "limits": ClaimLimits()},
    "heartbeat": {"beats": [Beat("a", "x")], "lease_ms": 1_000},
    "progress": {"reports": [Report("a", "x", b"1")]},
    "settle": {
        "settlements": [
            Complete("a", "x", b"1"),
            Fail("a", "x", FAULT),
            Retry("a", "x", 1, FAULT),
            Bury("a", "x", FAULT),
            Snooze("a", "x", 1, "NO_HANDLER"),
            Release("a", "x", "why"),
        ]
    },
    "expire": {"expiries": [Expire("a", "x", State.DELAYED, FAULT, 1)]},
    "cancel": {"ids": ["a"]},
    "redrive": {"ids": ["a"]},
    "delete": {"ids": ["a"]},
    "prune": {"limit": 1},
    "child_ended": {"endings": [ChildEnding("a", JobRef("mail", "b"), State.DEAD, b"1")]},
    "adopt": {"adoptions": [Adoption("a", (JobRef("mail", "b"),))]},
    "spawn": {"lease": Beat("a", "x"), "spawns": [Spawn("mail", JOB)]},
    "children": {"job": "a", "after": 1, "limit": 1, "results": True},
    "list_relay_entries": {"limit": 1, "after": 1},
    "delete_relay_entries": {"numbers": [1]},
    "put_schedule": {
        "schedule": StoredSchedule(QueueRef("acme", "mail"), "s", schedule_body("s"), 1, 1, False)
    },
    "remove_schedule": {"name": "s"},
    "pause_schedule": {"name": "s", "paused": True},
    "list_schedules": {"names": ["s"]},
    "due_schedules": {"limit": 1},
    "fire": {"firing": Firing("s", 1, (JOB,), 2, 1)},
    "get": {"ids": ["a"]},
    "find": {"query": Query(states=frozenset({State.DEAD}), task="t", limit=1, after="1/a")},
    "counts": {},
    "ahead": {"job": "a"},
    "key_holders": {"keys": ["a"]},
    "oldest": {},
    "expired": {"limit": 1},
    "leases": {"worker": "w"},
    "due_queues": {"names": ["mail"], "within_ms": 1, "events_kept": 1, "after": "a", "limit": 1},
    "claimable_queues": {"names": ["mail"], "within_ms": 1},
    "open_queue": {},
    "delete_queue": {},
    "find_queue": {},
    "list_queues": {},
    "list_tenants": {},
    "declare": {
        "declaration": Declaration(
            version=1, mode=Mode.KEYED, key_limit=1, max_active=1, max_length=1, rate=RATE, key_rate=RATE
        )
    },
    "set_key_rule": {"key": "k", "rule": KeyRule(1, 1)},
    "list_keys": {"limit": 1},
    "pause_queue": {"pause": Pause(1, "why", "ada", 1), "for_ms": 1},
    "put_entry": {"namespace": "s", "name": "a", "body": b"x", "expected": 0},
    "get_entry": {"namespace": "s", "name": "a"},
    "list_entries": {"namespace": "s", "after": "a", "limit": 1},
    "delete_entry": {"namespace": "s", "name": "a", "expected": 1},
    "register_worker": {
        "worker": WorkerEntry(
            "w",
            "host",
            1,
            "0.1",
            {"mail": 1},
            ("send",),
            instance="i",
            app_version="2",
            busy={"mail": 1},
            jobs=(RunningJob("mail", "j", "send", 1, 1),),
            memory=1,
            uptime_ms=1,
            poll_age_ms=1,
            loop_lag_ms=1,
        ),
        "lease_ms": 1_000,
    },
    "unregister_worker": {"worker": "w"},
    "list_workers": {},
    "rollup_position": {},
    "fold": {"from_cursor": "0", "to_cursor": "1-00000000", "deltas": Deltas(FoldState())},
    "list_rollups": {"span_ms": 60_000, "since": 1, "limit": 1},
    "expire_rollups": {"now": 1},
    "order_worker": {"worker": "w", "order": OrderKind.DRAIN, "by": "ada"},
    "worker_order": {"worker": "w", "instance": "i"},
    "list_versions": {},
    "read_events": {"after": "1-00000000", "limit": 1},
    "event_columns": {"after": 1, "through": "1-00000000", "limit": 1},
    "damaged_events": {"after": 1, "limit": 1},
    "cursor_after": {"after": 1, "limit": 1},
    "cursor_at": {"at": 1},
    "event_range": {},
    "trim": {"through": 1},
    "register_reader": {"name": "r", "cursor": 1},
    "list_readers": {},
    "unregister_reader": {"name": "r"},
    "remove_expired_readers": {},
    "holdup": {},
    "now": {},
    "advance_clock": {"by_ms": 1},
    "list_quarantined": {"after": "a", "limit": 1},
    "delete_quarantined": {"entries": ["a"]},
    "repair": {},
    "info": {},
    "check": {},
}
ANY_TEXT = {
    "payload": "the arguments of a job are any text to a store",
    "value": "progress is any JSON",
    "result": "a result is any JSON",
    "body": "an entry, or a schedule that is checked as a whole",
    "error": "the words of a handler, with its lines",
    "reason of a pause": "people's words",
    "key": "keys of jobs are free text",
    "keys": "keys of jobs are free text",
    "idempotency_key": "keys of jobs are free text",
}
NEGATIVE = {
    "by_ms": "a clock is turned both ways in tests",
    "run_at": "times before 1970 are times",
    "instant": "times before 1970 are times",
    "next_at": "times before 1970 are times",
    "last_at": "times before 1970 are times",
    "at": "times before 1970 are times",
    "until": "times before 1970 are times",
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every text and number of a message, with the way to it."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from leaves(each, (*path, place))
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield path, value


def message(move: str) -> Any:
    """A good message as plain values."""
    call = CALLS[move]
    body = call.encode("acme", "mail" if call.scope == "queue" else None, GIVEN[move])
    return msgspec.msgpack.decode(body)


def spoilt(move: str) -> Iterator[tuple[str, Any]]:
    """Messages with one value that cannot be, each with the name of the place."""
    whole = message(move)
    for path, value in leaves(whole):
        shown = ".".join(map(str, path))
        name = field_of(move, path)
        bad: list[Any] = []
        if isinstance(value, str) and name not in ANY_TEXT:
            bad = [f"{value}\n", f"{value}\x1b[2J", "x" * 20_000]
        elif isinstance(value, int):
            bad = [2**60] if name in NEGATIVE else [-1, 2**60]
        for each in bad:
            copy = msgspec.msgpack.decode(msgspec.msgpack.encode(whole))
            inner = copy
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = each
            yield f"{shown}={str(each)[:12]!r}", copy


def field_of(move: str, path: tuple[Any, ...]) -> str:
    """The field's name; settlements are lists that begin with the name of their kind."""
    if move == "settle" and len(path) > 2:
        kind = GIVEN[move]["settlements"][path[1]]
        return str(type(kind).__struct_fields__[path[2] - 1]) if len(path) == 3 else str(path[-1])
    if move == "pause_queue" and path[-1] == "reason":
        return "reason of a pause"
    if path[-2:] in (("options", "key"), ("unique", "key")):
        return "key"
    return str(path[-2] if isinstance(path[-1], int) and len(path) > 1 else path[-1])


def test_a_message_of_every_call_is_tried_with_every_field() -> None:
    assert GIVEN.keys() == CALLS.keys()
    assert {name: set(given) for name, given in GIVEN.items()} == {
        name: set(call.fields) for name, call in CALLS.items()
    }


@pytest.mark.parametrize("move", [name for name, given in GIVEN.items() if given])
async def test_a_value_that_cannot_be_is_refused_and_named(move: str) -> None:
    store = MemoryStore()
    async with asked(store, allow_clock_control=True) as client:
        await store.queues.open_queue(QueueRef("acme", "mail"))
        passed: list[str] = []
        unnamed: list[str] = []
        for place, body in spoilt(move):
            if place.startswith("tenant"):
                continue
            answer = await client.post(
                f"/v1/store/{move}",
                content=msgspec.msgpack.encode(body),
                headers={"content-type": MEDIA_TYPE},
            )
            if answer.status_code not in (400, 403):
                passed.append(f"{place}: {answer.status_code}")
            elif answer.status_code == 400 and not answer.json()["errors"][0]["wanted"]:
                unnamed.append(place)

    assert passed == []
    assert unnamed == []


@pytest.mark.parametrize("move", GIVEN)
async def test_the_message_is_good_before_it_is_spoilt(move: str) -> None:
    async with asked(allow_clock_control=True) as client:
        answer = await client.post(
            f"/v1/store/{move}",
            content=msgspec.msgpack.encode(message(move)),
            headers={"content-type": MEDIA_TYPE},
        )

    # A cursor of another log is gone; limits of keys need a queue that is declared so.
    assert answer.status_code in (200, 410) or "global queue" in answer.text, answer.text


@pytest.mark.parametrize("target", [State.ACTIVE, State.COMPLETED, State.BLOCKED])
async def test_a_lease_that_ran_out_leads_to_no_other_state(target: State) -> None:
    call = CALLS["expire"]
    body = call.encode("acme", "mail", {"expiries": [Expire("a", "x", target, FAULT)]})
    async with asked() as client:
        answer = await client.post("/v1/store/expire", content=body, headers={"content-type": MEDIA_TYPE})

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/expiries/0/target")


async def test_only_what_ended_is_told_as_an_ending() -> None:
    call = CALLS["child_ended"]
    ending = ChildEnding("a", JobRef("mail", "b"), State.ACTIVE)
    async with asked() as client:
        body = call.encode("acme", "mail", {"endings": [ending]})
        answer = await client.post(
            "/v1/store/child_ended", content=body, headers={"content-type": MEDIA_TYPE}
        )

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/endings/0/state")
