"""The PostgreSQL store: every move one statement, guarded by the locks on the rows it changes."""

from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from penstock.core.effects import PROGRESS_EVERY_MS
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Refused
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PRUNE_LIMIT
from penstock.stores.postgres.claimable import PostgresClaimable
from penstock.stores.postgres.deletion import PostgresDeletion
from penstock.stores.postgres.due import PostgresDue
from penstock.stores.postgres.flows import PostgresFlows
from penstock.stores.postgres.kept import PostgresKept
from penstock.stores.postgres.limits import PostgresLimits
from penstock.stores.postgres.migrate import migrate
from penstock.stores.postgres.moves import PostgresMoves
from penstock.stores.postgres.readers import PostgresReaders
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.schedules import PostgresSchedules
from penstock.stores.postgres.standing import prove
from penstock.stores.postgres.within import PostgresWithin
from penstock.stores.rows import expire_item, settlement_item
from penstock.stores.worker_entries import WorkerEntries


class PostgresStore(
    PostgresReaders,
    PostgresWithin,
    PostgresSchedules,
    PostgresLimits,
    PostgresFlows,
    PostgresKept,
    PostgresDue,
    PostgresClaimable,
    PostgresMoves,
    PostgresDeletion,
    WorkerEntries,
):
    """A store in one schema of a database, used from one event loop."""

    keeps_call_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = False
    _users = 0

    async def open(self) -> None:
        """Reach the server and make or migrate the schema; opened twice, it is closed by the second close."""
        if self._users == 0:
            # Locks are of one event loop, and this one may be another than the last.
            self._lines = {}
            try:
                await self._engine.open()
                self._store_id = (await migrate(self._engine)).store
                await prove(self._engine)
            except BaseException:
                await self._engine.close()
                raise
        self._users += 1

    async def close(self) -> None:
        """Close every connection."""
        if self._users == 1:
            await self._wakeups.close()
            await self._engine.close()
        self._users = max(0, self._users - 1)

    def twin(self) -> "PostgresStore":
        """Another handle, with connections of its own."""
        twin = PostgresStore(self._url, sources=self._sources, table=self._table)
        # What one of them was told holds for the process.
        twin._projected = self._projected
        return twin

    # Moves

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        """Renew leases."""
        return await self._apply(queue, Move.HEARTBEAT, [(beat.id, beat.token) for beat in beats], lease_ms)

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        """Keep the newest progress."""
        items = [(report.id, report.token, report.value.decode()) for report in reports]
        return await self._apply(queue, Move.PROGRESS, items, PROGRESS_EVERY_MS)

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        """End deliveries, in the order given: neighbours of one kind together."""
        groups = [
            (move, [settlement_item(each) for each in group])
            for move, group in groupby(settlements, key=lambda settlement: settlement.move)
        ]
        return await self._apply_all(queue, groups)

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        """Apply what was decided for leases that ran out."""
        return await self._apply(queue, Move.EXPIRE, [expire_item(each) for each in expiries])

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Take back what waits; ask what runs to stop."""
        return await self._apply(queue, Move.CANCEL, [(each,) for each in ids])

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Give ended jobs a new life."""
        return await self._apply(queue, Move.REDRIVE, [(each,) for each in ids])

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Remove jobs that are not running, with one event for all of them."""
        return await self._apply(queue, Move.DELETE, [(each,) for each in ids])

    @answers_absent
    @renumbers
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        """Remove ended jobs whose time is over."""
        number = await self._there(queue)
        [(gone, last, is_there)] = await self._move(Move.PRUNE, number, limit, self._pruned.get(number, 0))
        if not is_there:
            await self._verify(queue, number)
        # The next of many batches need not walk over what vacuum has not come to; the first one looks at all.
        self._pruned[number] = last if gone and gone == limit else 0
        return int(gone)
