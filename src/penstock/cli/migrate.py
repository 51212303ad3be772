"""`penstock migrate`: bring the tables of a store to this version, or show what that would take."""

from typing import Annotated, Final, Protocol

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.reference import open_store
from penstock.core.errors import ConfigError, OptionError
from penstock.stores.open import check_url, sqlite_path

group = typer.Typer(help="Bring the tables of a store to this version.", no_args_is_help=True)

Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--grant-to",
        metavar="ROLE",
        help="Also give this PostgreSQL role what workers and producers need; may be repeated",
        show_default=False,
    ),
]
_NO_SCHEMA: Final = (
    "keeps no tables: there is nothing to migrate; a newer format is refused when it is opened"
)
_FAR: Final = "the store is a service's: migrate it where the service runs"


class _Schema(Protocol):
    """The tables of one store."""

    async def look(self) -> tuple[int, int, bool]:
        """Its version, the newest one, and whether it was restored from another server."""
        ...

    async def up(self, roles: list[str]) -> bool:
        """Bring it to the newest version; True if it started again after having been restored."""
        ...

    def script(self, version: int, roles: list[str], starts_again: bool) -> str: ...


@command(group, "up")
async def up(desk: Desk, grant_to: Roles = None) -> None:
    """Bring the tables to this version, in one transaction. Harmless when they are, and when many do it.

    A PostgreSQL schema that was restored from another server is made usable there: cursors into its event log
    are lost, and nothing else. Stop what works on the store until then.
    """
    schema = _schema(desk)
    if schema is None:
        _say_none(desk)
        return
    version, newest, _ = await schema.look()
    started_again = await schema.up(grant_to or [])
    desk.out.document({"from": version, "version": newest, "started_again": started_again})
    if version == newest:
        desk.out.line(f"schema version {newest}: nothing to migrate")
    else:
        desk.out.line(f"schema version {version} → {newest}")
    if started_again:
        desk.out.line("it was restored from another server: its event log starts again, readers with it")
    for role in grant_to or []:
        desk.out.line(f"granted to {role}")


@command(group, "status")
async def status(desk: Desk) -> None:
    """Show the version of the tables; exit code 1 when `penstock migrate up` has something to do."""
    schema = _schema(desk)
    if schema is None:
        _say_none(desk)
        return
    version, newest, is_foreign = await schema.look()
    is_current = version == newest and not is_foreign
    desk.out.document({"version": version, "newest": newest, "restored": is_foreign, "current": is_current})
    desk.out.fields(
        [
            ("version", version or "none: there are no tables yet"),
            ("newest", newest),
            ("restored", "from another server: it cannot be used before" if is_foreign else None),
            ("to do", None if is_current else "penstock migrate up"),
        ]
    )
    if not is_current:
        raise typer.Exit(1)


@command(group, "sql")
async def sql(
    desk: Desk,
    grant_to: Roles = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="VERSION",
            min=0,
            help="Of this version, without looking at the store; 0 is an empty one",
            show_default="what the store has",
        ),
    ] = None,
) -> None:
    """Print what `penstock migrate up` would run, for those who run it themselves."""
    schema = _schema(desk)
    if schema is None:
        _say_none(desk)
        return
    version, starts_again = since, False
    if version is None:
        version, _, starts_again = await schema.look()
    text = schema.script(version, grant_to or [], starts_again)
    desk.out.document({"from": version, "sql": text})
    for line in text.split("\n"):
        desk.out.line(line)


def _schema(desk: Desk) -> _Schema | None:
    """The tables of the store that is named; None for a store without any."""
    url = desk.settings.url or (None if desk.app is None else desk.app.url)
    if url is None:
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")
    # Also says what is wrong with the url, and which driver is missing.
    open_store(url)
    match check_url(url):
        case "postgresql" | "postgres":
            return _Postgres(url)
        case "sqlite":
            return _Sqlite(url)
        case _:
            return None


def _say_none(desk: Desk) -> None:
    store = desk.make_store()
    kind = type(store).__name__.removesuffix("Store")
    desk.out.document({"version": None, "newest": None, "restored": False, "current": True})
    desk.out.line(f"a store in {kind} {_NO_SCHEMA}" if kind != "Remote" else _FAR)


class _Postgres:
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


class _Sqlite:
    def __init__(self, url: str) -> None:
        self._url = url
        self._path = sqlite_path(url)

    async def look(self) -> tuple[int, int, bool]:
        from penstock.stores.sqlite.migrate import look

        return (*look(self._path), False)

    async def up(self, roles: list[str]) -> bool:
        _no_roles(roles)
        store = open_store(self._url)
        await store.open()
        await store.close()
        return False

    def script(self, version: int, roles: list[str], starts_again: bool) -> str:
        from penstock.stores.sqlite.migrate import script

        _no_roles(roles)
        return script(version)


def _no_roles(roles: list[str]) -> None:
    if roles:
        raise OptionError("--grant-to", roles[0], "none: SQLite knows no roles; the file's rights decide")
