"""From a url to a store, importing only the driver that is wanted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, assert_never

from penstock.bloom.filters import Filters
from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.stores.protocol import Store
from penstock.stores.registry import StoreKind, kind_of


def open_store(url: str, *, filters: Filters | None = None, **settings: Any) -> Store:
    """A store that is not opened yet; ConfigError when the url names none.

    `settings` are those of the store's own class and win over those in the url. Of the `filters` the Redis
    store takes the one for ghosts: only there, cancelled jobs leave entries behind.
    """
    match kind_of(url):
        case StoreKind.MEMORY:
            from penstock.stores.memory import MemoryStore

            return _made(MemoryStore, url, **settings)
        case StoreKind.SQLITE:
            from penstock.stores.sqlite import SqliteStore
            from penstock.stores.sqlite.address import parse

            path, in_url = parse(url)
            return _made(SqliteStore, url, path, **(in_url | settings))
        case StoreKind.POSTGRES:
            with _needing(url, "postgres"):
                from penstock.stores.postgres import PostgresStore
            return _made(PostgresStore, url, url, **settings)
        case StoreKind.REMOTE:
            with _needing(url, "remote"):
                from penstock.stores.remote import RemoteStore
            return _made(RemoteStore, url, url, **settings)
        case StoreKind.REDIS:
            with _needing(url, "redis"):
                from penstock.stores.redis import RedisStore
            if filters is not None:
                settings["ghosts"] = filters.ghost
            return _made(RedisStore, url, url, **settings)
        case kind:
            assert_never(kind)


@contextmanager
def _needing(url: str, extra: str) -> Iterator[None]:
    """ConfigError for a driver that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("penstock"):
            raise
        raise ConfigError(
            f"a store at {url.partition(':')[0]}:// needs the package {error.name}: {install_command(extra)}"
        ) from error


def _made(kind: Any, url: str, *args: Any, **settings: Any) -> Store:
    try:
        store: Store = kind(*args, **settings)
    except TypeError as error:
        raise ConfigError(f"a store at {url.partition(':')[0]}:// cannot take that: {error}") from error
    return store
