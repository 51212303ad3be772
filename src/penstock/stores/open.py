"""From a url to a store, importing only the driver that is wanted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from penstock.bloom.filters import Filters
from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.core.store_url import scheme_of, shown_option
from penstock.stores.protocol import Store
from penstock.stores.values import Durability

SCHEMES: Final = {
    "memory": "memory://",
    "sqlite": "sqlite:///jobs.db, or sqlite:////var/lib/jobs.db for an absolute path",
    "redis": "redis://localhost:6379/0",
    "rediss": "rediss://localhost:6379/0",
    "valkey": "valkey://localhost:6379/0",
    "valkeys": "valkeys://localhost:6379/0",
    "unix": "unix:///run/redis.sock",
    "postgresql": "postgresql://localhost/jobs",
    "postgres": "postgres://localhost/jobs",
    "https": "https://jobs.example.org",
    "http": "http://localhost:8640",
}


def open_store(url: str, *, filters: Filters | None = None, **settings: Any) -> Store:
    """A store that is not opened yet; ConfigError when the url names none.

    `settings` are those of the store's own class and win over those in the url. Of the `filters` the Redis
    store takes the one for ghosts: only there, cancelled jobs leave entries behind.
    """
    match check_url(url):
        case "memory":
            from penstock.stores.memory import MemoryStore

            return _made(MemoryStore, url, **settings)
        case "sqlite":
            path, said = _sqlite(url)
            from penstock.stores.sqlite import SqliteStore

            return _made(SqliteStore, url, path, **(said | settings))
        case "postgresql" | "postgres":
            with _needing(url, "postgres"):
                from penstock.stores.postgres import PostgresStore
            return _made(PostgresStore, url, url, **settings)
        case "https" | "http":
            with _needing(url, "remote"):
                from penstock.stores.remote import RemoteStore
            return _made(RemoteStore, url, url, **settings)
        case _:
            with _needing(url, "redis"):
                from penstock.stores.redis import RedisStore
            if filters is not None:
                settings["ghosts"] = filters.ghost
            return _made(RedisStore, url, url, **settings)


def check_url(url: object) -> str:
    """The scheme of a url; ConfigError when it is none of ours. The message holds no secrets."""
    if not isinstance(url, str):
        raise ConfigError(
            f"the url of a store is text, such as sqlite:///jobs.db; found {type(url).__name__}"
        )
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        found = "no scheme" if scheme is None else f"{scheme}://"
        raise ConfigError(f"the url of a store: found {found}, wanted one like {'; '.join(SCHEMES.values())}")
    return scheme


def sqlite_path(url: str) -> str:
    """The file that a sqlite:// url names."""
    return _sqlite(url)[0]


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


def _sqlite(url: str) -> tuple[str, dict[str, Any]]:
    # A # and an @ may be part of a file's name.
    place, _, query = url.removeprefix("sqlite://").partition("?")
    path, shown = unquote(place.removeprefix("/")), f"sqlite://{place}"
    if not place.startswith("/"):
        raise ConfigError(f"sqlite://…: path: found none, wanted a file, such as {SCHEMES['sqlite']}")
    if not path or path.endswith("/") or "\0" in path:
        raise ConfigError(f"{shown}: path: wanted a file, such as {SCHEMES['sqlite']}")
    if path == ":memory:":
        raise ConfigError(f"{shown}: a store in memory is memory://")
    said: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "durability" or value not in {Durability.POWER, Durability.SERVER}:
            # The value of another option is not repeated: it may be a key or a password.
            found = f"durability={value}" if name == "durability" else f"{shown_option(name, query)}=…"
            raise ConfigError(f"{shown}: found {found!r}, wanted durability=power or durability=server")
        said[name] = Durability(value)
    return path, said


def _made(kind: Any, url: str, *args: Any, **settings: Any) -> Store:
    try:
        store: Store = kind(*args, **settings)
    except TypeError as error:
        raise ConfigError(f"a store at {url.partition(':')[0]}:// cannot take that: {error}") from error
    return store
