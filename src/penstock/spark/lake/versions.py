"""Which versions of the three tables belong together: those that go to the same batch."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.spark.lake.lake import Lake
from penstock.spark.lake.table import LakeTable

_SAID: Final = "penstock"


class Together(msgspec.Struct, frozen=True):
    """Versions of the tables that say the same, by table.

    `at` is when the last of them was, in Unix milliseconds. `figures` are those of the batch: `events`,
    `duplicates`, `problems`, `gaps`, and `lag_ms`, the age of its newest event when it was committed.
    """

    batch: int
    at: int
    versions: dict[str, int]
    figures: Mapping[str, int] = {}


def together(lake: Lake, limit: int) -> list[Together]:
    """The newest batches that all tables have, newest first, as far as their logs go back."""
    found = {table.shape.name: _by_batch(table) for table in lake.tables}
    figures = _figures(lake.bronze)
    shared = set.intersection(*(set(batches) for batches in found.values()))
    return [
        Together(
            batch,
            max(batches[batch][1] for batches in found.values()),
            {name: batches[batch][0] for name, batches in found.items()},
            figures.get(batch, {}),
        )
        for batch in sorted(shared, reverse=True)[:limit]
    ]


def _by_batch(table: LakeTable) -> dict[int, tuple[int, int]]:
    """The newest version of each batch, which upkeep may have followed, and when it was."""
    found: dict[int, tuple[int, int]] = {}
    for entry in reversed(table.delta.history()):
        if (said := entry.get(_SAID)) is not None and said["batch"] >= 0:
            found[int(said["batch"])] = (int(entry["version"]), int(entry["timestamp"]))
    return found


def _figures(table: LakeTable) -> dict[int, Mapping[str, int]]:
    """What the commits of batches say of them."""
    said = [entry[_SAID] for entry in table.delta.history() if entry.get(_SAID) is not None]
    return {int(each["batch"]): each["figures"] for each in said if each.get("figures")}
