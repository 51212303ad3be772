"""`penstock migrate`: migrate the tables of a store to this version, show their version, print the SQL."""

from typing import Annotated, Final, Protocol

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.loading import open_store
from penstock.cli.registration import command, command_group
from penstock.core.errors import ConfigError, OptionError
from penstock.stores.registry import StoreKind, kind_of
from penstock.stores.sqlite.address import path_of

group = command_group("Migrate the tables of a store to this version.")

Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--grant-to",
        metavar="ROLE",
        help="PostgreSQL role to grant the rights of workers and producers, such as app; may be repeated",
        show_default="no role",
    ),
]
_NO_SCHEMA: Final = "has no tables: there is nothing to migrate; a newer format is refused when it is opened"
_REMOTE: Final = "the URL is that of a service: migrate the store where the service runs"


class _Schema(Protocol):
    """The tables of one store."""

    async def look(self) -> tuple[int, int, bool]:
        """The version of the tables, the newest one, and whether another server's backup was restored."""
        ...

    async def up(self, roles: list[str]) -> bool:
        """Migrate the tables; True if their event log was restarted because they had been restored."""
        ...

    def script(self, version: int, roles: list[str], starts_again: bool) -> str: ...


@command(group, "up")
async def up(context: CommandContext, grant_to: Roles = None) -> None:
    """Migrate the tables to this version, in one transaction; it is safe to run again, and concurrently.

    A PostgreSQL schema that was restored from another server becomes usable; only cursors into its event log
    are lost. Stop producers and workers of such a store before.
    """
    schema = _schema(context)
    if schema is None:
        _print_no_tables(context)
        return
    version, newest, _ = await schema.look()
    started_again = await schema.up(grant_to or [])
    context.out.document({"from": version, "version": newest, "started_again": started_again})
    if version == newest:
        context.out.line(f"schema version {newest}: nothing to migrate")
    else:
        context.out.line(f"schema version {version} → {newest}")
    if started_again:
        context.out.line(
            "the schema was restored from another server: its event log was restarted, and readers begin anew"
        )
    for role in grant_to or []:
        context.out.line(f"granted to {role}")


@command(group, "status")
async def status(context: CommandContext) -> None:
    """Show the version of the tables; the exit code is 1 if `penstock migrate up` is needed."""
    schema = _schema(context)
    if schema is None:
        _print_no_tables(context)
        return
    version, newest, is_foreign = await schema.look()
    is_current = version == newest and not is_foreign
    context.out.document(
        {"version": version, "newest": newest, "restored": is_foreign, "current": is_current}
    )
    context.out.fields(
        [
            ("version", version or "none: there are no tables yet"),
            ("newest", newest),
            ("restored", "from another server: not usable before a migration" if is_foreign else None),
            ("to do", None if is_current else "penstock migrate up"),
        ]
    )
    if not is_current:
        raise typer.Exit(1)


@command(group, "sql")
async def sql(
    context: CommandContext,
    grant_to: Roles = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="VERSION",
            min=0,
            help="Version to migrate from, without reading the store; 0 is an empty store",
            show_default="the version of the store",
        ),
    ] = None,
) -> None:
    """Print the SQL that `penstock migrate up` would run."""
    schema = _schema(context)
    if schema is None:
        _print_no_tables(context)
        return
    version, starts_again = since, False
    if version is None:
        version, _, starts_again = await schema.look()
    text = schema.script(version, grant_to or [], starts_again)
    context.out.document({"from": version, "sql": text})
    for line in text.split("\n"):
        context.out.line(line)


def _schema(context: CommandContext) -> _Schema | None:
    """The tables of the store that the settings name; None for a store without tables."""
    url = context.settings.url or (None if context.app is None else context.app.url)
    if url is None:
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")
    # Raises the errors for a wrong URL and a missing driver.
    open_store(url)
    match kind_of(url):
        case StoreKind.POSTGRES:
            return _PostgresSchema(url)
        case StoreKind.SQLITE:
            return _SqliteSchema(url)
        case _:
            return None


def _print_no_tables(context: CommandContext) -> None:
    store = context.make_store()
    kind = type(store).__name__.removesuffix("Store")
    context.out.document({"version": None, "newest": None, "restored": False, "current": True})
    context.out.line(f"a store in {kind} {_NO_SCHEMA}" if kind != "Remote" else _REMOTE)


class _PostgresSchema:
    def __init__(self, url: str) -> None:
        from penstock.stores.postgres.owner import SchemaOwner

        self._owner = SchemaOwner(url)

    async def look(self) -> tuple[int, int, bool]:
        found = await self._owner.look()
        return found.version, found.newest, found.is_foreign

    async def up(self, roles: list[str]) -> bool:
        return await self._owner.up(roles)

    def script(self, version: int, roles: list[str], starts_again: bool) -> str:
        return self._owner.script(version, roles, starts_again=starts_again)


class _SqliteSchema:
    def __init__(self, url: str) -> None:
        self._url = url
        self._path = path_of(url)

    async def look(self) -> tuple[int, int, bool]:
        from penstock.stores.sqlite.migrate import look

        return (*look(self._path), False)

    async def up(self, roles: list[str]) -> bool:
        _refuse_roles(roles)
        store = open_store(self._url)
        await store.open()
        await store.close()
        return False

    def script(self, version: int, roles: list[str], starts_again: bool) -> str:
        from penstock.stores.sqlite.migrate import script

        _refuse_roles(roles)
        return script(version)


def _refuse_roles(roles: list[str]) -> None:
    if roles:
        raise OptionError(
            "--grant-to", roles[0], "no role: SQLite has none; the permissions of the file decide"
        )
