"""What all parts of a PostgreSQL store hold: connections, statements, queue numbers, time, notifications."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from penstock.core.clocks import STEP_US
from penstock.core.errors import ConfigError, StoreError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table
from penstock.stores.absent import QueueAbsentError
from penstock.stores.postgres.address import address_of
from penstock.stores.postgres.engine import Connection, Engine, Row, Value
from penstock.stores.postgres.hints import LOWEST, Hints
from penstock.stores.postgres.notifier import PostgresNotifier
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.renumbering import StaleNumberError
from penstock.stores.postgres.sources import in_schema, own_statements, statements
from penstock.stores.projection import ProjectedTime
from penstock.stores.values import Topic

WRITERS_TIMEOUT: Final = 0.1

_OPENINGS: Final = 100
_NOTE_CLOCK: Final = "SELECT penstock.note_clock($1::bigint)"
_NOTE_CLOCK_SECONDS: Final = 60.0
"""How often upkeep keeps the newest time in the database."""
_FIND_QUEUE: Final = "SELECT n, is_plain, has_keys FROM penstock.queue WHERE tenant = $1 AND name = $2"
_OPEN_QUEUE: Final = "SELECT penstock.open_queue($1, $2)"
_SHUT_OUT: Final = "SELECT row_security_active('penstock.job') AND NOT penstock.is_admitted($1)"


class Backend:
    """One schema of a database, used from one event loop.

    `sources` and `table` replace the SQL files and the table of transitions; for tests.
    """

    def __init__(self, url: str, *, sources: dict[str, str] | None = None, table: Table = TABLE) -> None:
        self.url = url
        self.sources = sources
        self.table = table
        self.address = address_of(url)
        self.engine = Engine(self.address)
        self.engine.on_lost = self.forget_all
        self.notifier = PostgresNotifier(self.engine)
        self.notifier.on_clock_change = self.forget_hints
        load = own_statements if sources is None else partial(statements, sources)
        self.sql: Mapping[str, str] = load(self.address.schema)
        self._locked_sql: Mapping[str, str] = load(self.address.schema, locked=True)
        self.store_id: int | None = None
        """The number of the store itself, known once it is open."""
        self.numbers: dict[QueueRef, int] = {}
        self.limited: set[int] = set()
        """Queues where claims and enqueues hold the queue's row."""
        self.keyed: set[int] = set()
        """Queues whose keys take turns: all moves of jobs hold the queue's row."""
        self.hints: dict[int, Hints] = {}
        self.pruned_through: dict[int, int] = {}
        """Up to which time ended jobs were removed, for the next batch."""
        self.enqueue_locks: dict[QueueRef, asyncio.Lock] = {}
        self.newest_us = 0
        """The newest time of the database that this process has seen, in microseconds."""
        self._stepped_from_us = 0
        self._noted_at = -_NOTE_CLOCK_SECONDS
        self.projected = ProjectedTime()
        self.writers_timeout = WRITERS_TIMEOUT
        """Seconds that readers of events give transactions that run, so that callers see what they wrote."""

    async def query(self, statement: str, *params: Value, on: Connection | None = None) -> list[Row]:
        """Run a statement of the code; `on` a connection that has a transaction, or in one of its own."""
        return await self.engine.run(in_schema(statement, self.address.schema), *params, on=on)

    async def run_shared(self, name: str, *params: Value, on: Connection | None = None) -> list[Row]:
        """Run a statement that several moves share."""
        return await self.engine.run(self.sql[f"shared/{name}"], *params, on=on)

    async def run_move(
        self,
        move: Move,
        number: int,
        *params: Value,
        at_us: int | None = None,
        on: Connection | None = None,
    ) -> list[Row]:
        """Run the statement of a move; `at_us` is the time of a call that takes several statements."""
        at = self.newest_us if at_us is None else -at_us
        return await self.engine.run(self.sql[f"moves/{move}"], number, at, *params, on=on)

    async def read_queue(self, queue: QueueRef, statement: str, *params: Value) -> list[Row]:
        """The rows of a statement that reads from a queue by its number; none where there is no queue."""
        number = await self.find_number(queue)
        if number is None:
            return []
        rows = await self.query(statement, number, *params)
        if not rows:
            await self.verify_number(queue, number)
        return rows

    async def change_queue(self, queue: QueueRef, statement: str, *params: Value) -> list[Row]:
        """The rows of a statement that changes a queue by its number; QueueAbsentError without a queue."""
        number = await self.require_number(queue)
        rows = await self.query(statement, number, *params)
        if not rows:
            await self.verify_number(queue, number)
        return rows

    @asynccontextmanager
    async def queue_transaction(
        self, number: int, *, holds: bool = True, due_from: int = LOWEST
    ) -> AsyncIterator[QueueTransaction]:
        """A transaction that holds the queue's row, or only reads it; keys are looked at again at its end."""
        sql = self._locked_sql if holds else self.sql
        async with self.engine.transaction() as connection:
            rows = await self.engine.run(
                sql["shared/queue_row"], number, self.newest_us, due_from, on=connection
            )
            if not rows:
                # The queue was deleted, or all tables were made anew.
                self.forget_all()
                raise StaleNumberError
            row = rows[0]
            self.note_mode(number, is_plain=row[1], has_keys=row[2])
            transaction = QueueTransaction(self.engine, sql, self.table, connection, number, row, holds=holds)
            yield transaction
            await transaction.refresh()

    async def open_number(self, queue: QueueRef) -> int:
        """The number of the queue's row, made if it is new."""
        for _ in range(_OPENINGS):
            number = await self.find_number(queue)
            if number is not None:
                return number
            # Two new queues of a tenant may have tried to take the same number.
            await self.query(_OPEN_QUEUE, queue.tenant, queue.name)
        raise StoreError(f"the queue {queue} could not be opened")

    async def require_number(self, queue: QueueRef) -> int:
        """The number of the queue's row; QueueAbsentError when there is none.

        ConfigError where the role is held to other tenants: a worker would wait for ever for its jobs.
        """
        number = await self.find_number(queue)
        if number is not None:
            return number
        if await self.is_shut_out(queue.tenant):
            raise ConfigError(
                f"{self.address.shown} does not let this user do what Penstock needs "
                f"(the role was not admitted to the tenant {queue.tenant})"
            )
        raise QueueAbsentError

    async def find_number(self, queue: QueueRef) -> int | None:
        """The number of the queue's row; None when there is none."""
        number = self.numbers.get(queue)
        if number is None:
            rows = await self.query(_FIND_QUEUE, queue.tenant, queue.name)
            if not rows:
                return None
            number, is_plain, has_keys = rows[0]
            self.note_mode(number, is_plain=is_plain, has_keys=has_keys)
            self.numbers[queue] = number
        return number

    async def verify_number(self, queue: QueueRef, number: int) -> None:
        """StaleNumberError where this is no longer the number of the queue's row.

        Called where a statement found nothing: as long as one finds something the row is there.
        """
        rows = await self.query(_FIND_QUEUE, queue.tenant, queue.name)
        if not rows or rows[0][0] != number:
            self.forget_queue(queue)
            raise StaleNumberError
        _, is_plain, has_keys = rows[0]
        self.note_mode(number, is_plain=is_plain, has_keys=has_keys)

    async def has_keys(self, queue: QueueRef, number: int) -> bool:
        """Whether keys take turns, by what the database says now."""
        await self.verify_number(queue, number)
        return number in self.keyed

    async def is_shut_out(self, tenant: str) -> bool:
        """True if row-level security isolates tenants, and the user was not admitted to this one."""
        [(is_out,)] = await self.query(_SHUT_OUT, tenant)
        return bool(is_out)

    def note_mode(self, number: int, *, is_plain: bool, has_keys: bool) -> None:
        """Remember which calls have to hold the queue's row.

        Declarations of others that come later are found out by statements that then do nothing.
        """
        for known, holds in ((self.limited, not is_plain), (self.keyed, has_keys)):
            (known.add if holds else known.discard)(number)

    async def now_us(self, on: Connection | None = None) -> int:
        """The time by the server's clock and the offset in the database, in microseconds."""
        [(now_us,)] = await self.query("SELECT penstock.now_us($1::bigint)", self.newest_us, on=on)
        self.observe_time(now_us)
        return int(now_us)

    def observe_time(self, now_us: int) -> None:
        """Note the time of the database. Where its clock was set back, nothing known of times holds."""
        if self.newest_us - now_us > STEP_US:
            self._stepped_from_us = max(self._stepped_from_us, self.newest_us)
            self.newest_us = now_us
            self.forget_hints()
        self.newest_us = max(self.newest_us, now_us)

    async def note_clock(self) -> None:
        """Note the newest time seen in the database; not often, unless the clock was set back."""
        if self._stepped_from_us or time.monotonic() - self._noted_at > _NOTE_CLOCK_SECONDS:
            self._noted_at = time.monotonic()
            await self.query(_NOTE_CLOCK, self._stepped_from_us)
            self._stepped_from_us = 0

    async def notify_soon(self, queue: QueueRef, topic: Topic) -> None:
        """Notify the subscribers of a queue."""
        self.notifier.notify(queue, {topic})

    def notify_ready(self, queue: QueueRef) -> None:
        """Tell workers that the queue may have something to claim."""
        self.notifier.notify(queue, {Topic.READY})

    def notify_outcomes(self, queue: QueueRef, outcomes: Iterable[Applied | Refused]) -> None:
        """Notify the subscribers of the states that moves led to."""
        topics: set[Topic] = set()
        for state in {outcome.state for outcome in outcomes if isinstance(outcome, Applied)}:
            if state in {State.PENDING, State.DELAYED}:
                topics.add(Topic.READY)
            elif state.is_ended:
                topics.add(Topic.ENDED)
                # Where claims are limited, an ending lets the next job go.
                if self.numbers.get(queue) in self.limited:
                    topics.add(Topic.READY)
        if topics:
            self.notifier.notify(queue, topics)

    def forget_queue(self, queue: QueueRef) -> None:
        """Forget a queue that was deleted: one of its name that is made later has another number."""
        number = self.numbers.pop(queue, None)
        if number is not None:
            for known in (self.limited, self.keyed):
                known.discard(number)
            self.hints.pop(number, None)
            self.pruned_through.pop(number, None)

    def forget_all(self) -> None:
        """Forget everything, as the tables are gone: new ones may have other numbers and another time."""
        for known in (self.numbers, self.limited, self.keyed):
            known.clear()
        self.newest_us = 0
        self.forget_hints()

    def forget_hints(self) -> None:
        """Forget before which times there are no jobs, as the clock was advanced or set."""
        self.hints.clear()
        self.pruned_through.clear()


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
