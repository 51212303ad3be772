"""What the user of the url may do: read once, when a store is opened."""

from typing import Final

from penstock.core.errors import ConfigError
from penstock.stores.postgres.engine import Engine
from penstock.stores.postgres.sources import in_schema

FEWEST: Final = 2
"""Connections of a store: one for calls, and one that listens."""

_PRIVILEGES: Final = """
SELECT
    has_table_privilege('penstock.job', 'INSERT') AND NOT pg_is_in_recovery()
        AND current_setting('transaction_read_only') = 'off',
    (SELECT rolname FROM pg_roles WHERE rolname = session_user AND rolconnlimit BETWEEN 0 AND $1 - 1)
"""


async def prove(engine: Engine) -> None:
    """Note which refusals would be faults that pass; ConfigError for a user who cannot work here."""
    [(may_write, short)] = await engine.run(in_schema(_PRIVILEGES, engine.address.schema), FEWEST)
    if short is not None and not engine.address.is_pooled:
        raise ConfigError(
            f"the server at {engine.address.shown} lets {short} have fewer than {FEWEST} connections: "
            f"a store needs one that listens and one for calls (ALTER ROLE {short} CONNECTION LIMIT -1)"
        )
    engine.proven(may_write=may_write)
