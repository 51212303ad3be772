"""Opens and closes the store of an app and the client on it, in event loops, threads and forked processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from weakref import WeakSet

from penstock.bloom.filters import Filters
from penstock.client.blocking import Blocking
from penstock.client.client import STORELESS, Client
from penstock.core.errors import ConfigError
from penstock.settings import url_of_environment
from penstock.stores.observed import StoreObserver, observe
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from penstock.stores.registry import kind_of

DEFAULT_URL: Final = "sqlite:///penstock.db"


class StoreConnection:
    """The store behind `url`, or `store`, with the app's client on it while somebody has the app open.

    `make_client` makes a client; one for another event loop gets the app's own client as its owner.
    """

    def __init__(
        self,
        url: str | None,
        store: Store | None,
        *,
        filters: Filters | None,
        make_client: Callable[[Client | None], Client],
    ) -> None:
        if url is not None and store is not None:
            raise ConfigError("an app has a url or a store, not both")
        if url is None and store is None:
            url = url_of_environment() or DEFAULT_URL
        if url is not None:
            kind_of(url)
        self.url = url
        self.client = make_client(None)
        self.blocking = Blocking(self._opened_clone, self.client.check_blocking)
        self._make_client = make_client
        self._store = store
        self._filters = filters
        self.observer: StoreObserver | None = None
        """Who is told of the calls of the store."""
        self._users = 0
        self._opening: asyncio.Lock | None = None
        self._stranded: Store | None = None
        _CONNECTIONS.add(self)

    @property
    def store(self) -> Store:
        """The store; its driver is imported when it is first asked for."""
        if self._store is None:
            if self.client.is_storeless:
                raise ConfigError(STORELESS)
            self._store = open_store(self.url or DEFAULT_URL, filters=self._filters)
        if self.observer is not None:
            observe(self._store, self.observer)
        return self._store

    async def enter(self) -> None:
        """Open the store for one more user, in the event loop that the others are in."""
        loop, client = asyncio.get_running_loop(), self.client
        self._check_stranded()
        left_open = self._forget_closed_loop()
        if self._opening is None:
            self._opening = asyncio.Lock()
            client.loop = loop
        elif client.loop is not loop:
            raise ConfigError("the app is open in another event loop: from other threads use app.blocking")
        self._users += 1
        try:
            async with self._opening:
                if left_open:
                    await self.store.close()
                if not client.is_open:
                    await self.store.open()
                    client.open(self.store)
        except BaseException:
            self._leave()
            raise

    async def exit(self) -> None:
        """Close the store when nobody uses it any more."""
        opening = self._opening
        if opening is None:
            return
        async with opening:
            self._users -= 1
            if self._users == 0 and self.client.is_open:
                self.client.forget_store()
                try:
                    await self.client.close()
                finally:
                    await self.store.close()
        if self._users == 0:
            self._opening = None

    @contextmanager
    def using(self, store: Store) -> Iterator[None]:
        """Another store for the time of the block; ConfigError while the app is open."""
        if self.is_in_use:
            raise ConfigError("the app is open: choose another store before it is opened")
        before, self._store = self._store, store
        try:
            yield
        finally:
            self._store = before

    @property
    def is_in_use(self) -> bool:
        """True while somebody has the app open, in an event loop or by `blocking`."""
        return self._opening is not None or self.blocking.is_open

    def forget_store(self) -> None:
        """Have neither store nor client from now on: in a process that only executes handlers."""
        self.url, self._store = None, None
        self.client.is_storeless = True

    def after_fork(self) -> None:
        """In the child of a fork: what is open belongs to the parent."""
        was_blocking = self.blocking.after_fork()
        if self._opening is None and not was_blocking:
            return
        stale, self._store = self.store, self.store.clone()
        _LEFT_BEHIND.append((stale, self.client.loop, vars(self.client).copy()))
        self._users, self._opening = 0, None
        self.client.forget_store()
        # SQLite keeps its locks per process: it would believe that the child holds those of the parent.
        self._stranded = stale if stale is self._store else None

    @asynccontextmanager
    async def _opened_clone(self) -> AsyncIterator[Client]:
        self._check_stranded()
        store = self.store.clone()
        await store.open()
        client = self._make_client(self.client)
        client.open(store)
        try:
            yield client
        finally:
            await client.close()
            await store.close()

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._opening = None

    def _forget_closed_loop(self) -> bool:
        """Start afresh where the event loop of the open app is gone; True if the store is still to close."""
        before = self.client.loop
        if self._opening is None or before is None or not before.is_closed():
            return False
        was_open = self.client.is_open
        self._users, self._opening = 0, None
        self.client.forget_store()
        # A store with connections in that loop lost them; one with threads of its own is its own clone.
        stale, self._store = self.store, self.store.clone()
        return was_open and stale is self._store

    def _check_stranded(self) -> None:
        if self._stranded is not None and self._stranded is self._store:
            raise ConfigError(
                "the app was open before a fork, and its store cannot be shared with the parent process: "
                "fork first and open then, or start processes with the method `spawn`"
            )


_CONNECTIONS: Final[WeakSet[StoreConnection]] = WeakSet()
_LEFT_BEHIND: Final[list[object]] = []
"""What belongs to the parent process. Collecting it would close what the parent uses."""


def _after_fork() -> None:
    for connection in list(_CONNECTIONS):
        connection.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
