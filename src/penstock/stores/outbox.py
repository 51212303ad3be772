"""An outbox: jobs in a database of the caller's that wait to be carried to their store."""

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from penstock.core.errors import OptionError
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration
from penstock.stores.protocol import Subscription

OUTBOX_SCHEMA: Final = "penstock_outbox"
"""Where an outbox is in PostgreSQL unless another schema is named; in SQLite the tables begin with it."""


_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


def check_schema(schema: str) -> str:
    """The name itself; OptionError where it cannot be that of a schema in statements."""
    if not _SCHEMA.fullmatch(schema):
        raise OptionError("schema", schema, "small letters, digits and underscores, not pg_…")
    return schema


class OutboxMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job, and what its app declares of the queue it is for."""

    job: NewJob
    declaration: Declaration | None = None


class OutboxEntry(msgspec.Struct, frozen=True):
    """An entry of an outbox. `body` is an encoded `OutboxMessage`; `waited_ms` is by the database's clock."""

    number: int
    queue: QueueRef
    body: str
    waited_ms: int = 0


class RejectedEntry(msgspec.Struct, frozen=True):
    """An entry that its store refuses for good, and why."""

    number: int
    queue: QueueRef
    reason: str


class OutboxState(msgspec.Struct, frozen=True):
    """How many entries wait, since when, and how many were rejected (the first ones of them)."""

    waiting: int
    oldest_ms: int | None
    failed: int
    first_failed: list[RejectedEntry]


class OutboxBatch(Protocol):
    """Some entries, oldest first, that no other relay handles at the same time."""

    entries: list[OutboxEntry]

    async def finish(self, carried: Sequence[int], failed: Sequence[RejectedEntry]) -> None:
        """Delete entries that were carried over, and set aside those that never can be."""
        ...


class OutboxSource(Protocol):
    """The database that an outbox is in, as a relay sees it."""

    async def open(self, *, make: bool = True) -> None:
        """Connect; tables that are not there are made, or StoreFormatError says so."""
        ...

    async def close(self) -> None: ...

    def next_batch(
        self, limit: int, without: Sequence[QueueRef]
    ) -> AbstractAsyncContextManager[OutboxBatch | None]:
        """The next entries, without those for some queues; None while another relay is at work."""
        ...

    def subscribe(self) -> AbstractAsyncContextManager[Subscription]:
        """Notified when an entry was written."""
        ...

    async def state(self, limit: int) -> OutboxState: ...

    async def retry(self, numbers: Sequence[int] | None) -> int:
        """Let entries that were set aside wait again in their old places, all if none are named; how many."""
        ...
