"""From a url to the outbox in that database."""

from penstock.core.errors import ConfigError
from penstock.stores.open import check_url, open_store, sqlite_path
from penstock.stores.outgoing import OutboxSource


def open_outbox(url: str) -> OutboxSource:
    """The outbox in the database at this url, not opened yet; ConfigError where there can be none."""
    if _is_sqlite(url):
        from penstock.stores.sqlite.outbox import SqliteOutbox

        return SqliteOutbox(sqlite_path(url))
    from penstock.stores.postgres.outbox import PostgresOutbox

    return PostgresOutbox(url)


def tables_of(url: str) -> str:
    """The SQL that makes the tables of an outbox."""
    if _is_sqlite(url):
        from penstock.stores.sqlite.outbox import TABLES

        return TABLES.strip()
    from penstock.stores.postgres.outbox import tables

    return tables(url)


def _is_sqlite(url: str) -> bool:
    scheme = check_url(url)
    if scheme not in {"sqlite", "postgresql", "postgres"}:
        raise ConfigError(
            f"an outbox is in the database that your transactions are in: found {scheme}://, wanted "
            "postgresql:// or sqlite:///"
        )
    # Says what is wrong with the url, and which driver is missing.
    open_store(url)
    return scheme == "sqlite"
