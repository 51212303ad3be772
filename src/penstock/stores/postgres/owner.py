"""What the owner of a schema does with it, apart from any store: look, migrate, grant."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import psycopg

from penstock.core.errors import ConfigError
from penstock.stores.postgres.address import address_of
from penstock.stores.postgres.engine import Connection, Engine
from penstock.stores.postgres.migrate import OWN_NAMES, Schema, bring_up, grants, look, retrying, script
from penstock.stores.postgres.sources import in_schema

_ADMITTED: Final = "SELECT role, tenant FROM penstock.member WHERE role = ANY(%s) LIMIT 1"


class SchemaOwner:
    """The schema that a url names. Nothing is kept open between calls."""

    def __init__(self, url: str) -> None:
        self._engine = Engine(address_of(url))

    @property
    def name(self) -> str:
        """The schema's name."""
        return self._engine.address.schema

    @property
    def shown(self) -> str:
        """The url, without secrets."""
        return self._engine.address.shown

    async def look(self) -> Schema:
        """The schema as it is."""
        async with self._connection() as connection, connection.transaction():
            await connection.execute(OWN_NAMES)
            return await look(connection, self._engine)

    async def up(self, roles: Sequence[str]) -> bool:
        """Migrate in one transaction, and grant these roles what workers and producers need.

        True where the schema was restored from another server, and had to start again.
        """

        async def once() -> bool:
            async with self._connection() as connection, connection.transaction():
                _, started_again = await bring_up(connection, self._engine, may_start_again=True)
                await self._refuse_admitted(connection, roles)
                for role in roles:
                    for statement in grants(self.name, role):
                        await connection.execute(statement.encode())
            return started_again

        return await retrying(once)

    def script(self, version: int, roles: Sequence[str], *, starts_again: bool = False) -> str:
        """What `up` would run on a schema of this version."""
        return script(self.name, version, roles, starts_again=starts_again)

    async def _refuse_admitted(self, connection: Connection, roles: Sequence[str]) -> None:
        """ConfigError for a role that is held to its tenants: these grants would admit it to all."""
        found = await connection.execute(in_schema(_ADMITTED, self.name).encode(), (list(roles),))
        for role, tenant in await found.fetchall():
            raise ConfigError(
                f"the role {role} was admitted to the tenant {tenant}, and has what it needs there: grants "
                "for all tenants would let it bypass row-level security"
            )

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A connection without time limits: changing large tables takes as long as it takes."""
        await self._engine.open()
        try:
            unlimited = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
            connection = await self._engine.connect(**unlimited)
            try:
                yield connection
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise self._engine.faults.translate(error) from error
        finally:
            await self._engine.close()
