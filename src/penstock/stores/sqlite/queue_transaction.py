"""The part of a transaction that is one call on one queue: its time, its numbers, its steps."""

import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from penstock.core.clocks import FENCE_LIMIT, STEP_MS, ClockStep, stepped, time_after
from penstock.core.decide import CANCELLED
from penstock.core.effects import PROGRESS_EVERY_MS
from penstock.core.events import COUNTED_MOVES, DELETED, ERROR_CHARS, FAULT_MOVES, LEASE_MOVES
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import SETTLED_LIMIT, Applied, Refusal, Refused, repeated
from penstock.core.states import REDRIVABLE, State
from penstock.core.transitions import Table
from penstock.stores.absent import QueueAbsentError
from penstock.stores.bounds import MAX_LEASE_MS
from penstock.stores.rows import encode
from penstock.stores.sqlite.codec import check_numbers
from penstock.stores.sqlite.queue_limits import QueueLimits
from penstock.stores.sqlite.sources import Steps
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import Pause, Topic

ROWS_POWER: Final = 8
"""Rows go in by powers of two up to 256: a few statements to prepare, and few values to bind at once."""

_APPLIED = msgspec.json.Decoder(list[tuple[int, State, bool]], strict=False)
_REFUSED = msgspec.json.Decoder(list[tuple[State | None, str | None]])


class QueueTransaction:
    """What one call on one queue works with. `notifications` are the topics to notify of after the commit."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        sql: dict[str, Steps],
        queue: QueueRef,
        table: Table,
        *,
        creates: bool = True,
    ) -> None:
        self.queue = queue
        self.notifications: set[Topic] = set()
        self.connection = connection
        self._sql = sql
        self._table = table
        rows = fetch(connection, _FIND_QUEUE, (queue.tenant, queue.name))
        if not rows:
            if not creates:
                raise QueueAbsentError
            open_queue(connection, queue)
            rows = fetch(connection, _FIND_QUEUE, (queue.tenant, queue.name))
        [row] = rows
        check_numbers(queue, (*row[:9], *row[10:]))
        self._n, self._seq, self._place, last_us, offset_ms, self._relays, self.has_flows, *rest = row
        step_at, step_back_ms, *limits = rest
        self.now_us = time_after(last_us, time.time_ns() // 1000 + offset_ms * 1000)
        known = None if step_at is None else ClockStep(step_at, step_back_ms)
        step = stepped(last_us, self.now_us, known)
        self._new_step = None if step == known else step
        self.now = self.now_us // 1000
        self._params: dict[str, Any] = {
            "queue": self._n,
            "now": self.now,
            "now_us": self.now_us,
            "seq": self._seq,
            "place": self._place,
            "lease_limit": MAX_LEASE_MS,
            "step_ms": STEP_MS,
            "settled_chars": SETTLED_LIMIT,
            "error_chars": ERROR_CHARS,
            "progress_every": PROGRESS_EVERY_MS,
            "highest_fence": FENCE_LIMIT - 1,
            "cancelled": CANCELLED,
            "queue_name": queue.name,
            "relays": self._relays,
        }
        self.limits = QueueLimits(self, *limits)
        self._before = connection.total_changes, self.limits.numbers

    @property
    def events(self) -> int:
        """The number of the queue's newest event."""
        return int(self._seq)

    @property
    def number(self) -> int:
        """The queue's row."""
        return int(self._n)

    def run(self, move: Move, step: str, **params: Any) -> sqlite3.Cursor:
        """One step of the move's file."""
        return self.connection.execute(self._sql[f"moves/{move}.sql"][step], self._params | params)

    def value(self, move: Move, step: str, **params: Any) -> Any:
        """The single value that a step selects."""
        return self.run(move, step, **params).fetchone()[0]

    def insert(self, move: Move, step: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """A step that takes rows, in a few statements of fixed sizes; how many rows it wrote."""
        written = start = 0
        while start < len(rows):
            size = 1 << min((len(rows) - start).bit_length() - 1, ROWS_POWER)
            batch = rows[start : start + size]
            values = ", ".join([f"({', '.join('?' * len(batch[0]))})"] * size)
            sql = self._sql[f"moves/{move}.sql"][step].replace("{rows}", values)
            bound = (self._n, self.now, self._place, *chain.from_iterable(batch))
            written += self.connection.execute(sql, bound).rowcount
            start += size
        return written

    def pick(self, move: Move, step: str = "pick", **params: Any) -> int:
        """Note what passes the move's guards; how many do."""
        self.connection.execute("DELETE FROM temp.touched")
        return self.run(move, step, **params).rowcount

    def run_shared(self, file: str, step: str = "all", **params: Any) -> sqlite3.Cursor:
        """One step that several moves share."""
        return self.connection.execute(self._sql[f"shared/{file}.sql"][step], self._params | params)

    def write_events(self, move: Move) -> None:
        """Write the event of everything touched, leave word for parents, and use up the numbers."""
        flags: dict[str, Any] = {
            "move": move,
            "lease": move in LEASE_MOVES,
            "counted": move in COUNTED_MOVES,
            "faulty": move in FAULT_MOVES or move is Move.UNBLOCK,
        }
        written = self.run_shared("event", **flags).rowcount
        self.count(written, written)
        self.touch(move)
        if self.has_flows and move is not Move.DELETE:
            self.relay_endings(gone=False)

    def touch(self, move: Move) -> None:
        """Remember the keys of what was touched, if the move can change whether they could be served."""
        if self.readies(move):
            rows = self.connection.execute(
                "SELECT job.key FROM temp.touched JOIN job ON job.n = touched.n "
                "WHERE job.key IS NOT NULL ORDER BY touched.i"
            )
            self.limits.touch(key for (key,) in rows)

    def readies(self, move: Move) -> bool:
        """True when the move can change whether a key could be served."""
        return self.limits.declared.mode.has_keys and self._table[move].readies

    def bind(self, **params: Any) -> None:
        """Give all further steps these values."""
        self._params |= params

    def relay_endings(self, *, gone: bool) -> None:
        """Leave word for the parents of what ended, or of what goes without having ended."""
        self._relays += self.run_shared("relay", gone=gone).rowcount
        self.bind(relays=self._relays)

    def relay(self, target: str, what: str, body: str) -> None:
        """Leave something for another queue."""
        self._relays += 1
        self.connection.execute(
            "INSERT INTO relay (queue, number, target, what, body) VALUES (?, ?, ?, ?, ?)",
            (self._n, self._relays, target, what, body),
        )
        self.bind(relays=self._relays)

    def write_shared_event(self, move: Move, jobs: Sequence[str]) -> None:
        """Write one event for many jobs that are gone."""
        self.connection.execute(
            "INSERT INTO event (queue, seq, at, move, jobs, reason) VALUES (?, ?, ?, ?, ?, ?)",
            (self._n, self._seq + 1, self.now, move, encode(jobs), DELETED if move is Move.DELETE else None),
        )
        self.count(1, 0)

    def count(self, events: int, places: int) -> None:
        """Use up event numbers and places."""
        self._seq += events
        self._place += places
        self._params["seq"] = self._seq
        self._params["place"] = self._place

    def apply(
        self, move: Move, items: Sequence[Sequence[Any] | str], **params: Any
    ) -> list[Applied | Refused]:
        """Pick, change, tell and answer for a move whose items begin with the job's id."""
        out: list[Applied | Refused | None] = [None] * len(items)
        for indexes in distinct_batches([item if isinstance(item, str) else item[0] for item in items]):
            batch = [items[index] for index in indexes]
            if self.pick(move, items=encode(batch), **params):
                self.run(move, "change", **params)
                answers = self.run_shared("applied").fetchone()[0]
                if move is not Move.HEARTBEAT:
                    self.after_change(move)
                before = None
                for item, state, cancel in _APPLIED.decode(answers):
                    out[indexes[item]] = Applied(state, cancel and state is State.ACTIVE)
                    if state is not before:
                        before = state
                        self.notify_of(state)
            missing = [index for index in indexes if out[index] is None]
            if missing:
                for index, refused in zip(
                    missing, self.refuse(move, [items[index] for index in missing]), strict=True
                ):
                    out[index] = refused
        return [each for each in out if each is not None]

    def after_change(self, move: Move) -> None:
        """Write the events; of progress only those whose time has come."""
        if move is Move.PROGRESS:
            self.run(move, "quiet")
            self.run(move, "renumber")
            self.run(move, "tell")
        self.write_events(move)

    def notify_of(self, state: State) -> None:
        """Remember whom a job in this state concerns."""
        if state in {State.PENDING, State.DELAYED}:
            self.notifications.add(Topic.READY)
        elif state.is_ended:
            self.notifications.add(Topic.ENDED)
            # Where claims are limited, an ending lets the next job go.
            if self.limits.declaration is not None:
                self.notifications.add(Topic.READY)

    def touched(self, columns: str) -> list[tuple[Any, ...]]:
        """What was picked, in order."""
        return self.connection.execute(f"SELECT {columns} FROM temp.touched ORDER BY i").fetchall()  # noqa: S608 (constants)

    def write_deletion_event(self) -> None:
        """Write the event of one job about to go: its last version, and no state after it."""
        self.connection.execute(
            "UPDATE job SET version = version + 1 WHERE n IN (SELECT n FROM temp.touched)"
        )
        self.write_events(Move.DELETE)
        self.connection.execute(
            "UPDATE event SET target = NULL, reason = ? WHERE queue = ? AND seq = ?",
            (DELETED, self._n, self._seq),
        )

    def last_job(self) -> int:
        """The highest row number in use; new rows get higher ones."""
        row = self.connection.execute("SELECT max(n) FROM job").fetchone()
        return int(row[0] or 0)

    def pause(self, pause: Pause | None, until: int | None) -> None:
        """Keep why and how long nothing is claimed, or that claims go on."""
        values = (None, None, None, None) if pause is None else (self.now, until, pause.reason, pause.by)
        self.connection.execute(
            "UPDATE queue SET paused_at = ?, paused_until = ?, pause_reason = ?, pause_by = ? WHERE n = ?",
            (*values, self._n),
        )

    def trim(self, through: int) -> int:
        """Forget events up to this number."""
        through = min(through, self._seq)
        cut = self.connection.execute(
            "DELETE FROM event WHERE queue = ? AND seq <= ?", (self._n, through)
        ).rowcount
        self.connection.execute("UPDATE queue SET trimmed = max(trimmed, ?) WHERE n = ?", (through, self._n))
        return cut

    def close(self) -> None:
        """Keep the numbers and the time used; a call that found nothing to do costs the disk nothing."""
        self.limits.refresh()
        if self._new_step is not None:
            self.connection.execute(
                "UPDATE queue SET step_at = ?, step_back_ms = ? WHERE n = ?",
                (self._new_step.at, self._new_step.back_ms, self._n),
            )
        if (self.connection.total_changes, self.limits.numbers) == self._before:
            return
        self.connection.execute(
            "UPDATE queue SET seq = ?, place = ?, at_us = ?, relays = ?, has_flows = ?, arrival_us = ?, "
            "virtual = ?, lanes = ? WHERE n = ?",
            (
                self._seq,
                self._place,
                self.now_us,
                self._relays,
                self.has_flows,
                *self.limits.numbers,
                self._n,
            ),
        )

    def refuse(self, move: Move, items: Sequence[Sequence[Any] | str]) -> Iterator[Applied | Refused]:
        """The answers for items that did not pass: a repeat gets its old one."""
        if not items:
            return
        ids = encode([item if isinstance(item, str) else item[0] for item in items])
        (text,) = self.connection.execute(
            self._sql["shared/refused.sql"]["all"], {"queue": self._n, "ids": ids}
        ).fetchone()
        for item, (state, notes) in zip(items, _REFUSED.decode(text), strict=True):
            if not isinstance(item, str):
                before = repeated(notes or "", item[1], move)
                yield Refused(Refusal.LOST, state) if before is None else Applied(before)
            elif state is None:
                yield Refused(Refusal.MISSING)
            elif move is Move.CANCEL and state is State.ACTIVE:
                yield Applied(state, True)
            elif move is Move.REDRIVE and state in REDRIVABLE:
                yield Refused(Refusal.KEYLESS, state)
            else:
                yield Refused(Refusal.STATE, state)


_FIND_QUEUE: Final = """
SELECT
    n, seq, place, at_us, (SELECT value FROM meta WHERE name = 'clock_offset_ms'), relays, has_flows,
    step_at, step_back_ms, declaration, arrival_us, virtual, lanes
FROM queue WHERE tenant = ? AND name = ?
"""


# Neither the row's own number nor the tenant's is one that a deleted queue had.
_OPEN_QUEUE: Final = """
INSERT OR IGNORE INTO queue (n, tenant, name, number, at_us, made)
SELECT
    max(coalesce((SELECT max(n) FROM queue), 0), coalesce((SELECT max(n) FROM deleted_queue), 0)) + 1,
    ?1,
    ?2,
    max(
        coalesce((SELECT max(number) FROM queue WHERE tenant = ?1), 0),
        coalesce((SELECT last FROM numbering WHERE tenant = ?1), 0)
    ) + 1,
    (SELECT value FROM meta WHERE name = 'deleted_at_us'),
    ?3
"""


def open_queue(connection: sqlite3.Connection, queue: QueueRef) -> None:
    """Make the queue unless it is there, with a number that none of the tenant ever had."""
    connection.execute(_OPEN_QUEUE, (queue.tenant, queue.name, secrets.token_hex(8)))


def distinct_batches(ids: Sequence[str]) -> Iterator[list[int]]:
    """Indexes in consecutive rounds that name each id once: what repeats one has to see what came before."""
    seen: set[str] = set()
    now: list[int] = []
    for index, each in enumerate(ids):
        if each in seen:
            yield now
            seen, now = set(), []
        seen.add(each)
        now.append(index)
    yield now
