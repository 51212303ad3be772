"""Rows of jobs as arrays: every job whole, its rows one after the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.moves import Move
from penstock.core.states import State

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NONE: Final = -1
"""No number where one may be; the numbers of events are not negative."""
MOVES: Final = tuple(Move)
STATES: Final = tuple(State)
MOVE_CODES: Final[Mapping[str | None, int]] = {str(move): code for code, move in enumerate(MOVES)}
STATE_CODES: Final[Mapping[str | None, int]] = {
    None: 0,
    **{str(state): code for code, state in enumerate(STATES, 1)},
}
NO_MOVE: Final = len(MOVES)
"""The code of what is no move."""
NO_STATE: Final = len(STATES) + 1
"""The code of what is no state; 0 is that of none."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """The rows of whole jobs in columns. `first` has for each row where its job starts."""

    rows: pa.RecordBatch
    index: Ints
    is_start: Flags
    is_last: Flags
    starts: Ints
    first: Ints
    move: Ints
    source: Ints
    target: Ints

    @property
    def before(self) -> Ints:
        """The state that the row before led to."""
        return self.after_row(self.target, 0)

    def after_row(self, values: Ints, start: int) -> Ints:
        """The value of the row before, of a first row `start`."""
        moved = np.empty_like(values)
        moved[1:] = values[:-1]
        moved[self.is_start] = start
        return moved

    def numbers(self, name: str) -> Ints:
        """A column of numbers."""
        return numbers_of(self.rows.column(name))

    def flags(self, name: str) -> Flags:
        """A column of truths."""
        return np.asarray(pc.fill_null(self.rows.column(name), False))

    def is_there(self, name: str) -> Flags:
        """Where the column has something."""
        return np.asarray(self.rows.column(name).is_valid())

    def codes(self, name: str) -> Ints:
        """Numbers that are equal where the texts of a column are."""
        return numbers_of(self.rows.column(name).dictionary_encode().indices)

    def is_same(self, *names: str) -> Flags:
        """Where these texts are those of the row before."""
        same = np.ones(len(self.index), np.bool_)
        for name in names:
            codes = self.codes(name)
            same[1:] &= (codes[1:] == codes[:-1]) & (codes[1:] != NONE)
        return same

    def taken(self, name: str, at: Ints) -> pa.Array:
        """What a column has in these rows."""
        return self.rows.column(name).take(pa.array(at))


def jobs_of(rows: pa.RecordBatch) -> Jobs:
    """Rows that are sorted by job."""
    life = np.asarray(rows.column("life"))
    index = np.arange(len(life))
    is_start = np.ones(len(life), np.bool_)
    is_start[1:] = life[1:] != life[:-1]
    starts = np.flatnonzero(is_start)
    return Jobs(
        rows=rows,
        index=index,
        is_start=is_start,
        is_last=np.append(is_start[1:], True),
        starts=starts,
        first=starts[np.cumsum(is_start) - 1],
        move=_coded(rows.column("move"), MOVE_CODES, NO_MOVE),
        source=_coded(rows.column("source"), STATE_CODES, NO_STATE),
        target=_coded(rows.column("target"), STATE_CODES, NO_STATE),
    )


def numbers_of(column: pa.Array) -> Ints:
    """A column of numbers, `NONE` where there is none."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(NONE, column.type))
    return np.asarray(column).astype(np.int64, copy=False)


def _coded(column: pa.Array, codes: Mapping[str | None, int], other: int) -> Ints:
    """The code of each text."""
    encoded = column.dictionary_encode()
    known = [codes.get(text, other) for text in (*encoded.dictionary.to_pylist(), None)]
    at = pc.fill_null(encoded.indices, pa.scalar(len(known) - 1, encoded.indices.type))
    found: Ints = np.array(known, np.int64)[np.asarray(at)]
    return found


def truths(of: Iterable[tuple[int, ...]], *shape: int) -> npt.NDArray[Any]:
    """An array of truths, true at these places."""
    made = np.zeros(shape, np.bool_)
    for place in of:
        made[place] = True
    return made
