"""All fields of rows and of items of statements: from the core's values, and back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core.events import EVENT_VERSION, Event
from penstock.core.job import Claimed, Job, NewJob, QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.columns import columns, unknown
from penstock.stores.corruption import DECODE_ERRORS, event_error, job_error
from penstock.stores.rows import (
    EVENT_COLUMNS,
    JOB_COLUMNS,
    More,
    encode,
    more_text,
    options_of,
    options_text,
    restored,
    stored,
)
from penstock.stores.rows import more_of as more_as_stored
from penstock.stores.values import EventColumns, Spawn


def more_of(text: str | None) -> More:
    """The fields that few jobs have."""
    more = more_as_stored(text)
    if more.unique is None or "\\" not in more.unique.key:
        return more
    unique = msgspec.structs.replace(more.unique, key=restored(more.unique.key) or "")
    return msgspec.structs.replace(more, unique=unique)


def _more_text(new: NewJob) -> str | None:
    unique = new.unique
    if unique is not None:
        # The server reads this JSON too, and takes no NUL in it, however it is escaped.
        unique = msgspec.structs.replace(unique, key=stored(unique.key) or "")
    return more_text(new, unique)


def new_columns(jobs: Sequence[NewJob]) -> list[Any]:
    """New jobs as the items of enqueue.sql, and the values that all of them share."""
    options = [new.options for new in jobs]
    columns: list[list[Any]] = [
        [new.task for new in jobs],
        [bool(new.awaits) for new in jobs],
        [new.priority for new in jobs],
        [new.delay_ms for new in jobs],
        [new.run_at for new in jobs],
        [stored(new.idempotency_key) for new in jobs],
        [None if new.idempotency_key is None else new.digest for new in jobs],
        [stored(new.key) for new in jobs],
        [options_text(each) for each in options],
        [each.max_attempts for each in options],
        [each.kept_ms for each in options],
        [each.key_held_ms for each in options],
        [_more_text(new) for new in jobs],
    ]
    alike = [column.count(column[0]) == len(column) for column in columns]
    return [
        [new.id for new in jobs],
        [new.nonce for new in jobs],
        [new.payload.decode() for new in jobs],
        *([] if same else column for column, same in zip(columns, alike, strict=True)),
        *(column[0] if same else None for column, same in zip(columns, alike, strict=True)),
    ]


def made_of(jobs: Sequence[NewJob], rows: Sequence[tuple[Any, ...]]) -> dict[str, State]:
    """The states of those jobs that enqueue.sql made."""
    [(state, ids, states)] = rows
    if state is not None:
        return dict.fromkeys([new.id for new in jobs], State(state))
    return {job: State(its) for job, its in zip(ids or (), states or (), strict=True)}


def spawn_columns(spawns: Sequence[Spawn]) -> tuple[list[str], list[str]]:
    """Jobs for other queues as the items of their relay entries."""
    return [each.queue for each in spawns], [encode(each.job) for each in spawns]


def claimed_of(row: Sequence[Any]) -> Claimed:
    """A job from the row of claim.sql, from its id on."""
    more = more_of(row[15])
    return Claimed(
        id=row[0],
        task=row[1],
        payload=row[2].encode(),
        priority=row[3],
        options=options_of(row[4]),
        enqueued_at=row[5],
        drive=row[6],
        delivery=row[7],
        attempts=row[8],
        token=row[9],
        fence=row[10],
        deadline=row[11],
        key=restored(row[12]),
        last_delay_ms=row[13],
        cancel_requested=row[14],
        parents=more.parents,
        unhandled_since=more.unhandled_since,
        headers=more.headers,
    )


def job_of(queue: QueueRef, row: tuple[Any, ...]) -> Job:
    """A record from JOB_COLUMNS."""
    fields = dict(zip(JOB_COLUMNS.split(", "), row, strict=True))
    for name in ("payload", "result", "progress"):
        if fields[name] is not None:
            fields[name] = fields[name].encode()
    fields["state"] = State(fields["state"])
    fields["options"] = options_of(fields["options"])
    fields["idempotency_key"] = restored(fields["idempotency_key"])
    fields["key"] = restored(fields["key"])
    more = msgspec.structs.asdict(more_of(fields.pop("more")))
    return Job(tenant=queue.tenant, queue=queue.name, **fields, **more)


def job_or_error(queue: QueueRef, row: tuple[Any, ...]) -> Job:
    """A record from JOB_COLUMNS; StoreFormatError where it is damaged."""
    try:
        return job_of(queue, row)
    except DECODE_ERRORS as error:
        raise job_error(queue, row[0], error) from None


def job_or_none(queue: QueueRef, row: tuple[Any, ...]) -> Job | None:
    """A record from JOB_COLUMNS; None where it is damaged."""
    try:
        return job_of(queue, row)
    except DECODE_ERRORS:
        return None


def event_from(queue: QueueRef, row: tuple[Any, ...]) -> Event:
    """An event from EVENT_COLUMNS."""
    fields = dict(zip(EVENT_COLUMNS.split(", "), row, strict=True))
    try:
        fields["move"] = Move(fields["move"])
        for name in ("source", "target"):
            if fields[name] is not None:
                fields[name] = State(fields[name])
    except DECODE_ERRORS as error:
        raise event_error(queue, row[0], error) from None
    fields["idempotency_key"] = restored(fields["idempotency_key"])
    fields["key"] = restored(fields["key"])
    return Event(v=EVENT_VERSION, tenant=queue.tenant, queue=queue.name, **fields)


_KNOWN: Final = frozenset({"stamp", *EVENT_COLUMNS.split(", ")})


def columns_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> EventColumns:
    """Events field by field, from all columns of their table."""
    found = columns(names, rows)
    fields = {name: values for name, values in found.items() if name in _KNOWN}
    fields["key"] = [restored(text) for text in found.get("key", ())]
    fields["idempotency_key"] = [restored(text) for text in found.get("idempotency_key", ())]
    fields["v"] = [EVENT_VERSION] * len(rows)
    stamps = found.get("stamp", ())
    return EventColumns(len(rows), fields, stamps, unknown(found, _KNOWN, len(rows)))
