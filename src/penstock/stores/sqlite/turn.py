"""One call's turn on one queue, inside a transaction: its time, its numbers, its steps."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from penstock.core.effects import PROGRESS_EVERY_MS
from penstock.core.events import COUNTED_MOVES, DELETED, ERROR_CHARS, FAULT_MOVES, LEASE_MOVES
from penstock.core.job import QueueRef
from penstock.core.limits import (
    MAX_COUNT,
    STRIDE,
    Declaration,
    KeyRule,
    Mode,
    agreed,
    check_declaration,
    check_key_rule,
)
from penstock.core.moves import Move
from penstock.core.outcomes import SETTLED_LIMIT, Applied, Refusal, Refused, repeated
from penstock.core.states import REDRIVABLE, State
from penstock.core.transitions import Table
from penstock.stores.protocol import MAX_LEASE_MS, Pause, Topic
from penstock.stores.sqlite.clock import not_before
from penstock.stores.sqlite.records import declaration_of
from penstock.stores.sqlite.sources import Steps

ROWS_POWER: Final = 8
"""Rows go in by powers of two up to 256: a few statements to prepare, and few values to bind at once."""

PLAIN: Final = Declaration()

_ENCODER = msgspec.json.Encoder()
_APPLIED = msgspec.json.Decoder(list[tuple[int, State, bool]], strict=False)
_REFUSED = msgspec.json.Decoder(list[tuple[State | None, str | None]])


class Turn:
    """What one call on one queue works with. `rings` collects whom to wake after the commit."""

    def __init__(
        self, connection: sqlite3.Connection, sql: dict[str, Steps], queue: QueueRef, table: Table
    ) -> None:
        self.queue = queue
        self.rings: set[Topic] = set()
        self.connection = connection
        self._sql = sql
        self._table = table
        self._keys: dict[str, None] = {}
        row = connection.execute(_FIND_QUEUE, (queue.tenant, queue.name)).fetchone()
        if row is None:
            open_queue(connection, queue)
            row = connection.execute(_FIND_QUEUE, (queue.tenant, queue.name)).fetchone()
        self._n, self._seq, self._place, last_us, offset_ms, text, *rest = row
        self._arrival_us, self._virtual, self._lanes, self._relays, self.has_flows = rest
        self.declaration = None if text is None else declaration_of(text)
        self.declared = self.declaration or PLAIN
        self.now_us = not_before(last_us, time.time_ns() // 1000 + offset_ms * 1000)
        self.now = self.now_us // 1000
        self._params: dict[str, Any] = {
            "queue": self._n,
            "now": self.now,
            "now_us": self.now_us,
            "seq": self._seq,
            "place": self._place,
            "lease_limit": MAX_LEASE_MS,
            "settled_chars": SETTLED_LIMIT,
            "error_chars": ERROR_CHARS,
            "progress_every": PROGRESS_EVERY_MS,
            "queue_name": queue.name,
            "stride": STRIDE,
        }
        self._limits()
        self._note()

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

    def one(self, move: Move, step: str, **params: Any) -> Any:
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

    def share(self, file: str, step: str = "all", **params: Any) -> sqlite3.Cursor:
        """One step that several moves share."""
        return self.connection.execute(self._sql[f"shared/{file}.sql"][step], self._params | params)

    def tell(self, move: Move) -> None:
        """Write the event of everything touched, leave word for parents, and use up the numbers."""
        flags: dict[str, Any] = {
            "move": move,
            "lease": move in LEASE_MOVES,
            "counted": move in COUNTED_MOVES,
            "faulty": move in FAULT_MOVES or move is Move.UNBLOCK,
        }
        told = self.share("event", **flags).rowcount
        self.count(told, told)
        self.touch(move)
        if self.has_flows and move is not Move.DELETE:
            self.relay_endings(gone=False)

    def touch(self, move: Move) -> None:
        """Remember the keys of what was touched, if the move can change whether they could be served."""
        if self.declared.mode.has_keys and self._table[move].readies:
            rows = self.connection.execute(
                "SELECT job.key FROM temp.touched JOIN job ON job.n = touched.n "
                "WHERE job.key IS NOT NULL ORDER BY touched.i"
            )
            self.touch_keys(move, [key for (key,) in rows])

    def touch_keys(self, move: Move, keys: Iterable[str]) -> None:
        """The same where the keys are known."""
        if self.declared.mode.has_keys and self._table[move].readies:
            self._keys.update(dict.fromkeys(keys))

    def refresh(self) -> None:
        """Look again whether the touched keys could be served: at the end of a call, in the order touched."""
        if not self._keys:
            return
        keys = encode(list(self._keys))
        self._keys.clear()
        self.share("ready", "close", keys=keys)
        self._lanes += self.share("ready", "open", keys=keys).rowcount
        if self.declared.key_rate is not None:
            self.share("ready", "forget", keys=keys)
        self._note()

    def release_held(self) -> None:
        """Let keys go on whose rate held them back until now."""
        if self.declared.key_rate is not None:
            self._lanes += self.share("ready", "release").rowcount
            self._note()

    def serve(self) -> None:
        """The keys picked were served: their turns are used, and a token of each one's rate."""
        virtual = self.one(Move.CLAIM, "virtual")
        if self.declared.key_rate is not None:
            self.run(Move.CLAIM, "rate")
        self._lanes += self.run(Move.CLAIM, "served").rowcount
        self._virtual = virtual
        self._note()
        self.refresh()

    def allowance(self) -> int:
        """How many may be claimed now by the queue's own limits."""
        allowed = MAX_COUNT
        if self.declared.max_active is not None:
            (active,) = self.connection.execute(
                "SELECT count(*) FROM job WHERE queue = ? AND state = 'active'", (self._n,)
            ).fetchone()
            allowed = min(allowed, self.declared.max_active - active)
        if self.declared.rate is not None:
            allowed = min(allowed, self.declared.rate.tokens(self._arrival_us, self.now_us))
        return max(0, allowed)

    def use_rate(self, taken: int) -> int | None:
        """Use up tokens of the queue's rate; when it opens again, if none is left and someone waits."""
        rate = self.declared.rate
        if rate is None:
            return None
        self._arrival_us = rate.after(self._arrival_us, self.now_us, taken)
        if rate.tokens(self._arrival_us, self.now_us) or not self.has_pending():
            return None
        return -(-rate.opens_us(self._arrival_us) // 1000)

    def has_pending(self) -> bool:
        """True when a job is claimable but for limits."""
        row = self.connection.execute(
            "SELECT 1 FROM job WHERE queue = ? AND state = 'pending' LIMIT 1", (self._n,)
        ).fetchone()
        return row is not None

    def room(self) -> int:
        """How many more jobs may wait."""
        longest = self.declared.max_length
        if longest is None:
            return MAX_COUNT
        (waiting,) = self.connection.execute(_WAITING, (self._n,)).fetchone()
        return int(longest - waiting)

    def relay_endings(self, *, gone: bool) -> None:
        """Leave word for the parents of what ended, or of what goes without having ended."""
        self._relays += self.share("relay", gone=gone).rowcount
        self._note()

    def relay(self, target: str, what: str, body: str) -> None:
        """Leave something for another queue."""
        self._relays += 1
        self.connection.execute(
            "INSERT INTO relay (queue, number, target, what, body) VALUES (?, ?, ?, ?, ?)",
            (self._n, self._relays, target, what, body),
        )
        self._note()

    def _limits(self) -> None:
        rate = self.declared.key_rate
        self._params |= {
            "key_limit": self.declared.key_limit,
            "dynamic": self.declared.mode is Mode.DYNAMIC,
            "keyed": self.declared.mode.has_keys,
            "key_interval_us": 0 if rate is None else rate.interval_us,
            "key_slack_us": 0 if rate is None else (rate.burst - 1) * rate.interval_us,
        }

    def _note(self) -> None:
        self._params |= {"virtual": self._virtual, "lanes": self._lanes, "relays": self._relays}

    def tell_once(self, move: Move, jobs: Sequence[str]) -> None:
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
        for indexes in rounds([item if isinstance(item, str) else item[0] for item in items]):
            batch = [items[index] for index in indexes]
            if self.pick(move, items=encode(batch), **params):
                self.run(move, "change", **params)
                answers = self.share("applied").fetchone()[0]
                if move is not Move.HEARTBEAT:
                    self.after_change(move)
                before = None
                for item, state, cancel in _APPLIED.decode(answers):
                    out[indexes[item]] = Applied(state, cancel and state is State.ACTIVE)
                    if state is not before:
                        before = state
                        self.ring(state)
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
        self.tell(move)

    def ring(self, state: State) -> None:
        """Remember whom a job in this state concerns."""
        if state in {State.PENDING, State.DELAYED}:
            self.rings.add(Topic.READY)
        elif state.is_ended:
            self.rings.add(Topic.ENDED)
            # Where claims are limited, an ending lets the next job go.
            if self.declaration is not None:
                self.rings.add(Topic.READY)

    def touched(self, columns: str) -> list[tuple[Any, ...]]:
        """What was picked, in order."""
        return self.connection.execute(f"SELECT {columns} FROM temp.touched ORDER BY i").fetchall()  # noqa: S608 (constants)

    def tell_deleted(self) -> None:
        """Write the event of one job about to go: its last version, and no state after it."""
        self.connection.execute(
            "UPDATE job SET version = version + 1 WHERE n IN (SELECT n FROM temp.touched)"
        )
        self.tell(Move.DELETE)
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
        said = (None, None, None, None) if pause is None else (self.now, until, pause.reason, pause.by)
        self.connection.execute(
            "UPDATE queue SET paused_at = ?, paused_until = ?, pause_reason = ?, pause_by = ? WHERE n = ?",
            (*said, self._n),
        )

    def declare(self, wanted: Declaration) -> None:
        """Keep what was agreed, and look at all keys again."""
        (is_live,) = self.connection.execute(
            "SELECT EXISTS (SELECT 1 FROM job WHERE queue = ? "
            "AND state IN ('blocked', 'pending', 'delayed', 'active'))",
            (self._n,),
        ).fetchone()
        self.declaration = self.declared = agreed(
            self.declaration, check_declaration(wanted), is_live=bool(is_live)
        )
        self.connection.execute(
            "UPDATE queue SET declaration = ? WHERE n = ?", (encode(self.declared), self._n)
        )
        self._limits()
        if self.declared.mode.has_keys:
            rows = self.connection.execute(_ALL_KEYS, {"queue": self._n})
            self._keys.update(dict.fromkeys(key for (key,) in rows))
            self.refresh()
            self._lanes += self.share("ready", "let_go").rowcount
            self.share("ready", "hold")
            self._note()
        else:
            self.connection.execute("DELETE FROM lane WHERE queue = ?", (self._n,))

    def set_key_rule(self, key: str, rule: KeyRule | None) -> None:
        """Keep a key's own limit and weight, or none, and look at it again."""
        if rule is None:
            self.connection.execute("DELETE FROM key_rule WHERE queue = ? AND key = ?", (self._n, key))
        else:
            check_key_rule(self.declared.mode, rule)
            self.connection.execute(
                "INSERT OR REPLACE INTO key_rule (queue, key, max_active, weight, stride) "
                "VALUES (?, ?, ?, ?, ?)",
                (self._n, key, rule.limit, rule.weight, rule.stride),
            )
        if self.declared.mode.has_keys:
            self._keys[key] = None

    def trim(self, through: int) -> int:
        """Forget events up to this number."""
        through = min(through, self._seq)
        cut = self.connection.execute(
            "DELETE FROM event WHERE queue = ? AND seq <= ?", (self._n, through)
        ).rowcount
        self.connection.execute("UPDATE queue SET trimmed = max(trimmed, ?) WHERE n = ?", (through, self._n))
        return cut

    def close(self) -> None:
        """Keep the numbers and the time used."""
        self.refresh()
        self.connection.execute(
            "UPDATE queue SET seq = ?, place = ?, at_us = ?, arrival_us = ?, virtual = ?, lanes = ?, "
            "relays = ?, has_flows = ? WHERE n = ?",
            (
                self._seq,
                self._place,
                self.now_us,
                self._arrival_us,
                self._virtual,
                self._lanes,
                self._relays,
                self.has_flows,
                self._n,
            ),
        )

    def refuse(self, move: Move, asked: Sequence[Sequence[Any] | str]) -> Iterator[Applied | Refused]:
        """The answers for items that did not pass: a repeat gets its old one."""
        if not asked:
            return
        ids = encode([item if isinstance(item, str) else item[0] for item in asked])
        (text,) = self.connection.execute(
            self._sql["shared/refused.sql"]["all"], {"queue": self._n, "ids": ids}
        ).fetchone()
        for item, (state, notes) in zip(asked, _REFUSED.decode(text), strict=True):
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
    n, seq, place, at_us, (SELECT value FROM meta WHERE name = 'clock_offset_ms'), declaration,
    arrival_us, virtual, lanes, relays, has_flows
FROM queue WHERE tenant = ? AND name = ?
"""


# One count per state: each has an index of its own.
_WAITING: Final = """
SELECT
    (SELECT count(*) FROM job WHERE queue = ?1 AND state = 'pending')
    + (SELECT count(*) FROM job WHERE queue = ?1 AND state = 'delayed')
    + (SELECT count(*) FROM job WHERE queue = ?1 AND state = 'blocked')
"""

_ALL_KEYS: Final = """
SELECT key FROM job WHERE queue = :queue AND state = 'pending' AND key IS NOT NULL
UNION SELECT key FROM job WHERE queue = :queue AND state = 'active' AND key IS NOT NULL
UNION SELECT key FROM key_rule WHERE queue = :queue
UNION SELECT key FROM lane WHERE queue = :queue
ORDER BY 1
"""


def open_queue(connection: sqlite3.Connection, queue: QueueRef) -> None:
    """Make the queue unless it is there, with the tenant's next number."""
    connection.execute(
        "INSERT OR IGNORE INTO queue (tenant, name, number) "
        "SELECT ?1, ?2, coalesce(max(number), 0) + 1 FROM queue WHERE tenant = ?1",
        (queue.tenant, queue.name),
    )


def rounds(ids: Sequence[str]) -> Iterator[list[int]]:
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


def encode(value: Any) -> str:
    """JSON for a step's :items."""
    return _ENCODER.encode(value).decode()
