"""The moves of jobs: tried, tried again where others came in between, and answered one by one."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from penstock.core.effects import PROGRESS_EVERY_MS
from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Refusal, Refused, is_asked_to_stop, repeated
from penstock.core.states import REDRIVABLE, State
from penstock.core.transitions import TABLE
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PRUNE_LIMIT
from penstock.stores.postgres.backend import Backend, rounds
from penstock.stores.postgres.claims import PostgresClaims
from penstock.stores.postgres.engine import Value
from penstock.stores.postgres.enqueue import PostgresEnqueue
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.renumbering import StaleNumberError, renumbers
from penstock.stores.rows import expire_item, settlement_item
from penstock.stores.values import Topic

_TRIES: Final = 2
_SILENT: Final = {Move.HEARTBEAT, Move.PROGRESS, Move.DELETE}
"""Moves after which nobody is notified."""


class PostgresMoves:
    """The part `Moves`: every move is one statement, guarded by the locks on the rows that it changes."""

    def __init__(
        self,
        backend: Backend,
        enqueue: PostgresEnqueue,
        claims: PostgresClaims,
        quarantine: PostgresQuarantine,
    ) -> None:
        self._backend = backend
        self._quarantine = quarantine
        self.enqueue = enqueue.enqueue
        self.promote = claims.promote
        self.claim = claims.claim

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
        out = await self._apply(queue, Move.CANCEL, [(each,) for each in ids])
        if is_asked_to_stop(out):
            self._backend.notifier.notify(queue, {Topic.CONTROL})
        return out

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
        number = await self._backend.require_number(queue)
        [(gone, last, is_there)] = await self._backend.run_move(
            Move.PRUNE, number, limit, self._backend.pruned_through.get(number, 0)
        )
        if not is_there:
            await self._backend.verify_number(queue, number)
        # The next of many batches need not walk over what vacuum has not come to; the first one looks at all.
        self._backend.pruned_through[number] = last if gone and gone == limit else 0
        return int(gone)

    async def _apply(
        self, queue: QueueRef, move: Move, items: Sequence[Sequence[Value]], *params: Value
    ) -> list[Applied | Refused]:
        """A move of jobs whose items begin with the id, and those of a lease with its token after that."""
        return await self._apply_all(queue, [(move, items)], *params)

    @renumbers
    async def _apply_all(
        self,
        queue: QueueRef,
        groups: Sequence[tuple[Move, Sequence[Sequence[Value]]]],
        *params: Value,
    ) -> list[Applied | Refused]:
        """Apply moves one after the other; in one transaction where keys take turns."""
        number = await self._backend.require_number(queue)
        try:
            return await self._apply_groups(queue, number, groups, params)
        except StoreError as error:
            ids = [str(item[0]) for _, items in groups for item in items]
            if not await self._quarantine.mend(queue, number, error, ids):
                raise
        return await self._apply_groups(queue, number, groups, params)

    async def _apply_groups(
        self,
        queue: QueueRef,
        number: int,
        groups: Sequence[tuple[Move, Sequence[Sequence[Value]]]],
        params: Sequence[Value],
    ) -> list[Applied | Refused]:
        out: list[Applied | Refused] | None = None
        if number in self._backend.keyed:
            out = await self._apply_in_transaction(number, groups, params)
        if out is None:
            out = []
            at_us = await self._backend.now_us() if len(groups) > 1 else None
            for move, items in groups:
                out += await self._try(number, move, items, params, at_us=at_us)
        if any(move not in _SILENT for move, _ in groups):
            self._backend.notify_outcomes(queue, out)
        return out

    async def _apply_in_transaction(
        self,
        number: int,
        groups: Sequence[tuple[Move, Sequence[Sequence[Value]]]],
        params: Sequence[Value],
    ) -> list[Applied | Refused] | None:
        """Apply moves while holding the queue's row; None where keys do not take turns any more."""
        out: list[Applied | Refused] = []
        async with self._backend.queue_transaction(number) as transaction:
            if not transaction.declared.mode.has_keys:
                return None
            for move, items in groups:
                out += await self._try(number, move, items, params, transaction=transaction)
        return out

    async def _try(
        self,
        number: int,
        move: Move,
        items: Sequence[Sequence[Value]],
        params: Sequence[Value],
        *,
        at_us: int | None = None,
        transaction: QueueTransaction | None = None,
    ) -> list[Applied | Refused]:
        out: list[Applied | Refused | None] = [None] * len(items)
        # Delete writes one event for all jobs, and its statement handles ids that are named twice.
        batches = (
            [list(range(len(items)))]
            if move is Move.DELETE and items
            else list(rounds([str(item[0]) for item in items]))
        )
        if len(batches) > 1 and at_us is None and transaction is None:
            at_us = await self._backend.now_us()
        for batch in batches:
            indexes = batch
            for again in range(_TRIES, -1, -1):
                columns = [list(column) for column in zip(*(items[index] for index in indexes), strict=True)]
                if transaction is None:
                    rows = await self._backend.run_move(move, number, *columns, *params, at_us=at_us)
                else:
                    rows = sorted(await transaction.run_move(move, *columns, *params))
                    transaction.touch(move, [key for _, _, _, *keys in rows for key in keys])
                for i, state, cancel, *_ in rows:
                    out[indexes[i - 1]] = Applied(State(state), cancel)
                missing = [index for index in indexes if out[index] is None]
                some = [items[index] for index in missing]
                answers = await self._refuse(number, move, some, may_pass=again > 0, transaction=transaction)
                if some and transaction is None and number in self._backend.keyed:
                    answers = await self._apply_in_transaction(number, [(move, some)], params) or answers
                for index, answer in zip(missing, answers, strict=True):
                    out[index] = answer
                indexes = [index for index in missing if out[index] is None]
                if not indexes:
                    break
        return [each for each in out if each is not None]

    async def _refuse(
        self,
        number: int,
        move: Move,
        items: Sequence[Sequence[Value]],
        *,
        may_pass: bool,
        transaction: QueueTransaction | None,
    ) -> Sequence[Applied | Refused | None]:
        """The answers for items that did not pass: a repeat gets its old one, and None is to be tried again.

        Read after the move, so that changes of others are seen. A move passes over jobs that change while it
        waits for their lock: an item that could pass by now gets another try.
        """
        if not items:
            return []
        on = None if transaction is None else transaction.connection
        rows = await self._backend.run_shared("refused", number, [item[0] for item in items], on=on)
        out: list[Applied | Refused | None] = []
        for item, (name, notes, token, cancel, has_keys) in zip(items, rows, strict=True):
            if has_keys is None:
                # The queue is gone, and none of the items can have passed.
                self._backend.forget_all()
                raise StaleNumberError
            if has_keys:
                self._backend.keyed.add(number)
            state = None if name is None else State(name)
            if move is Move.CANCEL and state is State.ACTIVE and cancel:
                out.append(Applied(state, True))
            elif may_pass and state in TABLE[move].sources and (len(item) == 1 or token == item[1]):
                out.append(None)
            elif len(item) > 1:
                before = repeated(notes or "", str(item[1]), move)
                out.append(Refused(Refusal.LOST, state) if before is None else Applied(before))
            elif state is None:
                out.append(Refused(Refusal.MISSING))
            elif move is Move.REDRIVE and state in REDRIVABLE:
                out.append(Refused(Refusal.KEYLESS, state))
            else:
                out.append(Refused(Refusal.STATE, state))
        return out
