"""Deleting a queue: its row goes in one transaction, the rows it leaves behind in batches after that."""

import asyncio
import random
import time
from typing import Any, Final

import psycopg

from penstock.core.errors import StoreError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.bounds import SWEEP_LIMIT
from penstock.stores.postgres.backend import Backend
from penstock.stores.values import QueueContents

_LOCK_MS: Final = 100
"""How long a deletion waits for the table at most, each time: calls that write jobs wait behind it."""
_TIMEOUT: Final = 4.0
"""Seconds after which a deletion gives up because transactions that write jobs stay open."""

_WAIT_AT_MOST: Final = "SELECT set_config('lock_timeout', $1, true)"
_LOCK: Final = "SELECT n FROM penstock.queue WHERE tenant = $1 AND name = $2 FOR UPDATE"
# Calls that write jobs without holding the queue's row are through after this, or see that it is gone.
_WAIT_FOR_MOVES: Final = "LOCK TABLE penstock.job IN SHARE MODE"
_JOBS: Final = """
SELECT state, count(*) FROM penstock.job WHERE queue = $1 AND state <> 'quarantined' GROUP BY state
UNION ALL
SELECT state, count(*) FROM penstock.ended WHERE queue = $1 GROUP BY state
"""
_QUARANTINE: Final = "DELETE FROM penstock.job WHERE queue = $1 AND state = 'quarantined'"
_SCHEDULES_AND_RELAYS: Final = """
SELECT
    (SELECT count(*) FROM penstock.schedule WHERE queue = $1),
    (SELECT count(*) FROM penstock.relay WHERE queue = $1)
"""


class QueueDeletion:
    """The end of a queue."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        """Delete a queue without jobs, schedules and relay entries; its contents, None where there is none.

        The rows it leaves behind are removed by this call; where it is cut off, by the next deletion.
        """
        # Most queues that cannot be deleted are found out without holding up any call.
        rows = await self._backend.query(_LOCK.removesuffix(" FOR UPDATE"), queue.tenant, queue.name)
        contents = await self._contents(rows[0][0]) if rows else None
        if contents is None or not contents.is_empty:
            return contents
        end = time.monotonic() + _TIMEOUT
        while True:
            try:
                contents = await self._delete(queue)
                break
            except StoreError as error:
                if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                    raise
                if time.monotonic() >= end:
                    raise StoreUnavailableError(
                        f"{self._backend.address.shown}: transactions that write jobs stay open: "
                        f"the queue {queue} was not deleted"
                    ) from error
            await asyncio.sleep(random.uniform(0.5, 1.5) * _LOCK_MS / 1000)
        if contents is not None and contents.is_empty:
            while (await self._backend.query("SELECT penstock.sweep_deleted($1::integer)", SWEEP_LIMIT))[0][
                0
            ]:
                pass
        return contents

    async def _delete(self, queue: QueueRef) -> QueueContents | None:
        async with self._backend.engine.transaction() as connection:
            await self._backend.query(_WAIT_AT_MOST, str(_LOCK_MS), on=connection)
            rows = await self._backend.query(_LOCK, queue.tenant, queue.name, on=connection)
            if not rows:
                self._backend.forget_queue(queue)
                return None
            [(number,)] = rows
            await self._backend.query(_WAIT_FOR_MOVES, on=connection)
            contents = await self._contents(number, on=connection)
            if contents.is_empty:
                await self._backend.query(_QUARANTINE, number, on=connection)
                await self._backend.query("SELECT penstock.delete_queue($1::integer)", number, on=connection)
        if contents.is_empty:
            self._backend.forget_queue(queue)
        return contents

    async def _contents(self, number: int, on: Any = None) -> QueueContents:
        jobs = {State(state): count for state, count in await self._backend.query(_JOBS, number, on=on)}
        [(schedules, relays)] = await self._backend.query(_SCHEDULES_AND_RELAYS, number, on=on)
        return QueueContents(jobs, schedules, relays)
