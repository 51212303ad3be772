"""Filters and cursors of lists."""

import re
from typing import Final

from penstock.core.names import NAME_FORM
from penstock.core.states import State
from penstock.service.problems import BadRequestError, Fault

CURSOR: Final = re.compile(rf"[0-9]{{1,15}}/{NAME_FORM}")


def states_of(text: str | None) -> frozenset[State]:
    """States from text such as pending,delayed; none is all."""
    out, known = set(), set(State)
    for part in (text or "").split(","):
        if part and part not in known:
            wanted = f"some of {', '.join(State)}, joined by commas"
            raise BadRequestError(Fault(wanted=wanted, found=part[:100], parameter="state"))
        if part:
            out.add(State(part))
    return frozenset(out)


def after_of(cursor: str | None) -> str | None:
    """The `next` of the page before, as it was given."""
    if cursor is not None and not CURSOR.fullmatch(cursor):
        wanted = "what `next` says of the page before"
        raise BadRequestError(Fault(wanted=wanted, found=cursor[:100], parameter="after"))
    return cursor
