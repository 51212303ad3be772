"""What scans of the SQL stores have in common: the columns and the conditions of their statements."""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.stores.rows import stored
from penstock.stores.scan_request import (
    COLUMNS_IN_MORE,
    COLUMNS_OF_QUEUES,
    Condition,
    Op,
    ScanRequest,
    Value,
)

LARGE: Final = frozenset({"payload", "result", "progress", "error"})
"""Columns that may hold a lot."""
ESCAPED: Final = frozenset({"key", "idempotency_key"})
"""Columns of free text, which databases keep with NUL escaped."""
_TEXT: Final = frozenset(
    {
        "id",
        "task",
        "state",
        "key",
        "idempotency_key",
        "worker",
        "reason",
        "error",
        "fingerprint",
        "options",
        "payload",
        "result",
        "progress",
        "more",
    }
)
_NARROW: Final = frozenset({"priority", "version", "drive", "delivery", "attempts", "max_attempts"})
"""Columns of whole numbers of 32 bits; others have 64."""


def stored_columns(request: ScanRequest) -> list[str]:
    """The columns of the store that the requested ones are made of."""
    found = [name for name in request.columns if name not in COLUMNS_OF_QUEUES | COLUMNS_IN_MORE]
    if not COLUMNS_OF_QUEUES.isdisjoint(request.columns):
        found.append("queue")
    if not COLUMNS_IN_MORE.isdisjoint(request.columns):
        # With the id, which names a job whose JSON cannot be read.
        found += ["more"] if "id" in found else ["more", "id"]
    return found


def is_text(column: str) -> bool:
    """True for a column of the store that holds text. There, `queue` is a number."""
    return column in _TEXT


def misfit(column: str, value: object) -> str | None:
    """What is wrong with a value of a column of the store; None where nothing is."""
    if value is None:
        return None
    if is_text(column):
        return None if isinstance(value, str) else f"found {value!r:.60}, wanted text"
    bits = 32 if column in _NARROW else 64
    fits = isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1
    return None if fits else f"found {value!r:.60}, wanted a whole number of {bits} bits"


def where(conditions: Sequence[Condition], literal: Callable[[Value], str]) -> list[str]:
    """Conditions as SQL; those about queues are left to the planner."""
    return [_sql(each, literal) for each in conditions if each.column not in COLUMNS_OF_QUEUES]


def _sql(condition: Condition, literal: Callable[[Value], str]) -> str:
    column = condition.column
    values = list(condition.values)
    if column in ESCAPED:
        values = [(stored(each) or "") if isinstance(each, str) else each for each in values]
    if condition.op is Op.NULL:
        return f"{column} IS NULL"
    if condition.op is Op.NOT_NULL:
        return f"{column} IS NOT NULL"
    # No store keeps NUL in text.
    literals = [literal(each) for each in values if not _has_nul(each)]
    if condition.op is Op.IN:
        return f"{column} IN ({', '.join(literals)})" if literals else "1 = 0"
    return f"{column} {condition.op} {literals[0]}"


def _has_nul(value: Value) -> bool:
    return isinstance(value, str) and "\0" in value
