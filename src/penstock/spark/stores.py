"""The store of a reader or writer, opened for as long as it is used, and the queues that are meant."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from penstock.core.errors import ConfigError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.spark.options import ALL_TENANTS, SourceOptions
from penstock.stores.open import open_store
from penstock.stores.protocol import QueueInfo, Store

T = TypeVar("T")


@asynccontextmanager
async def opened(options: SourceOptions, *, may_be_new: bool = False) -> AsyncIterator[Store]:
    """The store, open for the time of the block; a missing file is made only if it may be new."""
    url = options.store_url
    if not may_be_new:
        refuse_missing_file(url)
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Wait for a coroutine; Spark's workers have no event loop of their own."""
    return asyncio.run(work)


async def queues_of(store: Store, options: SourceOptions) -> list[QueueInfo]:
    """The queues that are asked for, by tenant and name; all of the tenants where none is named.

    UnknownQueueError for one that no tenant has.
    """
    tenants = await store.tenants() if options.tenants == (ALL_TENANTS,) else options.tenants
    found = [info for tenant in sorted(tenants) for info in await store.queues(tenant)]
    if not options.queues:
        return found
    known = {info.queue.name for info in found}
    missing = [name for name in options.queues if name not in known]
    if missing:
        there = ", ".join(str(info.queue) for info in found) or "none"
        raise UnknownQueueError(f"no queue {QueueRef(options.tenants[0], missing[0])}; there are: {there}")
    return [info for info in found if info.queue.name in options.queues]


def refuse_missing_file(url: str) -> None:
    """ConfigError for a SQLite file that is not there: looking at it must not make it."""
    scheme, _, rest = url.partition(":///")
    path = Path(unquote(rest.partition("?")[0]))
    if scheme == "sqlite" and rest and not path.exists():
        raise ConfigError(f"url: there is no such file as {path.absolute()}")
