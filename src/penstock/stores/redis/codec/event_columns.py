"""From the runs of the log to columns, and to records where somebody wants those."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat, zip_longest
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.core.events import Event, mark_of
from penstock.core.job import QueueRef
from penstock.stores.corruption import DECODE_ERRORS, event_error
from penstock.stores.redis.codec.events import EVENT_FIELDS
from penstock.stores.redis.codec.runs import Run
from penstock.stores.values import EventColumns

_JOB: Final = EVENT_FIELDS.index("job")
_NAMES: Final = {"source": "from", "target": "to"}


def columns_of(runs: Sequence[Run]) -> EventColumns:
    """The events of runs field by field; a run that cannot be read is one row."""
    if not runs:
        return EventColumns(0, {})
    counts = [run.count for run in runs]
    is_single = len(runs) == sum(counts)
    fields: dict[str, Sequence[Any]] = {}
    unknown: dict[int, dict[str, Any]] = {}
    placed: dict[int, list[tuple[int, list[Any]]]] = {}
    start = 0
    for run, count in zip(runs, counts, strict=True):
        for place, values in run.columns.items():
            placed.setdefault(place, []).append((start, values))
        start += count
    shared = [*zip_longest(*(run.shared for run in runs), fillvalue=False)]
    shared += [(False,) * len(runs)] * (
        max([len(EVENT_FIELDS), *(place + 1 for place in placed)]) - len(shared)
    )
    for place, each in enumerate(shared):
        column = _values(each, None if is_single else counts, placed.get(place, ()))
        if column is not None and place < len(EVENT_FIELDS):
            fields[EVENT_FIELDS[place]] = column
            continue
        for at, value in enumerate(column or ()):
            if value is not None:
                unknown.setdefault(at, {})[str(place + 1)] = value
    fields["seq"] = [*chain.from_iterable(range(run.first, run.first + run.count) for run in runs)]
    fields["job"] = _jobs(runs, fields.get("job"))
    broken: dict[int, str] = {}
    ends: dict[int, int] = {}
    if any(run.why for run in runs):
        at = 0
        for run, count in zip(runs, counts, strict=True):
            if run.why is not None:
                broken[at] = run.why
                if run.last > run.first:
                    broken[at], ends[at] = f"events {run.first} to {run.last}: {run.why}", run.last
            at += count
    return EventColumns(start, fields, unknown=unknown, broken=broken, ends=ends)


def _values(
    shared: Sequence[Any], counts: Sequence[int] | None, placed: Sequence[tuple[int, list[Any]]]
) -> list[Any] | None:
    """One field of all events, None for what has none; None where no event has it."""
    kinds = set(map(type, shared))
    if kinds == {bool} and not placed:
        return None
    values: Sequence[Any] = [None if each is False else each for each in shared] if bool in kinds else shared
    found = list(values) if counts is None else [*chain.from_iterable(map(repeat, values, counts))]
    for start, column in placed:
        found[start : start + len(column)] = [None if each is False else each for each in column]
    return found


def _jobs(runs: Sequence[Run], shared: Sequence[Any] | None) -> list[str | None]:
    """The ids; those of events of the form before stand among what is shared."""
    if shared is None and all(run.jobs for run in runs):
        return [*chain.from_iterable(run.jobs for run in runs)]
    found: list[str | None] = []
    for run in runs:
        if run.jobs and run.why is None:
            found += run.jobs
        elif shared is not None:
            found += shared[len(found) : len(found) + run.count]
        else:
            found.append(None)
    return found


def error_of(queue: QueueRef, run: Run) -> str:
    """What is said of a run that cannot be read."""
    if run.first == run.last:
        return str(event_error(queue, run.first, ValueError(run.why)))
    return f"events {run.first} to {run.last} of queue {queue} cannot be read: {run.why}"


def events_of(queue: QueueRef, run: Run) -> Iterator[Event]:
    """The records of a run, with their cursors; StoreFormatError where a value is not known."""
    known = zip(EVENT_FIELDS, run.shared, strict=False)
    values = {_NAMES.get(name, name): value for name, value in known if value is not False}
    values |= {"tenant": queue.tenant, "queue": queue.name, "seq": run.first}
    try:
        plain = msgspec.convert(values, Event)
        columns = {
            EVENT_FIELDS[place]: msgspec.convert(
                [None if each is False else each for each in column], _LISTS[place]
            )
            for place, column in run.columns.items()
            if place < len(EVENT_FIELDS)
        }
    except DECODE_ERRORS as error:
        raise event_error(queue, run.first, error) from None
    log, jobs = f"{queue.tenant}/{queue.name}", [*run.jobs, *(() if run.jobs else (plain.job,))]
    versions = columns.get("version") or [plain.version] * run.count
    for at, number in enumerate(range(run.first, run.last + 1)):
        own = {name: column[at] for name, column in columns.items()}
        mark = mark_of(log, number, plain.at, plain.move, jobs[at], versions[at], plain.jobs)
        yield replace(plain, seq=number, job=jobs[at], cursor=f"{number}-{mark}", **own)


_TYPES: Final[dict[str, Any]] = {each.name: each.type for each in msgspec.structs.fields(Event)}
_LISTS: Final[list[Any]] = [list.__class_getitem__(_TYPES[name]) for name in EVENT_FIELDS]
