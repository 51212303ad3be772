"""How a call gets its turn: handed to the writer, answered after the commit, the right bells rung."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.core.job import QueueRef
from penstock.core.transitions import Table
from penstock.stores.absent import QueueAbsentError
from penstock.stores.bells import Belfry
from penstock.stores.sqlite.engine import Engine
from penstock.stores.sqlite.sources import Steps
from penstock.stores.sqlite.turn import Turn
from penstock.stores.values import Topic

T = TypeVar("T")


class Turns:
    """What the parts of the store share."""

    _engine: Engine
    _belfry: Belfry
    _sql: dict[str, Steps]
    _table: Table

    async def _turn(
        self,
        queue: QueueRef,
        move: Callable[[Turn], T],
        peek: Callable[[sqlite3.Connection], T | None] | None = None,
        *,
        makes: bool = True,
    ) -> T:
        """What a call on a queue brings. QueueAbsentError where there is none and the call makes none."""
        rings: set[Topic] = set()
        is_absent = False

        def work(connection: sqlite3.Connection) -> T:
            nonlocal is_absent
            try:
                turn = Turn(connection, self._sql, queue, self._table, makes=makes)
            except QueueAbsentError:
                # Not raised here: it would take back what other calls did in this transaction.
                is_absent = True
                return None  # type: ignore[return-value]
            is_absent = False
            answer = move(turn)
            turn.close()
            rings.update(turn.rings)
            return answer

        answer: T = await self._call(self._engine.write(work, peek))
        if is_absent:
            raise QueueAbsentError
        for topic in rings:
            self._belfry.ring(queue, topic)
        return answer

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._call(self._engine.read(work))

    async def _call(self, future: "Future[T]") -> T:
        return await asyncio.wrap_future(future)
