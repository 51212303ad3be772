"""Functions that run with the rights of the schema's owner run nothing that their caller brought along."""

import re
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.owner import SchemaOwner
from penstock.stores.postgres.sources import load_migrations
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.stores.postgres.conftest import as_role, build_guarded, owner_of, remove_guarded, run

MAIL = QueueRef("mail", "q")

# Where it runs as the owner, it admits the caller to every tenant.
_EVIL = """
CREATE FUNCTION pg_temp.evil() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = 'guarded_owner' THEN
        INSERT INTO guarded.member (role, tenant) VALUES (session_user, '*') ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END
$$
"""
_VIEW = [
    """
    CREATE VIEW pg_temp.pg_roles AS
    SELECT session_user::pg_catalog.name AS rolname, pg_temp.evil() AS rolsuper, true AS rolbypassrls
    """,
    "GRANT SELECT ON pg_temp.pg_roles TO PUBLIC",
]
_DOMAIN = ["CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.evil())"]
_CALLS = [
    "SELECT guarded.open_queue('globex', 'x')",
    "SELECT guarded.open_queue('mail', 'x')",
    "SELECT guarded.is_admitted('mail')",
    "SELECT guarded.my_queues()",
    "SELECT guarded.my_tenants()",
    "SELECT count(*) FROM guarded.job",
    "SELECT count(*) FROM guarded.kept",
]
# In the year 2255, in microseconds.
_FAR_AHEAD = 9_000_000_000_000_000
_STEP = "SELECT value FROM guarded.meta WHERE name = 'clock_step_back_ms'"


@pytest.mark.parametrize("trap", [_VIEW, _DOMAIN], ids=["view", "domain"])
async def test_no_temporary_object_of_a_caller_is_used_with_the_rights_of_the_owner(
    guarded: str, trap: list[str]
) -> None:
    """PostgreSQL looks into pg_temp before pg_catalog, unless a search_path says otherwise."""
    caught: list[str] = []
    for statement in _CALLS:
        await _call_beside(as_role("mail_app", guarded), trap, statement)
        if await run(guarded, "DELETE FROM guarded.member WHERE tenant = '*' RETURNING role"):
            caught.append(statement)

    assert caught == []


async def test_every_function_with_rights_of_its_own_searches_temporary_objects_last(guarded: str) -> None:
    """Also those that are yet to be written; and any other that has a search_path."""
    found = await run(
        guarded,
        "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace = 'guarded'::regnamespace",
    )
    wrong = [
        name
        for name, is_definer, settings in found
        if (is_definer or settings) and settings != ["search_path=pg_catalog, pg_temp"]
    ]

    assert {name for name, is_definer, _ in found if is_definer} >= {"open_queue", "my_queues"}
    assert wrong == []


async def test_no_other_thing_in_the_schema_runs_with_the_rights_of_its_owner(guarded: str) -> None:
    """Where roles are held to their tenants: no view shows what its owner sees, and nothing has a trigger."""
    views = await run(
        guarded,
        "SELECT relname, reloptions FROM pg_class "
        "WHERE relnamespace = 'guarded'::regnamespace AND relkind IN ('v', 'm')",
    )
    triggers = await run(
        guarded,
        "SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
        "WHERE relnamespace = 'guarded'::regnamespace",
    )

    assert views == [("record", ["security_invoker=true"])]
    assert triggers == []


async def test_a_role_that_may_only_use_the_schema_changes_nothing_through_functions(guarded: str) -> None:
    """Functions can be called by everybody; these write with the rights of the owner."""
    await run(
        guarded,
        "DELETE FROM guarded.member",
        "REVOKE ALL ON ALL TABLES IN SCHEMA guarded FROM mail_app",
        "GRANT SELECT ON ALL TABLES IN SCHEMA guarded TO mail_app",
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not insert jobs"):
        await run(as_role("mail_app", guarded), "SELECT guarded.open_queue('mail', 'x')")
    [(number,)] = await run(guarded, "SELECT n FROM guarded.queue")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not delete jobs"):
        await run(as_role("mail_app", guarded), f"SELECT guarded.delete_queue({number})")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not delete events"):
        await run(as_role("mail_app", guarded), "SELECT guarded.sweep_deleted(1)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not note the clock"):
        await run(as_role("mail_app", guarded), f"SELECT guarded.note_clock({_FAR_AHEAD})")

    assert await run(guarded, "SELECT name FROM guarded.queue") == [("q",)]
    assert await run(guarded, _STEP) == [(0,)]


@pytest.mark.parametrize(
    ("role", "is_believed"), [("mail_app", False), ("every_app", True), ("guarded_owner", True)]
)
async def test_a_role_of_some_tenants_does_not_say_that_the_clock_was_set_back(
    guarded: str, role: str, is_believed: bool
) -> None:
    """Schedules of every tenant follow a clock that was set back, and doctor tells all of them."""
    await run(guarded, "CREATE ROLE every_app LOGIN", "SELECT guarded.admit('every_app', '*')")
    try:
        await run(as_role(role, guarded), f"SELECT guarded.note_clock({_FAR_AHEAD})")
    finally:
        await run(guarded, "DROP OWNED BY every_app", "DROP ROLE every_app")

    [(back_ms,)] = await run(guarded, _STEP)
    assert bool(back_ms) == is_believed


async def test_a_role_of_some_tenants_notes_that_the_database_saw_the_clock_set_back(guarded: str) -> None:
    """The time that the database has kept is nobody's word."""
    await run(guarded, f"UPDATE guarded.meta SET value = {_FAR_AHEAD} WHERE name = 'clock_high_us'")
    await run(as_role("mail_app", guarded), "SELECT guarded.note_clock(0)")

    [(back_ms,)] = await run(guarded, _STEP)
    assert back_ms


_RIGHTS = """
SELECT oid::regprocedure::text, pg_get_userbyid(proowner), proacl::text, prosecdef, provolatile
FROM pg_proc WHERE pronamespace = 'guarded'::regnamespace ORDER BY 1
"""


async def test_a_schema_from_before_is_mended_beside_those_at_work(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions keep owners and privileges; a session that was open before is held to the new ones too."""
    older, mended = load_migrations()[:7], load_migrations()[:8]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        await build_guarded(url)
        mail = PostgresStore(f"{as_role('mail_app', url)}?schema=guarded")
        await mail.open()
    try:
        before = await run(
            url,
            "REVOKE EXECUTE ON FUNCTION guarded.my_tenants() FROM PUBLIC",
            "GRANT EXECUTE ON FUNCTION guarded.my_tenants() TO mail_app",
            _RIGHTS,
        )
        async with await psycopg.AsyncConnection.connect(as_role("mail_app", url), autocommit=True) as caller:
            for each in (_EVIL, *_DOMAIN):
                await caller.execute(each.encode())
            await caller.execute(_CALLS[1].encode())
            escaped = await run(url, "DELETE FROM guarded.member WHERE tenant = '*' RETURNING role")
            async with await psycopg.AsyncConnection.connect(as_role("mail_app", url)) as busy:
                await busy.execute("SELECT count(*) FROM guarded.job")
                with monkeypatch.context() as patched:
                    patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: mended)
                    await SchemaOwner(owner_of(url)).up([])
            await caller.execute(_CALLS[1].encode())
        again = await run(url, "SELECT role, tenant FROM guarded.member")
        after = await run(url, _RIGHTS)
        await SchemaOwner(owner_of(url)).up([])
        await enqueue(mail, MAIL, [new_job("b")])
        jobs = [job.id for job in await claim(mail, MAIL)]
    finally:
        await mail.close()
        await remove_guarded(url)

    assert escaped == [("mail_app",)]
    assert again == [("mail_app", "mail")]
    assert after == before
    assert jobs == ["a", "b"]


async def test_the_queries_of_the_advisories_tell_a_mended_schema_from_one_of_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them runs; the first one finds what is not mended."""
    text = (Path(__file__).parents[3] / "SECURITY.md").read_text("utf-8").partition("## Advisories")[2]
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    older = load_migrations()[:7]
    # The queries name the usual schema, which other tests use as well.
    await run(url, "CREATE DATABASE advisories")
    own = f"{url.rpartition('/')[0]}/advisories"
    try:
        with monkeypatch.context() as patched:
            patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
            await SchemaOwner(own).up([])
        before = await run(own, queries[0])
        await SchemaOwner(own).up([])
        after = await run(own, queries[0])
        await run(own, *queries)
    finally:
        await run(url, "DROP DATABASE advisories WITH (FORCE)")

    assert len(before) == 4
    assert after == []
    assert len(queries) == 3


async def _call_beside(url: str, trap: list[str], statement: str) -> None:
    """A call in a session whose temporary objects have the names of the server's own."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as caller:
        for each in (_EVIL, *trap):
            await caller.execute(each.encode())
        # Opening a queue of another tenant is refused, where nothing else happens.
        with suppress(psycopg.errors.InsufficientPrivilege):
            await caller.execute(statement.encode())
