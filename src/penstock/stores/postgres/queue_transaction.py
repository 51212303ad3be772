"""One call's transaction on one queue: its time, what the queue declares, and the keys that it touched."""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.limits import STRIDE, Declaration, Mode
from penstock.core.moves import Move
from penstock.core.transitions import Table
from penstock.stores.postgres.engine import Connection, Engine, Row, Value
from penstock.stores.rows import declaration_of

PLAIN: Final = Declaration()


def is_plain(declared: Declaration) -> bool:
    """True where neither claims nor enqueues have to look at the whole queue."""
    return not (declared.mode.has_keys or declared.max_active or declared.max_length or declared.rate)


class QueueTransaction:
    """A transaction on one queue. While it `holds` the queue's row, other calls that need the row wait."""

    def __init__(
        self,
        engine: Engine,
        sql: Mapping[str, str],
        table: Table,
        connection: Connection,
        number: int,
        row: Row,
        *,
        holds: bool,
    ) -> None:
        self._engine = engine
        self._sql = sql
        self._table = table
        self._touched: dict[str, None] = {}
        self.connection = connection
        self.number = number
        self.holds = holds
        self.now_us: int = row[0]
        self.is_plain: bool = row[1]
        self.declaration = None if row[3] is None else declaration_of(row[3])
        self.arrival_us: int = row[4]
        self.due_at: int | None = row[5]

    @property
    def now(self) -> int:
        """The time of the transaction, in milliseconds."""
        return self.now_us // 1000

    @property
    def declared(self) -> Declaration:
        """The declaration of the queue, or the default one."""
        return self.declaration or PLAIN

    @property
    def key_params(self) -> tuple[int, bool, int]:
        """How many jobs of a key may run, whether keys have limits of their own, and the stride of most."""
        return self.declared.key_limit, self.declared.mode is Mode.DYNAMIC, STRIDE

    @property
    def key_slack_us(self) -> int | None:
        """How far ahead of its rate a key may be."""
        rate = self.declared.key_rate
        return None if rate is None else rate.slack_us

    @property
    def key_furthest_us(self) -> int | None:
        """How long its rate may hold a key back at most."""
        rate = self.declared.key_rate
        return None if rate is None else rate.furthest_us

    async def run_move(self, move: Move, *params: Value) -> list[Row]:
        """Run the statement of a move, at the time of the transaction."""
        return await self._run(f"moves/{move}", self.number, -self.now_us, *params)

    async def run_shared(self, name: str, *params: Value) -> list[Row]:
        """Run a statement that several moves share."""
        return await self._run(f"shared/{name}", self.number, *params)

    async def _run(self, name: str, *params: Value) -> list[Row]:
        return await self._engine.run(self._sql[name], *params, on=self.connection)

    def touch(self, move: Move, keys: Iterable[str | None]) -> None:
        """Remember the keys of jobs that a move changed, if it can change whether keys could be served."""
        if self._table[move].readies:
            self.check_keys(key for key in keys if key is not None)

    def check_keys(self, keys: Iterable[str]) -> None:
        """Remember keys that may have come to be served, or no longer."""
        self._touched.update(dict.fromkeys(keys))

    async def refresh(self) -> None:
        """Open and close the lanes of the keys that were touched, in that order."""
        keys = list(self._touched)
        self._touched.clear()
        if keys and self.declared.mode.has_keys:
            rate = self.key_slack_us, self.key_furthest_us
            await self.run_shared("refresh_lanes", self.now_us, keys, *self.key_params, *rate)
