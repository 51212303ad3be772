"""One call's turn on one queue: a transaction, its time, what the queue declares, and the keys it touched."""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.limits import STRIDE, Declaration, Mode
from penstock.core.moves import Move
from penstock.core.transitions import Table
from penstock.stores.postgres.engine import Connection, Engine, Row, Value
from penstock.stores.rows import declaration_of

PLAIN: Final = Declaration()


def is_plain(declared: Declaration) -> bool:
    """True where neither claims nor arrivals have to look at the whole queue."""
    return not (declared.mode.has_keys or declared.max_active or declared.max_length or declared.rate)


class Turn:
    """What one call works with. While it `holds` the queue's row, others that need it wait."""

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
        """Its time in milliseconds."""
        return self.now_us // 1000

    @property
    def declared(self) -> Declaration:
        """What holds for the queue."""
        return self.declaration or PLAIN

    @property
    def key_params(self) -> tuple[int, bool, int]:
        """How many of a key may run, whether keys have limits of their own, and the stride of most."""
        return self.declared.key_limit, self.declared.mode is Mode.DYNAMIC, STRIDE

    @property
    def key_slack_us(self) -> int | None:
        """How far ahead of its rate a key may be."""
        rate = self.declared.key_rate
        return None if rate is None else (rate.burst - 1) * rate.interval_us

    async def move(self, move: Move, *params: Value) -> list[Row]:
        """The statement of a move, at the time of the turn."""
        return await self._run(f"moves/{move}", self.number, -self.now_us, *params)

    async def share(self, name: str, *params: Value) -> list[Row]:
        """A statement that several moves share."""
        return await self._run(f"shared/{name}", self.number, *params)

    async def _run(self, name: str, *params: Value) -> list[Row]:
        return await self._engine.run(self._sql[name], *params, on=self.connection)

    def touch(self, move: Move, keys: Iterable[str | None]) -> None:
        """Remember the keys of what a move changed, if it can change whether they could be served."""
        if self._table[move].readies:
            self.look_at(key for key in keys if key is not None)

    def look_at(self, keys: Iterable[str]) -> None:
        """Remember keys that could be served now, or no longer."""
        self._touched.update(dict.fromkeys(keys))

    async def refresh(self) -> None:
        """Look again at the keys that were touched, in that order."""
        keys = list(self._touched)
        self._touched.clear()
        if keys and self.declared.mode.has_keys:
            await self.share("ready", self.now_us, keys, *self.key_params, self.key_slack_us)
