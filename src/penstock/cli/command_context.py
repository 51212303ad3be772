"""What a command has at hand: the settings, the output, the app and the store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from penstock.app.app import Penstock
from penstock.bloom.filters import Filters
from penstock.cli.loading import (
    load_app,
    open_store,
    refuse_memory,
    refuse_missing_file,
    refuse_missing_schema,
)
from penstock.cli.output import Output
from penstock.core.errors import ConfigError, OptionError, UnknownQueueError
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.core.names import check_name
from penstock.settings import Settings
from penstock.stores.protocol import Store
from penstock.stores.ready import refuse_unready
from penstock.stores.registry import StoreKind, kind_of
from penstock.stores.values import QueueInfo


class CommandContext:
    """The settings, the output, the app and the store of one invocation of a command."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.out = Output(json=settings.json, absolute_times=settings.absolute_times)

    @cached_property
    def app(self) -> Penstock | None:
        """The app that the settings name, if any; OptionError if it belongs to another tenant."""
        if self.settings.app is None:
            return None
        app, tenant = load_app(self.settings.app), self.settings.tenant
        if tenant not in (None, app.tenant):
            raise OptionError(
                "--tenant", tenant, f"{app.tenant!r}, the tenant of the app {self.settings.app}"
            )
        return app

    @cached_property
    def filters(self) -> Filters:
        """The Bloom filters that the settings turn on."""
        return Filters.of(self.settings.bloom)

    def make_store(self) -> Store:
        """The store that the settings name, or else the store of their app; it is not open yet."""
        if self.settings.url is not None:
            is_service = kind_of(self.settings.url) is StoreKind.REMOTE
            token: dict[str, Any] = (
                {"token": self.settings.token} if is_service and self.settings.token else {}
            )
            return open_store(self.settings.url, filters=self.filters, **token)
        if self.app is not None:
            return self.app.store
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")

    def make_lasting_store(self) -> Store:
        """As `make_store`, but refuses a store whose jobs end with this process."""
        store = self.make_store()
        refuse_memory(store)
        return store

    @cached_property
    def tenant(self) -> str:
        """The tenant that the settings name, or else the app's."""
        if self.app is not None:
            return self.app.tenant
        return check_name("--tenant", self.settings.tenant or DEFAULT_TENANT)

    @asynccontextmanager
    async def store(self, *, may_be_new: bool = False, may_migrate: bool = True) -> AsyncIterator[Store]:
        """The store, open for the time of the block.

        A missing file or schema is made if it `may_be_new`, and is an error otherwise. Tables of an older
        version are migrated if that is allowed by `may_migrate`, and refused otherwise.
        """
        store = self.make_lasting_store() if may_be_new else self.make_store()
        if not may_be_new:
            url = self.settings.url or (None if self.app is None else self.app.url)
            refuse_missing_file(url)
            await refuse_missing_schema(url)
            if url is not None and not may_migrate:
                await refuse_unready(url)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def ref(self, queue: str) -> QueueRef:
        """A queue of this tenant by its name."""
        return QueueRef(self.tenant, check_name("queue", queue))

    async def queue(self, store: Store, name: str) -> QueueInfo:
        """The queue of that name; UnknownQueueError, which lists the tenant's queues, if there is none."""
        info = await store.queues.find_queue(self.ref(name))
        if info is None:
            known = ", ".join(each.queue.name for each in await store.queues.list_queues(self.tenant))
            raise UnknownQueueError(
                f"no queue {name!r} of tenant {self.tenant!r}; there are: {known or 'none'}"
            )
        return info

    async def queues(self, store: Store, name: str | None) -> list[QueueInfo]:
        """The queue of that name, or all queues of the tenant."""
        return (
            await store.queues.list_queues(self.tenant) if name is None else [await self.queue(store, name)]
        )


def no_queue() -> ConfigError:
    """The error for a task whose queue is not known."""
    return ConfigError("no queue is named: give --queue, or --app with an app that knows the task")
