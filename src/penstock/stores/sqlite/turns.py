"""How a call gets its turn: handed to the writer, answered after the commit, the right bells rung."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.core.job import QueueRef
from penstock.core.transitions import Table
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
    ) -> T:
        rings: set[Topic] = set()

        def work(connection: sqlite3.Connection) -> T:
            turn = Turn(connection, self._sql, queue, self._table)
            answer = move(turn)
            turn.close()
            rings.update(turn.rings)
            return answer

        answer: T = await self._call(self._engine.write(work, peek))
        for topic in rings:
            self._belfry.ring(queue, topic)
        return answer

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._call(self._engine.read(work))

    async def _call(self, future: "Future[T]") -> T:
        return await asyncio.wrap_future(future)
