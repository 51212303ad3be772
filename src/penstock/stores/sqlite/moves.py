"""The moves of jobs in the file: each call is one transaction on one queue, joined with those of others."""

from collections.abc import Sequence
from itertools import groupby

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused, is_asked_to_stop
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PROMOTE_LIMIT, PRUNE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.rows import encode, expire_item, settlement_item
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.claims import SqliteClaims, promote
from penstock.stores.sqlite.enqueue import enqueue
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.values import Spawn, Topic


class SqliteMoves:
    """Each move picks what passes its guards, changes it, writes the events, and answers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._claims = SqliteClaims(backend)

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in, and leave those of other queues to be carried over."""

        def move(transaction: QueueTransaction) -> list[Enqueued | Refused]:
            before = transaction.events
            out = enqueue(transaction, list(jobs), for_flow=bool(spawns), mode=mode)
            # A repeated call finds its jobs there, and its spawns were written with them.
            for each in spawns if transaction.events > before else ():
                transaction.relay(each.queue, "spawn", encode(each.job))
            return out

        return await self._backend.transact(queue, move)

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        """Make due jobs claimable."""
        return await self._backend.transact(
            queue, lambda transaction: promote(transaction, limit), creates=False
        )

    @answers_absent
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        """Promote, lease, and name leases that ran out."""
        return await self._claims.claim(
            queue, worker=worker, limit=limit, lease_ms=lease_ms, floor_us=floor_us, limits=limits
        )

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        """Renew leases."""
        items = [(beat.id, beat.token) for beat in beats]
        return await self._backend.transact(
            queue,
            lambda transaction: transaction.apply(Move.HEARTBEAT, items, lease_ms=lease_ms),
            creates=False,
        )

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        """Keep the newest progress."""
        items = [(report.id, report.token, report.value.decode()) for report in reports]
        return await self._backend.transact(
            queue, lambda transaction: transaction.apply(Move.PROGRESS, items), creates=False
        )

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        """End deliveries, in the order given."""
        groups = [
            (move, [settlement_item(each) for each in group])
            for move, group in groupby(settlements, key=lambda settlement: settlement.move)
        ]
        return await self._backend.transact(
            queue,
            lambda transaction: [out for move, items in groups for out in transaction.apply(move, items)],
            creates=False,
        )

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        """Apply what was decided for leases that ran out."""
        items = [expire_item(expiry) for expiry in expiries]
        return await self._backend.transact(
            queue, lambda transaction: transaction.apply(Move.EXPIRE, items), creates=False
        )

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Take back what waits; ask what runs to stop."""
        return await self._backend.transact(
            queue, lambda transaction: _cancel(transaction, list(ids)), creates=False
        )

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Give ended jobs a new life."""
        return await self._backend.transact(
            queue, lambda transaction: transaction.apply(Move.REDRIVE, list(ids)), creates=False
        )

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Remove jobs that are not running, with one event for all of them."""
        return await self._backend.transact(
            queue, lambda transaction: _delete(transaction, list(ids)), creates=False
        )

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        """Remove ended jobs whose time is over."""

        def move(transaction: QueueTransaction) -> int:
            gone = transaction.pick(Move.PRUNE, limit=limit)
            if gone:
                if transaction.has_flows:
                    transaction.relay_endings(gone=True)
                transaction.write_shared_event(Move.PRUNE, [job for (job,) in transaction.touched("value")])
                transaction.run(Move.PRUNE, "keys")
                transaction.run(Move.PRUNE, "children")
                transaction.run(Move.PRUNE, "change")
            for step in ("forget", "forget_kinds", "forget_rates"):
                transaction.run(Move.PRUNE, step)
            return gone

        return await self._backend.transact(queue, move, creates=False)


def _delete(transaction: QueueTransaction, ids: list[str]) -> list[Applied | Refused]:
    out: list[Applied | Refused] = [Refused(Refusal.MISSING)] * len(ids)
    named = list(dict.fromkeys(ids))
    gone = transaction.pick(Move.DELETE, items=encode(named))
    for item, source in transaction.touched("item, source"):
        out[ids.index(named[item])] = Applied(State(source))
    if gone:
        if transaction.has_flows:
            transaction.relay_endings(gone=True)
        transaction.touch(Move.DELETE)
        transaction.run(Move.DELETE, "keys")
        transaction.run(Move.DELETE, "children")
        if gone == 1:
            transaction.write_deletion_event()
        else:
            transaction.write_shared_event(
                Move.DELETE, [named[item] for (item,) in transaction.touched("item")]
            )
        transaction.run(Move.DELETE, "change")
    rest = [index for index, each in enumerate(out) if isinstance(each, Refused)]
    for index, refused in zip(
        rest, transaction.refuse(Move.DELETE, [ids[index] for index in rest]), strict=True
    ):
        out[index] = refused
    return out


def _cancel(transaction: QueueTransaction, ids: list[str]) -> list[Applied | Refused]:
    out = transaction.apply(Move.CANCEL, ids)
    if is_asked_to_stop(out):
        transaction.notifications.add(Topic.CONTROL)
    return out
