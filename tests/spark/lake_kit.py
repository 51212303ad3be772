"""Events as rows, and what silver has to make of them: a plain fold, event by event."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from penstock.core.events import Event
from penstock.core.states import ENDED, LIVE, State
from penstock.spark.lake import bronze
from penstock.spark.lake.folder import folder_at
from penstock.spark.lake.lake import Cut, Lake
from penstock.spark.schemas import EVENTS

P = TypeVar("P")
R = TypeVar("R")

Row = dict[str, Any]
TIMES: Final = ("at", "deadline", "visible_at", "instant")


def event_rows(events: Iterable[Event]) -> list[Row]:
    """Events as rows of the table."""
    return [_row(event) for event in events]


def frame(spark: SparkSession, rows: Sequence[Row], schema: pa.Schema = EVENTS) -> DataFrame:
    """Rows as a DataFrame; what a row lacks is null."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema))


def time_of(ms: int) -> datetime:
    """Unix milliseconds as a time."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def _row(event: Event) -> Row:
    row: Row = msgspec.structs.asdict(event)
    row["from_state"], row["to_state"] = row.pop("source"), row.pop("target")
    row |= {name: time_of(row[name]) for name in TIMES if row[name] is not None}
    return {name: str(value) if isinstance(value, State) else value for name, value in row.items()} | {
        "move": str(event.move)
    }


def here(work: Callable[[P], R], pieces: Sequence[P]) -> list[R]:
    """Work that is done by this process, where no Spark is."""
    return [work(piece) for piece in pieces]


def made(folder: Path | str) -> Lake:
    """The lake in a folder, made if it is not there."""
    lake = Lake(folder_at(str(folder)))
    lake.make()
    return lake


def add(lake: Lake, rows: Sequence[Row], parts: int | None = None) -> Cut:
    """Bring a batch of events into bronze."""
    batch = lake.bronze.batch + 1
    parts = lake.parts_for(len(rows), 2) if parts is None else parts
    events = bronze.stamped(pa.Table.from_pylist(list(rows), EVENTS), batch, 0)
    brought = bronze.write(lake.bronze.folder, events, bronze.Counts(len(rows)), parts)
    lake.add(batch, None, [brought])
    return Cut(parts, brought.parts)


def bring(lake: Lake, *batches: Sequence[Row], parts: int | None = None) -> None:
    """Bring batches of events into all tables."""
    for rows in batches:
        lake.follow(here, 2, add(lake, rows, parts))


def damage(file: Path) -> None:
    """Other bits in each column of a Parquet file, as a disk or an object store might give them."""
    data = bytearray(file.read_bytes())
    group = parquet.read_metadata(file).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        # The last byte of its last page, which is data whatever stands before.
        first = column.dictionary_page_offset or column.data_page_offset
        data[first + column.total_compressed_size - 1] ^= 1
    file.write_bytes(data)


def expected_attempts(events: Iterable[Event]) -> list[Row]:
    """One row per attempt, by a fold."""
    rows: dict[tuple[str, str, str, int], Row] = {}
    ready: dict[tuple[str, str, str], int] = {}
    for event in _in_order(events):
        if event.job is None:
            continue
        job = (event.tenant, event.queue, event.job)
        if event.fence is not None:
            row = rows.setdefault((*job, event.fence), {"fence": event.fence})
            row |= {"tenant": event.tenant, "queue": event.queue, "job": event.job, "worker": event.worker}
            row |= {"drive": event.drive, "delivery": event.delivery, "attempt": event.attempt}
            row |= {"task": event.task, "key": event.key, "priority": event.priority}
            if event.move == "claim":
                row |= {"claimed_at": event.at, "deadline": event.deadline, "ready_at": ready.get(job)}
            elif event.target is not State.ACTIVE:
                row |= {"ended_at": event.at, "outcome": str(event.move), "state": str(event.target)}
                row |= {name: getattr(event, name) for name in ("reason", "error", "fingerprint")}
        if event.target is State.PENDING:
            ready[job] = event.at
    for row in rows.values():
        row["wait_ms"] = _between(row.get("ready_at"), row.get("claimed_at"))
        row["run_ms"] = _between(row.get("claimed_at"), row.get("ended_at"))
    return list(rows.values())


def expected_jobs(events: Iterable[Event]) -> list[Row]:
    """One row per job and drive, by a fold."""
    lives: dict[tuple[str, str, str], list[dict[int, Row]]] = defaultdict(list)
    for event in _in_order(events):
        for id_ in [event.job] if event.job is not None else event.jobs or []:
            drives = lives[event.tenant, event.queue, id_]
            if event.move == "enqueue":
                drives.append({})
            if not drives:
                continue
            drive = event.drive or max(drives[-1])
            _fold(
                drives[-1].setdefault(drive, {"drive": drive, "_of": (event.tenant, event.queue, id_)}), event
            )
    rows = []
    for life in (life for of_id in lives.values() for life in of_id):
        born = life[min(life)]
        rows += [_finish(row, born) for row in life.values()]
    return rows


def _fold(row: Row, event: Event) -> None:
    at, move, target = event.at, str(event.move), event.target
    if move in ("delete", "prune"):
        # A drive that completed is history: what becomes of its record is not told there.
        if row.get("state") is not State.COMPLETED:
            row |= {"removed_at": at, "removed_by": move, "last_seq": event.seq}
        return
    row["last_seq"] = event.seq
    if target is State.PENDING:
        row["ready_at"] = at
    row |= {"task": event.task, "key": event.key, "priority": event.priority, "version": event.version}
    row |= {"state": target, "visible_at": event.visible_at, "changed_at": at}
    if move == "enqueue":
        row |= {"enqueue_seq": event.seq, "enqueued_at": at, "parent": event.parent}
        row |= {
            name: getattr(event, name) for name in ("idempotency_key", "max_attempts", "schedule", "instant")
        }
    if move in ("enqueue", "redrive"):
        row["began_at"] = at
    if move == "claim":
        row.setdefault("first_claim_at", at)
        row["last_claim_at"] = at
        row["deliveries"] = row.get("deliveries", 0) + 1
    if move in ("retry", "bury", "expire"):
        row["attempts"] = row.get("attempts", 0) + 1
    if event.fence is not None:
        row |= {"worker": event.worker, "fence": event.fence}
    if target in ENDED:
        row["ended_at"] = at
    if move in ("complete", "fail", "retry", "bury", "expire") or target in ENDED:
        row |= {name: getattr(event, name) for name in ("reason", "error", "fingerprint")}
    if move == "cancel" and target is State.ACTIVE:
        row.setdefault("cancel_requested_at", at)


def _finish(row: Row, born: Row) -> Row:
    of_job = (
        "enqueue_seq",
        "enqueued_at",
        "idempotency_key",
        "max_attempts",
        "parent",
        "schedule",
        "instant",
    )
    row |= {name: born.get(name) for name in of_job}
    row["tenant"], row["queue"], row["job"] = row.pop("_of")
    row["is_live"] = row["state"] in LIVE and "removed_at" not in row
    row["state"] = str(row["state"])
    row.setdefault("attempts", 0)
    row.setdefault("deliveries", 0)
    row["wait_ms"] = _between(row.get("began_at"), row.get("first_claim_at"))
    row["total_ms"] = _between(row.get("began_at"), row.get("ended_at"))
    return row


def _in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.tenant, event.queue, event.seq))


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


def seen(rows: DataFrame) -> list[str]:
    """Rows in one order and as text, with times as milliseconds, to be compared."""
    return sorted(text_of_row(row.asDict()) for row in rows.collect())


def wanted(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    """The same for rows of the fold."""
    return sorted(text_of_row({name: row.get(name) for name in columns}) for row in rows)


def text_of_row(row: Row) -> str:
    """A row as text, with times as milliseconds."""
    plain = {
        name: round(value.replace(tzinfo=UTC).timestamp() * 1000) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
    return repr(sorted(plain.items()))
