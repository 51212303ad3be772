"""A wall between tenants: roles that see and change nothing but their own, by the server's own rules."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from psycopg import errors

from penstock.core.errors import ConfigError
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Complete, Release, Snooze
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.service.auth.development import DevelopmentKey
from penstock.service.full_service import full_service
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.owner import SchemaOwner
from penstock.stores.postgres.sources import load_migrations
from penstock.stores.values import EVERYONE, Pause, Query, Topic
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE
from tests.service.kit import client_of
from tests.stores.postgres.conftest import run

MAIL, SHOP = QueueRef("mail", "q"), QueueRef("shop", "q")


@pytest.fixture
def walled(url: str) -> Iterator[str]:
    """The url of the owner of a schema that has a wall."""
    asyncio.run(_build(url, new_job("before")))
    yield f"{url}?schema=walled"
    asyncio.run(run(url, "DROP SCHEMA walled CASCADE", "DROP ROLE mail_app", "DROP ROLE shop_app"))


async def _build(url: str, *jobs: NewJob) -> None:
    await run(url, "CREATE ROLE mail_app LOGIN", "CREATE ROLE shop_app LOGIN")
    async with opened(PostgresStore(f"{url}?schema=walled")) as owner:
        # As tables from before know it, too.
        await run(url, f"SELECT walled.open_queue('{MAIL.tenant}', '{MAIL.name}')")
        if jobs:
            await enqueue(owner, MAIL, jobs)
    await run(url, "SELECT walled.admit('mail_app', 'mail')", "SELECT walled.admit('shop_app', 'shop')")


def _as(role: str, url: str) -> str:
    return url.replace("postgres@", f"{role}@", 1)


async def test_the_store_works_for_a_role_within_its_tenant(walled: str) -> None:
    """Also with queues that are opened later, and what was there before."""
    store = PostgresStore(_as("mail_app", walled))
    other = QueueRef("mail", "later")
    async with asyncio.timeout(PATIENCE), opened(store):
        await enqueue(store, MAIL, [new_job(f"j{n}") for n in range(3)])
        await enqueue(store, other, [new_job("x", delay_ms=60_000)])
        first, second, third, _ = await claim(store, MAIL, 4)
        settled = await store.moves.settle(
            MAIL,
            [
                Complete(first.id, first.token),
                Release(second.id, second.token),
                Snooze(third.id, third.token, delay_ms=1_000),
            ],
        )
        cancelled = await store.moves.cancel(other, ["x"])
        redriven = await store.moves.redrive(other, ["x"])
        await store.queues.pause_queue(MAIL, Pause(at=0))
        await store.queues.pause_queue(MAIL, None)
        async with store.notifier.subscribe(MAIL, Topic.READY) as subscription:
            await enqueue(store, MAIL, [new_job("bell")])
            is_notified = await subscription.wait(PATIENCE)
        found = (await store.reads.find(MAIL, Query())).jobs
        moves = [event.move for event in await store.events.read_events(MAIL)]
        names = [info.queue.name for info in await store.queues.list_queues("mail")]
        findings = [*await store.health.check(MAIL), *await store.health.check(other)]

    assert first.id == "before"
    assert [each.state for each in settled if isinstance(each, Applied)] == [
        State.COMPLETED,
        State.PENDING,
        State.DELAYED,
    ]
    assert cancelled == [Applied(State.CANCELLED)]
    assert isinstance(redriven[0], Applied)
    assert is_notified
    assert len(found) == 5
    assert len(moves) == 12
    assert names == ["later", "q"]
    assert findings == []


async def test_a_role_neither_sees_nor_changes_what_is_anothers(walled: str) -> None:
    """Through the store, and by any statement of its own."""
    mail, shop = PostgresStore(_as("mail_app", walled)), PostgresStore(_as("shop_app", walled))
    async with opened(mail), opened(shop):
        await enqueue(shop, SHOP, [new_job("s1"), new_job("s2")])
        [held] = await claim(shop, SHOP, 1)
        jobs = await mail.reads.get(SHOP, ["s1", "s2"])
        listed = await mail.queues.list_queues("shop")
        due = [await each.upkeep.due_queues("shop", within_ms=60_000) for each in (mail, shop)]
        named = await mail.upkeep.due_queues("shop", ["q"], within_ms=60_000)
        claimable = [await each.upkeep.claimable_queues("shop", ["q"]) for each in (mail, shop)]
        for call in (
            claim(mail, SHOP),
            mail.moves.enqueue(SHOP, [new_job("smuggled")]),
            mail.moves.cancel(SHOP, ["s2"]),
        ):
            with pytest.raises(ConfigError, match="not admitted to the tenant shop"):
                await call
        mine = _as("mail_app", walled.partition("?")[0])
        changed = await run(mine, "UPDATE walled.job SET state = 'dead' RETURNING id")
        gone = await run(mine, "DELETE FROM walled.event RETURNING job")
        settled = await shop.moves.settle(SHOP, [Complete(held.id, held.token)])
        findings = await shop.health.check(SHOP)

    assert [[each.name for each in page.queues] for page in (*due, named)] == [[], ["q"], []]
    assert [list(page.queues) for page in claimable] == [[], ["q"]]
    assert jobs == [None, None]
    assert listed == []
    assert changed == gone == [("before",)]
    assert settled == [Applied(State.COMPLETED)]
    assert findings == []


async def test_no_table_shows_a_role_more_than_its_own(walled: str) -> None:
    """Neither does a view, nor a partition; and each table with a queue has its rule."""
    async with opened(PostgresStore(_as("shop_app", walled))) as shop:
        await enqueue(shop, SHOP, [new_job("s1"), new_job("s2", idempotency_key="k")])
        [held] = await claim(shop, SHOP, 1)
        await shop.moves.settle(SHOP, [Complete(held.id, held.token)])
    owner = walled.partition("?")[0]
    tables = await run(
        owner,
        "SELECT attrelid::regclass::text, relrowsecurity FROM pg_attribute "
        "JOIN pg_class ON pg_class.oid = attrelid AND relkind IN ('r', 'p', 'v') "
        "WHERE relnamespace = 'walled'::regnamespace AND attname = 'queue'",
    )
    for table, is_walled in tables:
        [(count,)] = await run(_as("mail_app", owner), f"SELECT count(*) FROM {table} WHERE queue <> 1")

        assert count == 0, table
        assert is_walled or table == "walled.record", table


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE walled.queue SET tenant = 'mail'",
        "SELECT * FROM walled.member",
        "INSERT INTO walled.member VALUES ('mail_app', '*')",
        "SELECT walled.admit('mail_app', 'shop')",
        "UPDATE walled.meta SET value = 1",
        "SELECT nextval('walled.number_2')",
        "INSERT INTO walled.key_rule (queue, key, weight, stride) VALUES (2, 'k', 1, 1)",
        "UPDATE walled.job SET queue = 2",
        "SET ROLE shop_app",
    ],
)
async def test_a_role_cannot_climb_over_the_wall(walled: str, statement: str) -> None:
    async with opened(PostgresStore(_as("shop_app", walled))) as shop:
        await enqueue(shop, SHOP, [new_job("s1")])

    with pytest.raises((errors.InsufficientPrivilege, errors.UndefinedTable)):
        await run(_as("mail_app", walled.partition("?")[0]), statement)


async def test_who_is_admitted_keeps_nothing_of_what_was_granted_to_it_before(walled: str) -> None:
    """Also of tables to come; and the store works for it as for any other."""
    owner = walled.partition("?")[0]
    try:
        await run(owner, "CREATE ROLE late_app LOGIN")
        await SchemaOwner(walled).up(["late_app"])
        await run(owner, "SELECT walled.admit('late_app', 'late')", "SELECT walled.admit('late_app', 'mail')")
        for statement in ("UPDATE walled.meta SET value = 1", "SELECT nextval('walled.number_2')"):
            with pytest.raises((errors.InsufficientPrivilege, errors.UndefinedTable)):
                await run(_as("late_app", owner), statement)
        await run(owner, "CREATE TABLE walled.later (n integer)")
        [(sees_later,)] = await run(owner, "SELECT has_table_privilege('late_app', 'walled.later', 'SELECT')")
        async with opened(PostgresStore(_as("late_app", walled))) as store:
            await enqueue(store, QueueRef("late", "q"), [new_job("a")])
            found = [*await claim(store, QueueRef("late", "q")), *await claim(store, MAIL)]
        with pytest.raises(ConfigError, match="admitted"):
            await SchemaOwner(walled).up(["late_app"])
    finally:
        await run(owner, "DROP OWNED BY late_app", "DROP ROLE late_app")

    assert sees_later is False
    assert [job.id for job in found] == ["a", "before"]


@pytest.mark.parametrize(
    ("role", "tenant", "why"),
    [
        ("mail_app", "two words", "wanted 1 to 128 letters"),
        ("postgres", "mail", "owns the tables"),
        ("member_app", "mail", "is a member of group_app"),
    ],
)
async def test_nobody_is_admitted_whom_no_wall_would_hold(
    walled: str, role: str, tenant: str, why: str
) -> None:
    """Nor to a tenant that cannot be."""
    owner = walled.partition("?")[0]
    try:
        await run(owner, "CREATE ROLE group_app", "CREATE ROLE member_app LOGIN IN ROLE group_app")
        await SchemaOwner(walled).up(["group_app"])
        with pytest.raises(errors.InvalidParameterValue, match=why):
            await run(owner, f"SELECT walled.admit('{role}', '{tenant}')")
    finally:
        await run(owner, "DROP ROLE member_app", "DROP OWNED BY group_app", "DROP ROLE group_app")


async def test_a_role_is_told_which_tenants_it_does_not_see(walled: str) -> None:
    """An empty answer and a closed door look the same otherwise."""
    mail, owner = PostgresStore(_as("mail_app", walled)), PostgresStore(walled)
    async with opened(mail), opened(owner):
        seen = [
            await mail.is_shut_out("mail"),
            await mail.is_shut_out("shop"),
            await owner.is_shut_out("shop"),
        ]

    assert seen == [False, True, False]


async def test_a_role_that_was_granted_everything_admits_nobody(walled: str) -> None:
    """Only the owner does, whatever was granted by mistake."""
    owner = walled.partition("?")[0]
    await run(owner, "GRANT ALL ON ALL TABLES IN SCHEMA walled TO mail_app")
    with pytest.raises(errors.InsufficientPrivilege):
        await run(_as("mail_app", owner), "INSERT INTO walled.member VALUES ('mail_app', '*')")
    changed = await run(_as("mail_app", owner), "UPDATE walled.member SET tenant = '*' RETURNING role")

    assert changed == []


async def test_a_login_may_act_as_the_role_of_a_tenant(walled: str) -> None:
    """By the url; whoever may do so decides whose jobs it sees."""
    store = PostgresStore(f"{walled}&role=mail_app")
    async with opened(store):
        found = await claim(store, MAIL)
        with pytest.raises(ConfigError, match="mail_app was not admitted"):
            await store.queues.open_queue(SHOP)

    assert [job.id for job in found] == ["before"]


async def test_a_role_for_all_tenants_sees_them_all(walled: str) -> None:
    await run(walled.partition("?")[0], "SELECT walled.admit('shop_app', '*')")
    async with opened(PostgresStore(_as("shop_app", walled))) as store:
        await enqueue(store, SHOP, [new_job("s1")])

        assert [job.id for job in await claim(store, MAIL)] == ["before"]
        assert [job.id for job in await claim(store, SHOP)] == ["s1"]


async def test_a_role_sees_what_is_kept_for_its_tenant_alone(walled: str) -> None:
    """Not what others keep, nor what the service keeps for itself; whoever may act for all sees that too."""
    await run(walled.partition("?")[0], "CREATE ROLE service_app LOGIN")
    await run(walled.partition("?")[0], "SELECT walled.admit('service_app', '*')")
    shop, service = PostgresStore(_as("shop_app", walled)), PostgresStore(_as("service_app", walled))
    mail = PostgresStore(_as("mail_app", walled))
    try:
        async with asyncio.timeout(PATIENCE), opened(mail), opened(shop), opened(service):
            kept = await mail.key_value.put_entry("mail", "quotas", "all", b"mail's")
            of_service = await service.key_value.put_entry(EVERYONE, "quotas", "all", b"the service's")
            seen_by_shop = [
                await shop.key_value.get_entry(tenant, "quotas", "all") for tenant in ("mail", EVERYONE)
            ]
            dropped = await shop.key_value.delete_entry("mail", "quotas", "all")
            with pytest.raises(ConfigError, match="row-level security"):
                await shop.key_value.put_entry("mail", "quotas", "all", b"shop's")
            seen_by_all = [
                await service.key_value.get_entry(tenant, "quotas", "all") for tenant in ("mail", EVERYONE)
            ]
    finally:
        await run(walled.partition("?")[0], "DROP OWNED BY service_app", "DROP ROLE service_app")

    assert kept is not None
    assert (seen_by_shop, dropped) == ([None, None], False)
    assert seen_by_all == [kept, of_service]


async def test_a_wall_from_before_there_were_shelves_goes_around_them(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = load_migrations()[:4]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        await _build(url)
    try:
        place = f"{url}?schema=walled"
        async with opened(PostgresStore(place)) as owner:
            kept = await owner.key_value.put_entry("mail", "quotas", "all", b"mail's")
        mail, shop = PostgresStore(_as("mail_app", place)), PostgresStore(_as("shop_app", place))
        async with opened(mail), opened(shop):
            seen = [await store.key_value.get_entry("mail", "quotas", "all") for store in (mail, shop)]
            own = await shop.key_value.put_entry("shop", "quotas", "all", b"shop's")
    finally:
        await run(url, "DROP SCHEMA walled CASCADE", "DROP ROLE mail_app", "DROP ROLE shop_app")

    assert seen == [kept, None]
    assert own is not None


async def test_the_service_works_behind_the_wall(walled: str) -> None:
    """For the tenants that its role was admitted to; for others nothing is seen or taken in."""
    url = walled.partition("?")[0]
    await run(url, "CREATE ROLE service_app LOGIN", "SELECT walled.admit('service_app', 'mail')")
    key = DevelopmentKey.make()
    job = {"task": "send", "payload": {}}
    wish = {"worker": "w"}

    def headers(tenant: str) -> dict[str, str]:
        token = key.mint(tenants=[tenant], subject="ada", scopes=["*"], seconds=600, now=time.time())
        return {"authorization": f"Bearer {token}"}

    service = full_service(PostgresStore(_as("service_app", walled)), key=key)
    try:
        async with opened(PostgresStore(walled)) as owner:
            await enqueue(owner, SHOP, [new_job("secret")])
            async with asyncio.timeout(PATIENCE), service, client_of(service) as client:
                made = await client.post("/v1/queues/q/jobs", json=job, headers=headers("mail"))
                claimed = await client.post("/v1/queues/q/claims", json=wish, headers=headers("mail"))
                seen = await client.get("/v1/queues", headers=headers("shop"))
                found = await client.get("/v1/queues/q/jobs/secret", headers=headers("shop"))
                taken = await client.post("/v1/queues/q/jobs", json=job, headers=headers("shop"))
            left = await owner.reads.counts(SHOP)
    finally:
        await run(url, "DROP OWNED BY service_app", "DROP ROLE service_app")

    assert (made.status_code, claimed.json()["jobs"][0]["id"]) == (201, "before")
    assert (seen.json()["queues"], found.status_code) == ([], 404)
    assert taken.status_code >= 400
    assert (left[State.PENDING], sum(left.values())) == (1, 1)
