"""What all parts of the PostgreSQL store share: connections, statements, queues, and whom to wake."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from penstock.core.clocks import STEP_US
from penstock.core.errors import ConfigError, StoreError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table
from penstock.stores.absent import QueueAbsentError
from penstock.stores.postgres.address import address_of
from penstock.stores.postgres.clock import NOTE, NOTE_SECONDS
from penstock.stores.postgres.engine import Connection, Engine, Row, Value
from penstock.stores.postgres.hints import LOWEST, Hints
from penstock.stores.postgres.renumbering import StaleNumberError
from penstock.stores.postgres.sources import in_schema, own_statements, statements
from penstock.stores.postgres.turn import Turn
from penstock.stores.postgres.wakeups import Wakeups
from penstock.stores.projection import ProjectedTime
from penstock.stores.values import Topic

_OPENINGS = 100
_FIND_QUEUE = "SELECT n, is_plain, has_keys FROM penstock.queue WHERE tenant = $1 AND name = $2"
SHUT_OUT = "SELECT row_security_active('penstock.job') AND NOT penstock.is_admitted($1)"
_OPEN_QUEUE = "SELECT penstock.open_queue($1, $2)"


class Room:
    """The ground floor of the store. `sources` and `table` replace the SQL files and the table; for tests."""

    def __init__(self, url: str, *, sources: dict[str, str] | None = None, table: Table = TABLE) -> None:
        self._url = url
        self._sources = sources
        self._table = table
        self._address = address_of(url)
        self._engine = Engine(self._address)
        made = own_statements if sources is None else partial(statements, sources)
        self._sql: Mapping[str, str] = made(self._address.schema)
        self._locked_sql: Mapping[str, str] = made(self._address.schema, locked=True)
        self._engine.on_lost = self._forget_all
        self._wakeups = Wakeups(self._engine)
        self._wakeups.on_turned = self._forget_hints
        self._numbers: dict[QueueRef, int] = {}
        self._limited: set[int] = set()
        self._keyed: set[int] = set()
        self._hints: dict[int, Hints] = {}
        self._pruned: dict[int, int] = {}
        self._lines: dict[QueueRef, asyncio.Lock] = {}
        self._seen_us = 0
        self._stepped_from_us = 0
        self._noted_at = -NOTE_SECONDS
        self._projected = ProjectedTime()

    async def _has_keys(self, queue: QueueRef, number: int) -> bool:
        """Whether keys take turns, by what stands in the database now."""
        await self._verify(queue, number)
        return number in self._keyed

    async def _verify(self, queue: QueueRef, number: int) -> None:
        """StaleNumberError where this is no longer the number of the queue's row.

        Asked where a call found nothing: as long as it finds something the row is there.
        """
        rows = await self._ask(_FIND_QUEUE, queue.tenant, queue.name)
        if not rows or rows[0][0] != number:
            self._forget(queue)
            raise StaleNumberError
        _, is_plain, has_keys = rows[0]
        self._learn(number, is_plain=is_plain, has_keys=has_keys)

    async def _look_at(self, queue: QueueRef, statement: str, *params: Value) -> list[Row]:
        """The rows of a statement that reads from a queue by its number; none where there is no queue."""
        number = await self._known(queue)
        if number is None:
            return []
        rows = await self._ask(statement, number, *params)
        if not rows:
            await self._verify(queue, number)
        return rows

    async def _change_at(self, queue: QueueRef, statement: str, *params: Value) -> list[Row]:
        """The same of one that changes what is there; QueueAbsentError where there is no queue."""
        number = await self._there(queue)
        rows = await self._ask(statement, number, *params)
        if not rows:
            await self._verify(queue, number)
        return rows

    async def _there(self, queue: QueueRef) -> int:
        """The number of the queue's row; QueueAbsentError when there is none.

        ConfigError where the role is held to other tenants: a worker would wait for ever for its jobs.
        """
        number = await self._known(queue)
        if number is not None:
            return number
        [(is_out,)] = await self._ask(SHUT_OUT, queue.tenant)
        if is_out:
            raise ConfigError(
                f"{self._address.shown} does not let this user do what Penstock needs "
                f"(the role was not admitted to the tenant {queue.tenant})"
            )
        raise QueueAbsentError

    async def _known(self, queue: QueueRef) -> int | None:
        """The number of the queue's row; None when there is none."""
        number = self._numbers.get(queue)
        if number is None:
            rows = await self._ask(_FIND_QUEUE, queue.tenant, queue.name)
            if not rows:
                return None
            number, is_plain, has_keys = rows[0]
            self._learn(number, is_plain=is_plain, has_keys=has_keys)
            self._numbers[queue] = number
        return number

    async def _number(self, queue: QueueRef) -> int:
        """The number of the queue's row, made if it is new."""
        for _ in range(_OPENINGS):
            number = await self._known(queue)
            if number is not None:
                return number
            # Two new queues of a tenant may have tried for the same number.
            await self._ask(_OPEN_QUEUE, queue.tenant, queue.name)
        raise StoreError(f"the queue {queue} could not be opened")

    async def _ask(self, statement: str, *params: Value, on: Connection | None = None) -> list[Row]:
        """A statement of the code's own; `on` a connection that has a transaction, or in one of its own."""
        return await self._engine.run(in_schema(statement, self._address.schema), *params, on=on)

    async def _share(self, name: str, *params: Value, on: Connection | None = None) -> list[Row]:
        """A statement that several moves share."""
        return await self._engine.run(self._sql[f"shared/{name}"], *params, on=on)

    async def _move(
        self,
        move: Move,
        number: int,
        *params: Value,
        at_us: int | None = None,
        on: Connection | None = None,
    ) -> list[Row]:
        """The statement of a move; `at_us` is the time of a call that takes several."""
        at = self._seen_us if at_us is None else -at_us
        return await self._engine.run(self._sql[f"moves/{move}"], number, at, *params, on=on)

    async def _now_us(self, on: Connection | None = None) -> int:
        """The time by the server's clock and the offset in the database, in microseconds."""
        [(now_us,)] = await self._ask("SELECT penstock.now_us($1::bigint)", self._seen_us, on=on)
        self._saw(now_us)
        return int(now_us)

    def _saw(self, now_us: int) -> None:
        """The database told the time. Where the clock was set back, nothing known of times holds."""
        if self._seen_us - now_us > STEP_US:
            self._stepped_from_us = max(self._stepped_from_us, self._seen_us)
            self._seen_us = now_us
            self._forget_hints()
        self._seen_us = max(self._seen_us, now_us)

    async def _note_clock(self) -> None:
        """Keep in the database what this process saw of the clock; not often, unless it was set back."""
        if self._stepped_from_us or time.monotonic() - self._noted_at > NOTE_SECONDS:
            self._noted_at = time.monotonic()
            await self._ask(NOTE, self._stepped_from_us)
            self._stepped_from_us = 0

    @asynccontextmanager
    async def _turn(self, number: int, *, holds: bool = True, due_from: int = LOWEST) -> AsyncIterator[Turn]:
        """A transaction that holds the queue's row, or only reads it; keys are looked at again at its end."""
        sql = self._locked_sql if holds else self._sql
        async with self._engine.transaction() as connection:
            rows = await self._engine.run(sql["shared/turn"], number, self._seen_us, due_from, on=connection)
            if not rows:
                # It was deleted, or all tables were made anew.
                self._forget_all()
                raise StaleNumberError
            row = rows[0]
            self._learn(number, is_plain=row[1], has_keys=row[2])
            turn = Turn(self._engine, sql, self._table, connection, number, row, holds=holds)
            yield turn
            await turn.refresh()

    def _learn(self, number: int, *, is_plain: bool, has_keys: bool) -> None:
        """Remember which calls have to hold the queue's row.

        What others declare later is found out by statements that do nothing where they should hold it.
        """
        for known, holds in ((self._limited, not is_plain), (self._keyed, has_keys)):
            (known.add if holds else known.discard)(number)

    def _ring_after(self, queue: QueueRef, out: Iterable[Applied | Refused]) -> None:
        topics: set[Topic] = set()
        for state in {outcome.state for outcome in out if isinstance(outcome, Applied)}:
            if state in {State.PENDING, State.DELAYED}:
                topics.add(Topic.READY)
            elif state.is_ended:
                topics.add(Topic.ENDED)
                # Where claims are limited, an ending lets the next job go.
                if self._numbers.get(queue) in self._limited:
                    topics.add(Topic.READY)
        if topics:
            self._wakeups.ring(queue, topics)

    def _forget(self, queue: QueueRef) -> None:
        """The queue was deleted: one of its name that is made later has another number."""
        number = self._numbers.pop(queue, None)
        if number is not None:
            for known in (self._limited, self._keyed):
                known.discard(number)
            self._hints.pop(number, None)
            self._pruned.pop(number, None)

    def _forget_all(self) -> None:
        """The tables are gone: what comes back in their place may have other numbers."""
        for known in (self._numbers, self._limited, self._keyed):
            known.clear()
        self._forget_times()

    def _forget_times(self) -> None:
        """Another database may have another time."""
        self._seen_us = 0
        self._forget_hints()

    def _forget_hints(self) -> None:
        """The clock was turned or set: what lies before which time may have changed."""
        self._hints.clear()
        self._pruned.clear()


def rounds(ids: Sequence[str]) -> Iterator[list[int]]:
    """Indexes in consecutive rounds that name each id once: what repeats one has to see what came before."""
    seen: set[str] = set()
    now: list[int] = []
    for index, each in enumerate(ids):
        if each in seen:
            yield now
            seen, now = set(), []
        seen.add(each)
        now.append(index)
    if now:
        yield now
