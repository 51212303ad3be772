"""Manifests: which files are a batch. What no manifest names is not in the table."""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.core.errors import TableError

FORMAT: Final = 1
FOLDER: Final = "_manifests"
"""Spark and others leave out what begins with an underscore."""
_NAME: Final = re.compile(r"(\d{20})(?:-(\d{20}))?\.json")


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a batch; its path is relative to the table's folder."""

    path: str
    rows: int
    bytes: int


class QueueCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a batch of events has of one queue: lowest and highest number, and how many rows of which kind.

    `duplicates` are rows whose number stands in this batch or an earlier one already; `problems` could not
    be read; `gaps` stand for events that were trimmed before they were read. `newest` is when the newest
    event was, in Unix milliseconds.
    """

    tenant: str | None
    queue: str | None
    first: int | None
    last: int | None
    rows: int
    duplicates: int = 0
    problems: int = 0
    gaps: int = 0
    newest: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One batch, or several that were compacted into one: from `first` to `last`.

    `query` is the streaming query whose batches these are; `offsets` is how far it has read with them, in the
    words of its source; `schema` is Spark's JSON of the columns.
    """

    format: int
    table: str
    first: int
    last: int
    query: str
    schema: dict[str, Any]
    files: tuple[DataFile, ...]
    written_at: int
    offsets: Any = None
    queues: tuple[QueueCount, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the batch has."""
        return sum(each.rows for each in self.files)

    @property
    def size(self) -> int:
        """How many bytes its files have."""
        return sum(each.bytes for each in self.files)

    @property
    def path(self) -> str:
        """Where it stands, in the table's folder."""
        return f"{FOLDER}/{file_name(self.first, self.last)}"

    def to_json(self) -> bytes:
        """As it is written."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def from_json(where: str, data: bytes) -> Manifest:
    """A manifest that was read; TableError when it cannot be."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version > FORMAT:
            raise TableError(f"{where}: written by a newer Penstock (format {version}, known is {FORMAT})")
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise TableError(f"{where}: not a manifest: {error}") from None


class _Version(msgspec.Struct):
    format: int


def batch_name(first: int, last: int) -> str:
    """How a batch is called: its number, or the first and the last where several became one."""
    return str(first) if first == last else f"{first}-{last}"


def file_name(first: int, last: int) -> str:
    """The file of a manifest; names sort by number."""
    return f"{first:020}.json" if first == last else f"{first:020}-{last:020}.json"


def span_of(name: str) -> tuple[int, int] | None:
    """The batches that a manifest's file name says it covers; None for other files."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2] or found[1]))


def cover(where: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans that make up the table: each batch once, from 0 to the highest, in few steps.

    A wider span stands for those within it. Should two overlap, as after two compactions at once, every
    reader chooses the same ones. TableError where a batch is missing.

    >>> cover("t", [(0, 0), (1, 1), (2, 2), (0, 1)])
    [(0, 1), (2, 2)]
    """
    by_first: dict[int, list[int]] = {}
    for first, last in spans:
        by_first.setdefault(first, []).append(last)
    if not by_first:
        return []
    end = max(last for lasts in by_first.values() for last in lasts)
    best: dict[int, tuple[int, int]] = {end + 1: (0, end)}
    # From the back: from each number how many steps it is to the end, and where the first one leads.
    for first in sorted(by_first, reverse=True):
        ways = [(best[last + 1][0] + 1, -last) for last in by_first[first] if last + 1 in best]
        if ways:
            steps, last = min(ways)
            best[first] = steps, -last
    # Every table begins with batch 0, and so does what it was compacted into.
    at = 0
    if at not in best:
        raise TableError(f"{where}: a batch between {at} and {end} has no manifest: some were removed")
    chosen = []
    while at <= end:
        chosen.append((at, best[at][1]))
        at = best[at][1] + 1
    return chosen
