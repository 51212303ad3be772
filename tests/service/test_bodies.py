"""What a body may hold: so many values, each name once; and the work on it leaves room for other requests."""

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any

import httpx
import msgspec
import pytest

from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Every
from penstock.core.flows import JobRef
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.moves import Complete
from penstock.core.retry import Backoff
from penstock.service import yielding
from penstock.service.app import Service
from penstock.service.json_bodies import check_unique_names, count_values
from penstock.service.limits import Limits
from penstock.service.tenants.quota_repository import Quota, QuotaRepository
from penstock.service.tenants.quotas import StoredQuotas
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Firing, StoredSchedule
from penstock.stores.wire import CALLS, MEDIA_TYPE, MOST_ITEMS, MOST_REFS
from tests.kit.waiting import until
from tests.service.kit import HeaderAuthenticator, asked, client_of

JOBS = "/v1/queues/mail/jobs"
JSON = {"content-type": "application/json"}
PACKED = {"content-type": MEDIA_TYPE}
MANY = Limits().json_values


def wide(count: int, item: bytes = b"[]") -> bytes:
    """A list of so many items."""
    return b"[" + b",".join([item] * count) + b"]"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", JOBS, b'{"task":"t","payload":{"a":%s}}' % wide(MANY)),
        (
            "POST",
            "/v1/jobs",
            b'{"jobs":%s}' % wide(7, b'{"queue":"q","task":"t","payload":%s}' % wide(9_000)),
        ),
        (
            "POST",
            "/v1/flows",
            b'{"jobs":[{"name":"a","queue":"q","task":"t","after":%s}]}' % wide(MANY, b'"a"'),
        ),
        (
            "POST",
            "/v1/queues/mail/claims/settle",
            b'{"settlements":[{"how":"complete","result":%s}]}' % wide(MANY),
        ),
        ("POST", "/v1/queues/mail/claims/progress", b'{"reports":[{"value":%s}]}' % wide(MANY)),
        ("POST", "/v1/queues/mail/claims/heartbeat", b'{"beats":%s}' % wide(MANY, b"{}")),
        ("POST", "/v1/queues/mail/dead-letters/purge", b'{"ids":%s}' % wide(MANY, b'"a"')),
        ("PUT", "/v1/schedules/s", b'{"queue":"q","task":"t","backoff":%s}' % wide(MANY, b"1")),
        ("POST", "/v1/webhooks", b'{"url":"x","queues":%s}' % wide(MANY, b'"a"')),
        ("PUT", "/v1/queues/mail", b'{"mode":%s}' % wide(MANY, b"{}")),
    ],
    ids=lambda value: value if isinstance(value, str) else "body",
)
async def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(
    method: str, path: str, body: bytes
) -> None:
    async with asked() as client:
        answer = await client.request(method, path, content=body, headers=JSON)

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (413, "urn:penstock:too-large")
    assert problem["detail"] == f"the body: found more than {MANY} JSON values, wanted at most {MANY}"


@pytest.mark.parametrize(
    "number",
    [
        b"1e-320",
        b"5E-324",
        b"0.00001e-310",
        b"12345678901234567890e-00320",
        b"1e300",
        b"1.7976931348623157E+308",
        b"0." + b"0" * 310 + b"17",
        b"-0." + b"0" * 200 + b"1e-99",
        b"7" * 300 + b".5",
    ],
)
async def test_numbers_that_are_slow_to_decode_count_more(number: bytes) -> None:
    """A decoder takes some hundred times as long for these."""
    body = b'{"task":"t","payload":{"a":%s}}' % wide(2_500, number)
    few = b'{"task":"t","payload":{"a":%s,"b":"%s"}}' % (wide(1_000, number), b"e-320 1e300 " * 9_000)
    usual = b'{"task":"t","payload":{"a":%s}}' % wide(20_000, b"1.5e-07")
    async with asked() as client:
        answers = [await client.post(JOBS, content=each, headers=JSON) for each in (body, few, usual)]

    assert [answer.status_code for answer in answers] == [413, 201, 201]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", JOBS, b'{"task":"t","%s":1}' % (b"x" * (7 << 20))),
        ("PUT", "/v1/queues/mail", b'{"mode":"%s"}' % (b"x" * (7 << 20))),
        ("POST", JOBS, b'{"task":"%s"}' % (b"x" * (7 << 20))),
        ("POST", JOBS, b'{"task":"t","backoff":"%s"}' % (b"x" * (7 << 20))),
        ("PUT", "/v1/schedules/s", b'{"queue":"mail","task":"t","cron":"%s"}' % (b"1 " * (3 << 20))),
    ],
    ids=["field", "enum", "name", "preset", "cron"],
)
async def test_a_long_value_is_refused_with_a_short_problem(method: str, path: str, body: bytes) -> None:
    async with asked() as client:
        answer = await client.request(method, path, content=body, headers=JSON)

    assert answer.status_code == 400
    assert len(answer.content) < 4_000


LONG = b"k" * 1_000_000
"""Shorter than a payload may be."""
BEYOND = b"123456789012345678901234567890"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", JOBS, b'{"task":"t","payload":{"%s":%s}}' % (LONG, BEYOND)),
        ("POST", JOBS, b'{"task":"t","payload":{"%s":%s}}' % (b"a b " * 250_000, BEYOND)),
        ("POST", JOBS, b'{"task":"t","payload":{"%s":{"%s":%s}}}' % (LONG[::2], LONG[::2], BEYOND)),
        (
            "PUT",
            "/v1/schedules/s",
            b'{"queue":"mail","task":"t","every":60,"payload":{"%s":%s}}' % (LONG, BEYOND),
        ),
        ("POST", "/v1/jobs", b'{"jobs":[{"queue":"mail","task":"t","payload":{"%s":%s}}]}' % (LONG, BEYOND)),
        ("POST", "/v1/jobs", b'{"jobs":[{"queue":"%s","task":"t"}]}' % LONG),
        ("POST", "/v1/flows", b'{"jobs":[{"key":"%s","queue":"mail","task":"t","after":["x"]}]}' % LONG),
        ("POST", "/v1/flows", b'{"jobs":[{"key":"a","queue":"%s","task":"t"}]}' % LONG),
        ("POST", "/v1/webhooks", b'{"url":"https://%s/","queue":"mail"}' % LONG),
    ],
    ids=["key", "quoted-key", "keys", "schedule", "batch", "queue", "node", "flow-queue", "webhook"],
)
async def test_a_problem_repeats_little_of_what_it_is_about(method: str, path: str, body: bytes) -> None:
    """Each refusal would otherwise cost the service, its client and their logs twice what was sent."""
    async with asked() as client:
        answer = await client.request(method, path, content=body, headers=JSON)

    assert b"urn:penstock:" in answer.content
    assert len(answer.content) < 4_000


async def test_text_may_have_as_many_commas_and_brackets_as_it_likes() -> None:
    text = 'a,[{\\"\n\u00e9' * 50_000
    async with asked() as client:
        made = await client.post(JOBS, json={"task": "t", "payload": {"csv": text}})
        shown = await client.get(f"{JOBS}/{made.json()['id']}?payload=true")

    assert made.status_code == 201
    assert shown.json()["payload"] == {"csv": text}


async def test_the_number_of_values_is_a_limit_that_can_be_set() -> None:
    body = b'{"task":"t","payload":{"a":%s}}' % wide(10, b"1")
    async with asked(limits=Limits(json_values=13)) as client:
        good = await client.post(JOBS, content=body, headers=JSON)
    async with asked(limits=Limits(json_values=12)) as client:
        refused = await client.post(JOBS, content=body, headers=JSON)

    assert (good.status_code, refused.status_code) == (201, 413)


def counted(steps: Generator[None, None, int]) -> int:
    """What the steps return."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return int(done.value)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"{}", 1),
        (b"[1,2,3]", 3),
        (b'{"a":[{},[]]}', 5),
        (b'{"a":"[[[{{,,,"}', 1),
        (b'{"a\\\\":"[\\"[,\\\\\\\\"}', 1),
        (b'["\\\\\\"[[,","\\\\",[]]', 4),
        (b'{"a":"\\\\\\\\\\"[","b":[[]]}', 4),
    ],
)
def test_values_are_counted_outside_of_text(
    body: bytes, values: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.service.json_bodies.PIECE_BYTES", piece)
    steps = count_values(body, 0)
    # Each list, each object, and each comma between two values.
    assert counted(steps) == values


@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("POST", JOBS, b'{"task":"a","task":"b"}', "task"),
        ("POST", JOBS, b'{"task":"a","t\\u0061sk":"b"}', "task"),
        ("POST", JOBS, b'{"task":"a","backoff":{"base":1,"base":2}}', "base"),
        ("POST", JOBS, b'{"task":"a","payload":{"to":1,"to":1}}', "to"),
        ("POST", JOBS, b'{"task":"a","payload":{"x":[1,{"y":{"to":1,"to":1}}]}}', "to"),
        ("POST", JOBS, b'{"task":"a","payload":{"":1,"":1}}', ""),
        (
            "POST",
            "/v1/jobs",
            b'{"jobs":[{"queue":"a","task":"t"}],"jobs":[{"queue":"b","task":"t"}]}',
            "jobs",
        ),
        ("POST", "/v1/jobs", b'{"jobs":[{"queue":"mail","queue":"q","task":"t"}]}', "queue"),
        ("POST", "/v1/flows", b'{"jobs":[{"name":"a","name":"b","queue":"mail","task":"t"}]}', "name"),
        ("POST", "/v1/queues/mail/claims", b'{"worker":"w","worker":"v"}', "worker"),
        (
            "POST",
            "/v1/queues/mail/claims/settle",
            b'{"settlements":[{"how":"complete","id":"j","token":"t","result":{"a":1,"a":2}}]}',
            "a",
        ),
        (
            "POST",
            "/v1/queues/mail/claims/settle",
            b'{"settlements":[{"how":"release","how":"release","id":"j","token":"t"}]}',
            "how",
        ),
        ("PUT", "/v1/schedules/s", b'{"queue":"mail","task":"t","every":60,"every":61}', "every"),
        ("PUT", "/v1/queues/mail", b'{"mode":"global","mode":"keyed"}', "mode"),
        ("POST", "/v1/webhooks", b'{"url":"https://a.example","url":"https://b.example"}', "url"),
    ],
    ids=range(15),
)
async def test_a_name_stands_once_in_an_object(method: str, path: str, body: bytes, name: str) -> None:
    """One reader takes the first of two, another the last: what a proxy allowed is not what is done."""
    async with asked() as client:
        answer = await client.request(method, path, content=body, headers=JSON)
        listed = await client.get("/v1/queues")

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (400, "urn:penstock:malformed")
    assert f"found the name {name!r} twice in one object, wanted each name once" in problem["detail"]
    assert listed.json() == {"queues": []}


def test_numbers_and_text_of_any_length_are_no_names() -> None:
    check_unique_names(b'{"a":{"b":1},"b":[%s,1.5e5,-0.0],"c":"\\ud83d\\ude00"}' % (b"9" * 100_000))


class FairClaims:
    """How often other tasks got their turn during the block."""

    async def __aenter__(self) -> "FairClaims":
        self.count = 0
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", {"jobs": [{"queue": "mail", "task": "t"}] * 500}),
        ("/v1/jobs", {"jobs": [{"queue": "mail", "task": "t", "payload": []}] * 500}),
        ("/v1/flows", {"jobs": [{"name": f"n{n}", "queue": "mail", "task": "t"} for n in range(500)]}),
        (
            "/v1/queues/mail/claims/settle",
            {"settlements": [{"how": "complete", "id": "j", "token": "t"}] * 500},
        ),
        ("/v1/queues/mail/claims/progress", {"reports": [{"id": "j", "token": "t", "value": 1}] * 500}),
    ],
    ids=["jobs", "jobs refused", "flow", "settle", "progress"],
)
async def test_others_have_their_turn_while_a_large_request_is_read(
    path: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked() as client:
        await client.post(JOBS, json={"task": "t"})
        # As if every item took as long as a request may hold the loop.
        monkeypatch.setattr(yielding, "SLICE_SECONDS", 0.0)
        async with FairClaims() as turns:
            await client.post(path, json=body)

    assert turns.count >= 500


def new(number: int = 0, **more: Any) -> NewJob:
    """A job as a client of the store's protocol makes it."""
    return NewJob(id=f"j{number}", nonce="n", task="t", payload=b"{}", **more)


def packed(call: str, **given: Any) -> bytes:
    """A call of the store's protocol."""
    return CALLS[call].encode(None, "mail", given)


REFS = (JobRef("q", "i"),) * (MOST_ITEMS + 1)
LARGE = [
    ("enqueue", packed("enqueue", jobs=[new()] * (MOST_ITEMS + 1)), "jobs"),
    ("enqueue", packed("enqueue", jobs=[new(awaits=REFS)]), "awaits"),
    ("enqueue", packed("enqueue", jobs=[new(parents=REFS)]), "parents"),
    (
        "enqueue",
        packed("enqueue", jobs=[new(options=Options(backoff=Backoff(delays_ms=(1,) * 20_001)))]),
        "delays_ms",
    ),
    (
        "enqueue",
        packed("enqueue", jobs=[new(n, awaits=REFS[1:]) for n in range(MOST_REFS // MOST_ITEMS + 1)]),
        "jobs",
    ),
    ("fire", packed("fire", firing=Firing("s", 1, (new(),) * (MOST_ITEMS + 1), None, 1)), "firing"),
    ("cancel", packed("cancel", ids=["j"] * (MOST_ITEMS + 1)), "ids"),
    ("settle", packed("settle", settlements=[Complete("j", "t", b"1")] * (MOST_ITEMS + 1)), "settlements"),
]


@pytest.mark.parametrize(
    ("call", "body", "field"), LARGE, ids=[f"{n} {LARGE[n][2]}" for n in range(len(LARGE))]
)
async def test_a_call_of_the_store_carries_so_much(call: str, body: bytes, field: str) -> None:
    async with asked() as client:
        await client.post(JOBS, json={"task": "t"})
        answer = await client.post(f"/v1/store/{call}", content=body, headers=PACKED)

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (400, "urn:penstock:invalid")
    assert field in problem["errors"][0]["pointer"]


async def test_others_have_their_turn_during_a_large_call_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = packed("enqueue", jobs=[new(number) for number in range(500)])
    async with asked() as client:
        monkeypatch.setattr(yielding, "SLICE_SECONDS", 0.0)
        async with FairClaims() as turns:
            answer = await client.post("/v1/store/enqueue", content=body, headers=PACKED)

    assert answer.status_code == 200
    # Each job is decoded, and then checked twice.
    assert turns.count >= 1_000


RECORD = encode_schedule(Schedule(name="s", spec=Every.of(60), task="t", payload=b"{}"))


@pytest.mark.parametrize(
    "record",
    [b'{"payload":%s}' % wide(MANY), b'{"name":"s",' + RECORD[1:], b'"' + b"x" * (17 << 18) + b'"'],
    ids=["values", "names", "bytes"],
)
async def test_the_record_of_a_schedule_is_held_to_the_same_bounds(record: bytes) -> None:
    stored = StoredSchedule(QueueRef("acme", "mail"), "s", record, None)
    body = CALLS["put_schedule"].encode("acme", None, {"schedule": stored})
    async with asked() as client:
        answer = await client.post("/v1/store/put_schedule", content=body, headers=PACKED)

    problem = answer.json()
    assert answer.status_code in (400, 413)
    assert "at most" in problem["detail"] or "twice" in problem["detail"]


async def test_a_flow_is_refused_by_name_when_it_has_too_many_edges() -> None:
    jobs = [{"name": f"n{n}", "queue": "mail", "task": "t"} for n in range(1_000)]
    names = [each["name"] for each in jobs]
    async with asked() as client:
        one = await client.post(
            "/v1/flows", json={"jobs": [{**jobs[0], "after": names + names[:1]}, *jobs[1:]]}
        )
        wide_jobs = [{**each, "after": names[:20] if n >= 20 else []} for n, each in enumerate(jobs)]
        most = await client.post(
            "/v1/flows", json={"jobs": [*wide_jobs[:-1], {**wide_jobs[-1], "after": names[:-1]}]}
        )

    assert (one.status_code, one.json()["errors"][0]["pointer"]) == (400, "/jobs/0/after")
    assert (most.status_code, most.json()["type"]) == (400, "urn:penstock:flow")
    assert "found 20579 entries of `after`, wanted at most 20000" in most.json()["detail"]


class Unread:
    """A request whose body nobody may ask for, and its answer."""

    def __init__(self, path: str, length: int) -> None:
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(b"content-length", b"%d" % length)],
            "query_string": b"",
        }
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        raise AssertionError("the body was read")

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def request(self, service: Service) -> tuple[int, Any]:
        """The status and the problem."""
        await service(self.scope, self.receive, self.send)
        return self.sent[0]["status"], msgspec.json.decode(self.sent[1]["body"])


async def test_a_rate_that_is_used_up_is_told_before_the_body_is_read() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(jobs_per_second=0.01))
    service = Service(store, authenticator=HeaderAuthenticator(), quotas=StoredQuotas(store))
    async with service, client_of(service) as client:
        first = await client.post("/v1/jobs", json={"jobs": [{"queue": "mail", "task": "t"}] * 100})
        refused = [
            await Unread(path, 100).request(service)
            for path in ("/v1/jobs", JOBS, "/v1/flows", "/v1/store/enqueue", "/v1/store/spawn")
        ]
        read = await client.post("/v1/queues/mail/claims", json={"worker": "w"})

    assert (first.status_code, read.status_code) == (200, 200)
    assert [(status, problem["type"]) for status, problem in refused] == [(429, "urn:penstock:quota")] * 5


async def test_a_job_larger_than_the_tenants_quota_is_refused_before_the_body_is_read() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(payload_bytes=1_000))
    service = Service(store, authenticator=HeaderAuthenticator(), quotas=StoredQuotas(store))
    async with service, client_of(service) as client:
        status, problem = await Unread(JOBS, 1 << 20).request(service)
        small = await client.post(JOBS, json={"task": "t", "payload": {"a": "x" * 1_000}})
        good = await client.post(JOBS, json={"task": "t", "payload": {"a": "x" * 900}})

    assert (status, problem["type"]) == (413, "urn:penstock:too-large")
    assert problem["detail"] == "the body: found 1048576 bytes, wanted at most 66536"
    assert (small.status_code, small.json()["errors"][0]["pointer"]) == (400, "/payload")
    assert good.status_code == 201


async def test_payloads_are_looked_at_after_the_quota() -> None:
    """Or a tenant that is over its quota could still make the service walk through them."""
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(payload_bytes=10))
    service = Service(store, authenticator=HeaderAuthenticator(), quotas=StoredQuotas(store))
    body = {"queue": "mail", "name": "n", "task": "t", "payload": ["no arguments by name"]}
    single = {"task": "t", "payload": body["payload"]}
    async with service, client_of(service) as client:
        named = [
            await client.post("/v1/jobs", json={"jobs": [{key: body[key] for key in body if key != "name"}]}),
            await client.post("/v1/flows", json={"jobs": [body]}),
            await client.post(JOBS, json=single),
        ]

    assert ["the tenant's quota" in answer.text for answer in named] == [True] * 3


@pytest.mark.parametrize("announced", [True, False])
async def test_bodies_of_one_tenant_that_are_there_at_a_time_have_a_size_together(announced: bool) -> None:
    """Those of others and small ones are read beside them, and there is room again once they are over."""
    half = b'{"task":"t","payload":"' + b"x" * 70_000
    full = asyncio.Event()
    begun: list[int] = []

    async def slow() -> AsyncIterator[bytes]:
        yield half
        begun.append(1)
        await full.wait()
        yield b'"}'

    async def sent(client: httpx.AsyncClient, body: AsyncIterator[bytes] | bytes, **headers: str) -> int:
        if announced and not isinstance(body, bytes):
            headers["content-length"] = str(len(half) + 2)
        headers |= {"content-type": "application/json"}
        return (await client.post("/v1/queues/mail/jobs", content=body, headers=headers)).status_code

    async with asked(limits=Limits(bodies_per_tenant=150_000)) as client:
        waiting = [asyncio.create_task(sent(client, slow())) for _ in range(2)]
        await until(lambda: len(begun) == 2)
        third = await sent(client, half + b'"}')
        small = await sent(client, b'{"task":"t","payload":{}}')
        other = await sent(client, half + b'"}', **{"x-tenant": "all"})
        full.set()
        answers = [await each for each in waiting]
        again = await sent(client, half + b'"}')

    assert (third, small, answers, again) == (429, 201, [400, 400], 400)
    assert other != 429
