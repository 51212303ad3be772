"""The entries of the log: runs of events that are alike but for their jobs. See runs.lua."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from penstock.core.events import mark_of
from penstock.core.job import QueueRef
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.redis.codec.events import EVENT_FIELDS, read_single

RUN_LENGTH: Final = 1_000
"""Events that one entry has at most: what a damaged byte costs, and a trim may keep too many."""
CHECKSUM_LENGTH: Final = 8
"""Digits of the SHA-1 of an entry that stand before it."""
Entry = tuple[bytes, Sequence[bytes]]
"""The id of an entry of a stream, and its names and values in turn."""
_PLACES: Final = {name: at for at, name in enumerate(EVENT_FIELDS)}
_JOB: Final = _PLACES["job"]
_MARKED: Final = tuple(_PLACES[name] for name in ("at", "move", "version", "jobs"))


class _Packed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What stands behind the checksum. New values come at the end."""

    shared: list[Any]
    count: int
    jobs: str | bool
    columns: dict[int, list[Any]] | bool = False


_decode: Final = msgspec.msgpack.Decoder(_Packed).decode
_decode_all: Final = msgspec.msgpack.Decoder(list[_Packed]).decode


class Run(msgspec.Struct, frozen=True, gc=False):
    """Events with the numbers from `first` to `last`, in the order of their numbers.

    `shared` has the values that they share in the order of EVENT_FIELDS, cut after the last one, false for
    none; `columns` those that differ, by their place; `jobs` the ids. `why` says why an entry cannot be read.
    """

    first: int
    last: int
    shared: list[Any] = []
    jobs: list[str] = []
    columns: dict[int, list[Any]] = {}
    why: str | None = None

    @property
    def count(self) -> int:
        """How many rows it makes: one where it cannot be read."""
        return 1 if self.why is not None else self.last - self.first + 1

    def value(self, place: int, number: int) -> Any:
        """The value in one place of the event with a number; false for none."""
        at = number - self.first
        if place == _JOB and self.jobs:
            return self.jobs[at]
        column = self.columns.get(place)
        if column is not None:
            return column[at]
        return self.shared[place] if place < len(self.shared) else False

    def mark(self, queue: QueueRef, number: int) -> str | None:
        """What a cursor keeps of the event with a number; None where that cannot be read."""
        if self.why is not None:
            return None
        at, move, version, jobs = (self.value(place, number) or None for place in _MARKED)
        job = self.value(_JOB, number) or None
        return mark_of(f"{queue.tenant}/{queue.name}", number, int(at or 0), str(move), job, version, jobs)

    def cursor(self, queue: QueueRef, number: int) -> str:
        """The cursor of the event with a number; its number alone where that cannot be read."""
        mark = self.mark(queue, number)
        return str(number) if mark is None else f"{number}-{mark}"

    def between(self, first: int, last: int) -> "Run":
        """The events of the run that have numbers from one to another; at least one has."""
        first, last = max(first, self.first), min(last, self.last)
        if (first, last) == (self.first, self.last):
            return self
        start, stop = first - self.first, last - self.first + 1
        columns = {place: values[start:stop] for place, values in self.columns.items()}
        return Run(first, last, self.shared, self.jobs[start:stop], columns, self.why)


def first_of(entry: Entry) -> int:
    """The number of the entry's first event."""
    return int(entry[0].partition(b"-")[0])


def read_runs(entries: Sequence[Entry], last: int) -> list[Run]:
    """The runs of entries that follow one another in the log.

    The one that cannot be read ends before the entry that follows it, and where none does, with `last`.
    """
    try:
        return _all_runs(entries)
    except DECODE_ERRORS:
        pass
    runs: list[Run] = []
    ends = [*(first_of(after) - 1 for _, after in pairwise(entries)), last]
    for entry, end in zip(entries, ends, strict=True):
        first = first_of(entry)
        try:
            run = _run(entry)
        except DECODE_ERRORS as error:
            why = f"entry {entry[0].decode(errors='replace')} of the stream is no event: {error}"
            runs.append(Run(first, max(first, end), why=why))
        else:
            runs.append(run)
    return runs


def _all_runs(entries: Sequence[Entry]) -> list[Run]:
    """All at once, which is faster; an error where one of them is not a sound run."""
    bodies = [_body(entry) for entry in entries]
    count = len(bodies)
    packed = _decode_all(b"\xdd" + count.to_bytes(4) + b"".join(bodies))
    if len(packed) != count:
        raise ValueError("an entry has more than its values")
    return [_unpacked(first_of(entry), each) for entry, each in zip(entries, packed, strict=True)]


def _run(entry: Entry) -> Run:
    if len(entry[1]) == 2 and entry[1][0] == b"e" and entry[0].endswith(b"-0"):
        values, number = read_single(entry[1][1]), first_of(entry)
        return Run(number, number, values)
    return _unpacked(first_of(entry), _decode(_body(entry)))


def _body(entry: Entry) -> bytes:
    number, fields = entry
    if not number.endswith(b"-0"):
        raise ValueError("it has a second number")
    name, value = fields
    if name != b"r":
        raise ValueError(f"its field is {name.decode(errors='replace')!r}")
    body = value[CHECKSUM_LENGTH:]
    digest = hashlib.sha1(body, usedforsecurity=False).hexdigest()
    if digest[:CHECKSUM_LENGTH].encode() != value[:CHECKSUM_LENGTH]:
        raise ValueError("its checksum does not fit")
    return body


def _unpacked(first: int, packed: _Packed) -> Run:
    count, shared = packed.count, packed.shared
    jobs = packed.jobs.split(" ") if isinstance(packed.jobs, str) else []
    columns = packed.columns if isinstance(packed.columns, dict) else {}
    lengths = {len(each) for each in columns.values()}
    if (
        count < 1
        or len(shared) < 3
        or len(jobs) not in ((count,) if count > 1 else (0, 1))
        or lengths - {count}
    ):
        raise ValueError("its parts do not fit together")
    return Run(first, first + count - 1, shared, jobs, {place - 1: each for place, each in columns.items()})
