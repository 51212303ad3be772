"""Which scheme of a url names which kind of store: the one place that knows."""

from enum import StrEnum
from typing import Final

from penstock.core.errors import ConfigError
from penstock.core.store_url import scheme_of


class StoreKind(StrEnum):
    """A kind of store."""

    MEMORY = "memory"
    SQLITE = "sqlite"
    POSTGRES = "postgres"
    REDIS = "redis"
    REMOTE = "remote"


EXAMPLES: Final = {
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
"""A url of each scheme."""

_KINDS: Final = {
    "memory": StoreKind.MEMORY,
    "sqlite": StoreKind.SQLITE,
    "postgresql": StoreKind.POSTGRES,
    "postgres": StoreKind.POSTGRES,
    "https": StoreKind.REMOTE,
    "http": StoreKind.REMOTE,
} | dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "unix"), StoreKind.REDIS)


def kind_of(url: object) -> StoreKind:
    """The kind of store that a url names; ConfigError, without secrets, when it names none."""
    if not isinstance(url, str):
        raise ConfigError(
            f"the url of a store is text, such as sqlite:///jobs.db; found {type(url).__name__}"
        )
    scheme = scheme_of(url)
    if scheme not in _KINDS:
        found = "no scheme" if scheme is None else f"{scheme}://"
        raise ConfigError(
            f"the url of a store: found {found}, wanted one like {'; '.join(EXAMPLES.values())}"
        )
    return _KINDS[scheme]
