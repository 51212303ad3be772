"""From a url to the outbox in that database."""

from penstock.core.errors import ConfigError
from penstock.core.store_url import scheme_of
from penstock.stores.open import open_store
from penstock.stores.outbox import OutboxSource
from penstock.stores.registry import StoreKind, kind_of


def open_outbox(url: str) -> OutboxSource:
    """The outbox in the database at this url, not opened yet; ConfigError where there can be none."""
    if _is_sqlite(url):
        from penstock.stores.sqlite.address import path_of
        from penstock.stores.sqlite.outbox import SqliteOutbox

        return SqliteOutbox(path_of(url))
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
    kind = kind_of(url)
    if kind not in {StoreKind.SQLITE, StoreKind.POSTGRES}:
        raise ConfigError(
            f"an outbox is in the database that your transactions are in: found {scheme_of(url)}://, wanted "
            "postgresql:// or sqlite:///"
        )
    # Says what is wrong with the url, and which driver is missing.
    open_store(url)
    return kind is StoreKind.SQLITE
