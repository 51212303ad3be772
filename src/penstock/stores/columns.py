"""From rows of a table of events to columns, and the extra ones that a newer version has written."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
    """The values of each column by its name; none where there are no rows."""
    return dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}


def unknown(
    found: Mapping[str, Sequence[Any]], known: Collection[str], count: int
) -> dict[int, dict[str, Any]]:
    """The values of rows in columns that are not known, by the row's index."""
    newer = [name for name in found if name not in known]
    extras: dict[int, dict[str, Any]] = {}
    for at in range(count if newer else 0):
        values = {name: value for name in newer if (value := found[name][at]) is not None}
        if values:
            extras[at] = values
    return extras
