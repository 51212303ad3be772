"""Events put in order by job, cut where a job or a drive begins, and joined with the rows that are known.

All of it in columns: a number per event, and for each group of events the place of the one that matters.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

JOB: Final = ("tenant", "queue", "job")
NONE: Final = -1
"""Stands for a place that is not there."""

Numbers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


class Words:
    """A column of few different texts, to be asked which rows have some of them."""

    def __init__(self, column: pa.Array) -> None:
        coded = column.dictionary_encode()
        self._words: list[str] = coded.dictionary.to_pylist()
        self._codes: Numbers = coded.indices.fill_null(len(self._words)).to_numpy()

    def among(self, *wanted: str) -> Marks:
        """The rows with one of these words."""
        known = np.array([word in wanted for word in self._words] + [False])
        return cast(Marks, known[self._codes])


def numbers_of(column: pa.Array) -> Numbers:
    """A column of numbers or times; NONE where it is null."""
    return cast(Numbers, column.cast(pa.int64()).fill_null(NONE).to_numpy(zero_copy_only=False))


def column_of(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    found = table[name].combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def keys_of(*tables: pa.Table) -> list[Numbers]:
    """A number for each row of the tables, the same for all rows of one job."""
    sizes = [table.num_rows for table in tables]
    keys: Numbers = np.zeros(sum(sizes), np.int64)
    for name in JOB:
        coded = pa.concat_arrays([column_of(table, name) for table in tables]).dictionary_encode()
        keys = keys * (len(coded.dictionary) + 1) + coded.indices.fill_null(len(coded.dictionary)).to_numpy()
    return np.split(keys, np.cumsum(sizes)[:-1])


def places_of(wanted: Numbers, known: Numbers) -> Numbers:
    """Where each wanted number stands among the known ones; NONE if nowhere."""
    if not known.size:
        return np.full(wanted.size, NONE, np.int64)
    order = np.argsort(known, kind="stable")
    ordered = known[order]
    at = np.minimum(np.searchsorted(ordered, wanted), known.size - 1)
    return np.where(ordered[at] == wanted, order[at], NONE)


class Lives:
    """New events beside the open rows of `jobs`, by job and then by number.

    Events that an open row has seen already, and repeated ones, are left out. `rows` counts the events that
    are left; arrays over events are in their new order.
    """

    def __init__(self, events: pa.Table, jobs: pa.Table, key: Numbers, job_key: Numbers) -> None:
        self.jobs = jobs
        self.job_key = job_key
        self._columns: dict[str, pa.Array] = {}
        seq = numbers_of(column_of(events, "seq"))
        known = places_of(key, job_key)
        seen = (
            np.where(known >= 0, numbers_of(column_of(jobs, "last_seq"))[known], NONE)
            if jobs.num_rows
            else known
        )
        order = np.lexsort((seq, key))
        order = order[seq[order] > seen[order]]
        key, seq = key[order], seq[order]
        repeated = np.zeros(order.size, np.bool_)
        repeated[1:] = (key[1:] == key[:-1]) & (seq[1:] == seq[:-1])
        if repeated.any():
            order, key, seq = order[~repeated], key[~repeated], seq[~repeated]
        self._events = events
        self._order = order
        self.key, self.seq = key, seq
        self.rows = order.size
        self.at = np.arange(self.rows)
        self.known = known[order]
        """The open row of the job of each event."""
        move, target = Words(self.column("move")), Words(self.column("to_state"))
        self.is_enqueue = move.among("enqueue")[order]
        self.is_claim = move.among("claim")[order]
        self.is_redrive = move.among("redrive")[order]
        self.is_removal = move.among("delete", "prune")[order]
        self._move, self._target = move, target

    def moved(self, *moves: str) -> Marks:
        """The events of these moves."""
        return self._move.among(*moves)[self._order]

    def led_to(self, *states: str) -> Marks:
        """The events that led to these states."""
        return self._target.among(*states)[self._order]

    def column(self, name: str) -> pa.Array:
        """A column of the events, as they came."""
        if name not in self._columns:
            self._columns[name] = column_of(self._events, name)
        return self._columns[name]

    def numbers(self, name: str) -> Numbers:
        """A column of numbers, in order."""
        return numbers_of(self.column(name))[self._order]

    def take(
        self, name: str, at: Numbers, table: pa.Table, known: Numbers, other: str | None = None
    ) -> pa.Array:
        """Of each group the value of its event, or else that of its known row, if there is one."""
        here, there = self.column(name), column_of(table, other or name)
        places = np.full(at.size, NONE, np.int64)
        has_event, has_row = at >= 0, (at < 0) & (known >= 0)
        places[has_event] = self._order[at[has_event]]
        places[has_row] = known[has_row] + len(here)
        values = pa.concat_arrays([here, there.cast(here.type)]) if has_row.any() else here
        return values.take(pa.array(places, mask=places < 0))


class Groups:
    """Neighbours among events in order, and which event of each group matters."""

    def __init__(self, starts: Numbers, rows: int) -> None:
        self.starts = starts
        self._rows = rows
        self._at = np.arange(rows)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.starts.size

    def last(self, marks: Marks) -> Numbers:
        """The last marked event of each group."""
        return cast(Numbers, np.maximum.reduceat(np.where(marks, self._at, NONE), self.starts))

    def first(self, marks: Marks) -> Numbers:
        """The first marked event of each group."""
        found = np.minimum.reduceat(np.where(marks, self._at, self._rows), self.starts)
        return np.where(found == self._rows, NONE, found)

    def count_of(self, marks: Marks) -> Numbers:
        """How many events of each group are marked."""
        return cast(Numbers, np.add.reduceat(marks.astype(np.int64), self.starts))

    def highest(self, values: Numbers) -> Numbers:
        """The highest value within each group."""
        return cast(Numbers, np.maximum.reduceat(values, self.starts))


def starts_of(*borders: Marks) -> Numbers:
    """Where a group begins: at any of the borders, and with the first event."""
    border = np.logical_or.reduce(borders)
    border[0] = True
    return np.flatnonzero(border)


def differs(values: Numbers) -> Marks:
    """Where a value is another than the one before it."""
    found = np.ones(values.size, np.bool_)
    found[1:] = values[1:] != values[:-1]
    return found


def filled(values: Numbers, starts: Numbers) -> Numbers:
    """Each value, or the last one before it within its group; NONE where there is none."""
    at = np.arange(values.size)
    begin = np.repeat(starts, np.diff(np.append(starts, values.size)))
    source = np.maximum.accumulate(np.where(values >= 0, at, NONE))
    return np.where(source >= begin, values[source], NONE)


def rows_at(table: pa.Table, chosen: Marks | Numbers) -> pa.Table:
    """The rows that are marked, or at these places."""
    return table.filter(pa.array(chosen)) if chosen.dtype == np.bool_ else table.take(pa.array(chosen))


def together(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Several tables as one of these columns; what one lacks is null."""
    return pa.concat_tables(
        [fitted(table, schema) for table in tables if table.num_rows] or [schema.empty_table()]
    )


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly these columns."""
    there = set(table.column_names)
    arrays: list[Any] = [
        table[field.name].cast(field.type) if field.name in there else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
