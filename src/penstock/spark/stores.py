"""The store of a reader or writer, opened for as long as it is used, and the queues that are meant."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.errors import ConfigError, UnknownQueueError
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.spark.options import ALL_TENANTS, SourceOptions
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from penstock.stores.ready import refuse_unready
from penstock.stores.registry import StoreKind, kind_of
from penstock.stores.sqlite.address import path_of
from penstock.stores.values import QueueInfo

T = TypeVar("T")


@asynccontextmanager
async def opened(
    options: SourceOptions, *, may_be_new: bool = False, may_migrate: bool = False
) -> AsyncIterator[Store]:
    """The store, open for the time of the block.

    A missing file is made only if it may be new; where it may not be migrated either, nothing is changed.
    """
    url = options.store_url
    if not may_be_new:
        refuse_missing_file(url)
        if not may_migrate:
            await refuse_unready(url)
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

    UnknownQueueError for one that no tenant has, and for a tenant that has none.
    """
    tenants = (
        await store.queues.list_tenants() if options.tenants == (ALL_TENANTS,) else sorted(options.tenants)
    )
    found = [info for tenant in tenants for info in await store.queues.list_queues(tenant)]
    if not {info.queue.tenant for info in found}.issuperset(named_tenants(options)):
        refuse_unknown_tenants(await store.queues.list_tenants(), options)
    refuse_unknown([info.queue for info in found], options)
    return [info for info in found if not options.queues or info.queue.name in options.queues]


def chosen(
    known: Mapping[int, tuple[str, str]], options: SourceOptions, wanted: Callable[[QueueRef], bool]
) -> dict[int, QueueRef]:
    """The same by their numbers, out of all queues of a store, and only those that rows are wanted of."""
    queues = {number: QueueRef(*names) for number, names in known.items()}
    refuse_unknown_tenants({queue.tenant for queue in queues.values()}, options)
    if options.tenants != (ALL_TENANTS,):
        queues = {number: each for number, each in queues.items() if each.tenant in options.tenants}
    refuse_unknown(queues.values(), options)
    return {
        number: each
        for number, each in queues.items()
        if (not options.queues or each.name in options.queues) and wanted(each)
    }


def named_tenants(options: SourceOptions) -> set[str]:
    """The tenants that have to be there: `default` is everybody's, also before it has a queue."""
    return set(options.tenants) - {ALL_TENANTS, DEFAULT_TENANT}


def refuse_unknown_tenants(there: Collection[str], options: SourceOptions) -> None:
    """UnknownQueueError where a tenant is asked for that has no queue: its rows would be none, silently."""
    for name in sorted(named_tenants(options) - set(there)):
        names = ", ".join(sorted(there)) or "none"
        raise UnknownQueueError(f"tenants: no tenant {name!r} has a queue; there are: {names}")


def refuse_unknown(queues: Iterable[QueueRef], options: SourceOptions) -> None:
    """UnknownQueueError where a queue is asked for that is not there."""
    names = {queue.name for queue in queues}
    for name in options.queues:
        if name not in names:
            there = ", ".join(sorted(names)) or "none"
            raise UnknownQueueError(
                f"queues: no queue {name!r} of tenant {', '.join(options.tenants)}; there are: {there}"
            )


def refuse_missing_file(url: str) -> None:
    """ConfigError for a SQLite file that is not there: looking at it must not make it."""
    if kind_of(url) is StoreKind.SQLITE and not (path := Path(path_of(url))).exists():
        raise ConfigError(f"url: there is no such file as {path.absolute()}")
