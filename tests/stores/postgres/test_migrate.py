"""Who may make the tables, who may only use them, and what a restored dump needs."""

import psycopg
import pytest

from penstock.core.errors import ConfigError, CursorLostError, StoreFormatError
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.migrate import grants, script
from penstock.stores.postgres.owner import SchemaOwner
from penstock.stores.postgres.sources import load_migrations
from penstock.testing.conformance.arrange import claim, claim_one, enqueue, new_job
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")


@pytest.fixture
def schema(url: str) -> str:
    """A schema that is not there, and a role that may do nothing: `modest`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS owned CASCADE")
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'modest'").fetchone() is None:
            connection.execute("CREATE ROLE modest LOGIN")
    return f"{url}?schema=owned"


def as_modest(url: str) -> str:
    """The url of the role that owns nothing."""
    return url.replace("//postgres@", "//modest@")


def run(url: str, *statements: str) -> None:
    """Statements of the user who owns everything."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        for each in statements:
            connection.execute(each.encode())


async def test_a_role_that_may_not_migrate_is_told_who_can(schema: str) -> None:
    """Opening makes the tables only for those who may."""
    with pytest.raises(ConfigError, match="penstock migrate up"):
        await PostgresStore(as_modest(schema)).open()


async def test_a_role_with_the_grants_can_work_on_queues_that_are_new(schema: str) -> None:
    """Their sequences belong to the user who migrated."""
    await SchemaOwner(schema).up(["modest"])
    store = PostgresStore(as_modest(schema))
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b")])
        job = await claim_one(store, QUEUE)
        await store.moves.settle(QUEUE, [Complete(job.id, job.token)])
        await store.moves.delete(QUEUE, ["b"])
        events = await store.events.read_events(QUEUE)
        findings = await store.health.check(QUEUE)

    assert [event.move for event in events] == ["enqueue", "enqueue", "claim", "complete", "delete"]
    assert findings == []


async def test_the_printed_sql_does_what_the_command_does(schema: str) -> None:
    """For those who let no program change tables."""
    owner = SchemaOwner(schema)
    before = await owner.look()
    run(schema, script("owned", 0, ["modest"]))
    after = await owner.look()
    store = PostgresStore(as_modest(schema))
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])

    assert before.version == 0
    assert after.version == after.newest
    assert (
        script("owned", after.version)
        == f"-- The schema owned has version {after.version}: there is nothing to run."
    )


def test_the_name_of_a_role_is_quoted() -> None:
    """It may have anything in it."""
    assert grants("penstock", 'a"b')[0] == 'GRANT USAGE ON SCHEMA "penstock" TO "a""b"'


async def test_a_dump_restored_into_another_cluster_has_to_start_again(schema: str) -> None:
    """Its stamps lie in the future there: no reader would see an event."""
    owner = SchemaOwner(schema)
    store = PostgresStore(schema)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b")])
        await claim(store, QUEUE, 1)
        cursor = (await store.events.read_events(QUEUE))[-1].cursor
        await store.readers.register_reader(QUEUE, "reader", cursor)
    # What a restore leaves: another server's number, and stamps above all of this one's.
    run(
        schema,
        "UPDATE owned.meta SET value = value + 1 WHERE name = 'cluster'",
        *(
            f"UPDATE owned.{table} SET stamp = (stamp::text::bigint + 1000000)::text::xid8"
            for table in ("job", "ended", "event")
        ),
    )
    found = await owner.look()
    with pytest.raises(StoreFormatError, match="penstock migrate up"):
        await PostgresStore(schema).open()
    started_again = await owner.up([])
    again = await owner.look()
    async with opened(store):
        await claim(store, QUEUE, 1)
        events = await store.events.read_events(QUEUE)
        with pytest.raises(CursorLostError):
            await store.events.read_events(QUEUE, cursor)
        readers = await store.readers.list_readers(QUEUE)
        findings = await store.health.check(QUEUE)

    assert found.is_foreign
    assert started_again
    assert not again.is_foreign
    assert [event.job for event in events] == ["a", "b", "a", "b"]
    assert readers == []
    assert findings == []


async def test_a_cluster_whose_numbers_are_higher_needs_nothing(schema: str) -> None:
    """As after an upgrade of the server: its number is another, and all stamps lie in the past."""
    owner = SchemaOwner(schema)
    async with opened(PostgresStore(schema)) as store:
        await enqueue(store, QUEUE, [new_job("a")])
    before = await owner.look()
    run(schema, "UPDATE owned.meta SET value = value + 1 WHERE name = 'cluster'")
    async with opened(PostgresStore(schema)) as store:
        events = await store.events.read_events(QUEUE)
    after = await owner.look()

    assert len(events) == 1
    assert after.is_settled
    assert after.store == before.store


SAMPLE = """
SELECT owned.open_queue('default', 'q');
INSERT INTO owned.job (
    queue, priority, version, delivery, max_attempts, place, stamp, fence, enqueued_at, deadline,
    retention_ms, key_held_ms, state, id, nonce, task, options, payload, token, worker
)
SELECT
    n, 5, 2, 1, 4, 1, '1', 1, 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 30000,
    86400000, 86400000, 'active', 'a', 'a', 'send', '{}', '{}', 't', 'w'
FROM owned.queue
"""
"""A lease as it was written before leases kept their durations."""


async def test_a_lease_from_before_it_kept_its_duration_is_held_and_ends(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as one of the longest."""
    older = load_migrations()[:9]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        await SchemaOwner(schema).up([])
    run(schema, SAMPLE)
    await SchemaOwner(schema).up([])
    store = PostgresStore(schema)
    async with opened(store):
        held = await store.reads.expired(QUEUE)
        [record] = await store.reads.get(QUEUE, ["a"])
        renewed = await store.moves.heartbeat(QUEUE, [Beat("a", "t")], 30_000)
        await store.clock.advance_clock(31_000)
        ended = await store.reads.expired(QUEUE)
        info = await store.queues.find_queue(QUEUE)

    assert (held, renewed, [lease.id for lease in ended]) == ([], [Applied(State.ACTIVE)], ["a"])
    assert record is not None
    assert record.lease_ms is None
    assert info is not None
    assert info.clock_step is None
