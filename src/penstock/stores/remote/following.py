"""Answers that came in part: what to ask for next, and how the parts become one answer.

A service bounds its answers by bytes and by number, see `service.portions`. A part that has ANSWER_BYTES or
more may be followed by others; a page of jobs says so itself.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.stores.bounds import RELAY_LIMIT, SHELF_LIMIT
from penstock.stores.values import Page, Query
from penstock.stores.wire import ANSWER_BYTES, MOST_ASKED

Given = dict[str, Any]


def first_of(call: str, given: Given) -> Given:
    """The arguments of the first part: no service is asked for more than MOST_ASKED jobs or events."""
    if call == "find" and given["query"].limit > MOST_ASKED:
        return given | {"query": msgspec.structs.replace(given["query"], limit=MOST_ASKED)}
    if call in _LIMITED and (given.get("limit") or 0) > MOST_ASKED:
        return given | {"limit": MOST_ASKED}
    return given


def next_of(call: str, given: Given, found: Any, size: int) -> Given | None:
    """The arguments of the part that follows what was found so far; None when that is all.

    `size` is that of the last part in bytes.
    """
    follows = _FOLLOWS.get(call)
    return None if follows is None else follows(given, found, size)


def joined(found: Any, part: Any) -> Any:
    """What was found before, and the part that follows."""
    if isinstance(found, Page):
        return Page([*found.jobs, *part.jobs], part.next)
    return [*found, *part]


def _next_ids(given: Given, found: Any, size: int) -> Given | None:
    left = given["ids"][len(found) :]
    return given | {"ids": left} if left and found else None


def _next_page(given: Given, found: Any, size: int) -> Given | None:
    query: Query = given["query"]
    left = query.limit - len(found.jobs)
    if left < 1 or found.next is None:
        return None
    return given | {"query": msgspec.structs.replace(query, limit=left, after=found.next)}


def _next_events(given: Given, found: Any, size: int) -> Given | None:
    left = given.get("limit", 0) - len(found)
    if left < 1 or not found or len(found) % MOST_ASKED:
        return None
    return given | {"after": found[-1].cursor or found[-1].seq, "limit": left}


def _next_children(given: Given, found: Any, size: int) -> Given | None:
    # Without results a part is bounded by its number alone.
    if not found or (size < ANSWER_BYTES and given.get("results", True)):
        return None
    left = None if given.get("limit") is None else given["limit"] - len(found)
    if left is not None and left < 1:
        return None
    return given | {"after": given.get("after", 0) + len(found), "limit": left}


def _next_relays(given: Given, found: Any, size: int) -> Given | None:
    return _after(given, found, size, RELAY_LIMIT, lambda entry: entry.number)


def _next_entries(given: Given, found: Any, size: int) -> Given | None:
    return _after(given, found, size, SHELF_LIMIT, lambda entry: entry.name)


def _after(given: Given, found: Any, size: int, most: int, place: Callable[[Any], Any]) -> Given | None:
    left = given.get("limit", most) - len(found)
    if left < 1 or not found or size < ANSWER_BYTES:
        return None
    return given | {"after": place(found[-1]), "limit": left}


_LIMITED: Final = frozenset({"children", "events", "relays", "shelf"})
_FOLLOWS: Final[Mapping[str, Callable[[Given, Any, int], Given | None]]] = {
    "get": _next_ids,
    "find": _next_page,
    "events": _next_events,
    "children": _next_children,
    "relays": _next_relays,
    "shelf": _next_entries,
}
