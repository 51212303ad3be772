"""An opening that is cancelled leaves nothing open, however far it had come."""

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.stores.sqlite import SqliteStore
from tests.kit.waiting import block_until


async def test_one_that_has_only_begun(tmp_path: Path) -> None:
    before, store = set(threading.enumerate()), SqliteStore(tmp_path / "jobs.db")
    with store._opening:
        opening = asyncio.create_task(store.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    await _check_closed(store, before)


async def test_one_that_was_through_and_nobody_had_heard(tmp_path: Path) -> None:
    before, store = set(threading.enumerate()), SqliteStore(tmp_path / "jobs.db")
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0)
    # The event loop must not hear of it.
    block_until(lambda: store._users)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    await _check_closed(store, before)


async def _check_closed(store: SqliteStore, before: set[threading.Thread]) -> None:
    # Ends when the threads that open and close have ended.
    await asyncio.get_running_loop().shutdown_default_executor()

    assert set(threading.enumerate()) <= before
    with pytest.raises(StoreError, match="not open"):
        await store.reads.counts(QueueRef("default", "mail"))
