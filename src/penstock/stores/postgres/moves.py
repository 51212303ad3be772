"""Moves of jobs that are named: tried, tried again where others were in between, and answered one by one."""

from collections.abc import Sequence

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Applied, Refusal, Refused, repeated
from penstock.core.states import REDRIVABLE, State
from penstock.core.transitions import TABLE
from penstock.stores.postgres.engine import Value
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.renumbering import StaleNumberError, renumbers
from penstock.stores.postgres.room import rounds
from penstock.stores.postgres.turn import Turn

_TRIES = 2
_SILENT = {Move.HEARTBEAT, Move.PROGRESS, Move.DELETE}


class PostgresMoves(PostgresQuarantine):
    """What settling, cancelling, redriving and deleting have in common."""

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
        """Such moves one after the other; in one transaction where keys take turns."""
        number = await self._there(queue)
        try:
            return await self._apply_groups(queue, number, groups, params)
        except StoreError as error:
            ids = [str(item[0]) for _, items in groups for item in items]
            if not await self._mend(queue, number, error, ids):
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
        if number in self._keyed:
            out = await self._apply_in_turn(number, groups, params)
        if out is None:
            out = []
            at_us = await self._now_us() if len(groups) > 1 else None
            for move, items in groups:
                out += await self._try(number, move, items, params, at_us=at_us)
        if any(move not in _SILENT for move, _ in groups):
            self._ring_after(queue, out)
        return out

    async def _apply_in_turn(
        self,
        number: int,
        groups: Sequence[tuple[Move, Sequence[Sequence[Value]]]],
        params: Sequence[Value],
    ) -> list[Applied | Refused] | None:
        """The same while holding the queue's row; None where keys do not take turns any more."""
        out: list[Applied | Refused] = []
        async with self._turn(number) as turn:
            if not turn.declared.mode.has_keys:
                return None
            for move, items in groups:
                out += await self._try(number, move, items, params, turn=turn)
        return out

    async def _try(
        self,
        number: int,
        move: Move,
        items: Sequence[Sequence[Value]],
        params: Sequence[Value],
        *,
        at_us: int | None = None,
        turn: Turn | None = None,
    ) -> list[Applied | Refused]:
        out: list[Applied | Refused | None] = [None] * len(items)
        # Delete has one event for all, and sees itself to ids that are named twice.
        batches = (
            [list(range(len(items)))]
            if move is Move.DELETE and items
            else list(rounds([str(item[0]) for item in items]))
        )
        if len(batches) > 1 and at_us is None and turn is None:
            at_us = await self._now_us()
        for batch in batches:
            indexes = batch
            for again in range(_TRIES, -1, -1):
                columns = [list(column) for column in zip(*(items[index] for index in indexes), strict=True)]
                if turn is None:
                    rows = await self._move(move, number, *columns, *params, at_us=at_us)
                else:
                    rows = sorted(await turn.move(move, *columns, *params))
                    turn.touch(move, [key for _, _, _, *keys in rows for key in keys])
                for i, state, cancel, *_ in rows:
                    out[indexes[i - 1]] = Applied(State(state), cancel)
                missing = [index for index in indexes if out[index] is None]
                some = [items[index] for index in missing]
                answers = await self._refuse(number, move, some, may_pass=again > 0, turn=turn)
                if some and turn is None and number in self._keyed:
                    answers = await self._apply_in_turn(number, [(move, some)], params) or answers
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
        turn: Turn | None,
    ) -> Sequence[Applied | Refused | None]:
        """The answers for items that did not pass: a repeat gets its old one, and None is to be tried again.

        Asked after the move, so that what others did meanwhile is seen. A move passes over jobs that change
        while it waits for their lock: what looks as if it could pass now gets another try.
        """
        if not items:
            return []
        on = None if turn is None else turn.connection
        rows = await self._share("refused", number, [item[0] for item in items], on=on)
        out: list[Applied | Refused | None] = []
        for item, (name, notes, token, cancel, has_keys) in zip(items, rows, strict=True):
            if has_keys is None:
                # The queue is gone, and none of the items can have passed.
                self._forget_all()
                raise StaleNumberError
            if has_keys:
                self._keyed.add(number)
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
