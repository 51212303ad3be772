"""What an enqueue within a transaction takes: anything of the caller's that commits."""

from collections.abc import Awaitable
from typing import Any, Protocol


class Transaction(Protocol):
    """A connection or session that blocks: psycopg, SQLAlchemy, Django; for outboxes also sqlite3."""

    def commit(self) -> None: ...


class AsyncTransaction(Protocol):
    """A connection or session that is awaited: psycopg, SQLAlchemy."""

    def commit(self) -> Awaitable[Any]: ...
