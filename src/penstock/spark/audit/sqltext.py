"""Text of SQL from the core's own tables, so that a rule is written once."""

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.core.history.life import LEGAL
from penstock.core.history.rules import Rule
from penstock.core.states import ENDED, LIVE
from penstock.core.transitions import TABLE


class Check(msgspec.Struct, frozen=True):
    """A rule over one row: where the condition is true the rule is broken, as `says` tells."""

    rule: Rule
    condition: str
    says: str


def listed(values: Iterable[str]) -> str:
    """Texts as SQL has them between parentheses: `'a', 'b'`."""
    return ", ".join(f"'{value}'" for value in sorted(values))


def path_of(move: str, source: str, target: str) -> str:
    """SQL for one way through the table of transitions, as text."""
    return f"concat_ws('>', {move}, coalesce({source}, ''), coalesce({target}, ''))"


MOVES: Final = listed(TABLE)
"""Every move that this version knows."""
PATHS: Final = listed(f"{move}>{source or ''}>{target or ''}" for move, source, target in LEGAL)
"""Every way through the table, as `path_of` writes it."""
CANCELLING: Final = listed(row.move for row in TABLE.values() if row.cancels)
"""Moves that lead to cancelled where that was asked for."""
ENDINGS: Final = listed(ENDED)
LIVE_STATES: Final = listed(LIVE)
