"""Telling a call that waits for somebody's lock from one that is through."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import psycopg

from tests.kit.waiting import eventually

T = TypeVar("T")

_WAITERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'penstock'"
)


async def until_it_waits(url: str, work: Coroutine[Any, Any, T]) -> tuple[bool, "asyncio.Task[T]"]:
    """Start the work; whether it came to wait for a lock, or was through without."""
    task = asyncio.create_task(work)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watch:

        async def is_told() -> str:
            if task.done():
                return "through"
            row = await (await watch.execute(_WAITERS)).fetchone()
            return "waits" if row and row[0] else ""

        told = await eventually(is_told, "a call that is through, or waits for a lock")
    return told == "waits", task
