"""Jobs event by event, by the rules of `penstock.core.history.life`, which name every breach."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.decide import NO_HANDLER
from penstock.core.events import EVENT_VERSION, Event
from penstock.core.history.life import Life, Totals, advance, lose, remove
from penstock.core.history.rules import Rule
from penstock.core.moves import Move
from penstock.core.states import ENDED, State
from penstock.core.transitions import TABLE
from penstock.spark.audit.found import KNOWN, Kind
from penstock.spark.audit.wanted import Wanted

Row = Mapping[str, Any]
Entry = dict[str, Any]

_MOVES: Final = {str(move): move for move in TABLE}
_STATES: Final[dict[str | None, State | None]] = {None: None, **{str(state): state for state in State}}
_PACK: Final = msgspec.msgpack.Encoder().encode
_UNPACK: Final = msgspec.msgpack.Decoder(Life).decode


def follow(rows: pa.RecordBatch, wanted: Wanted, totals: Totals, live: Counter[State]) -> Iterator[Entry]:
    """Every breach in the lives of these jobs, and what is wanted of them."""
    for _, alike in groupby(rows.to_pylist(), key=lambda row: row["life"]):
        # Two jobs may have the same hash.
        for _, own in groupby(sorted(alike, key=_name), key=_name):
            yield from _Job(wanted, totals, live).follow(own)


def _name(row: Row) -> tuple[str, str, str]:
    return row["tenant"] or "", row["queue"] or "", row["job"] or ""


class _Job:
    """One job, or the events that are of none."""

    def __init__(self, wanted: Wanted, totals: Totals, live: Counter[State]) -> None:
        self._wanted = wanted
        self._totals = totals
        self._live = live
        self._life: Life | None = None
        self._known_to = 0
        """The newest number that an earlier audit saw of the job; 0 where it knew nothing."""
        self._known_since = 0
        """The number of the enqueue that it saw."""
        self._is_leased = False
        self._slot_key: str | None = None
        self._row: Row = {}
        self._seen: tuple[int, int] = (0, 0)
        """The number of the newest event, and its place in that."""
        self._out: list[Entry] = []

    def follow(self, rows: Iterator[Row]) -> list[Entry]:
        """All rows of the job, in their order."""
        for row in rows:
            self._row = row
            if row.get("packed") is not None:
                self._remember(row)
                continue
            is_first = row["place"] == 0
            self._totals.events += is_first
            # The same event may have been read twice: what it says of its job counts once.
            if row["seq"] is not None:
                seen, self._seen = self._seen, (row["seq"], row["place"])
                if self._seen <= seen:
                    if row["seq"] <= self._known_to and is_first:
                        self._add(Kind.BREACH, name=str(Rule.SEQ_TWICE), text="was read by an earlier audit")
                    continue
            event = _event(row)
            if event is None:
                self._lose(row, is_first=is_first)
            else:
                self._take(row, event, is_first=is_first)
        self._end()
        return self._out

    def _remember(self, row: Row) -> None:
        self._known_to = row["seq"]
        self._seen = (row["seq"], sys.maxsize)
        self._life = _UNPACK(row["packed"])
        self._known_since = self._life.since
        # It was counted as live where it was left.
        if self._life.state is not None and self._life.state not in ENDED:
            self._live[self._life.state] -= 1

    def _take(self, row: Row, event: Event, *, is_first: bool) -> None:
        before, held = self._life, self._hold()
        is_cut = self._wanted.is_cut(row["tenant"], row["queue"])
        if row["is_bulk"]:
            self._totals.moves[event.move] += is_first
            if row["job"] is None:
                return
            broken = remove(before, event.move, self._totals, is_cut=is_cut)
            if broken is not None:
                self._tell(broken[0], event, broken[1])
            self._life = None
        elif row["job"] is None:
            self._totals.moves[event.move] += 1
            self._tell(Rule.TABLE, event, f"{event.move} of no job")
            return
        else:
            self._life = advance(before, event, self._tell, self._totals, is_cut=is_cut)
        life = self._life
        if held is not None and (life is not before or event.target in ENDED):
            self._free(held, event.seq)
        if life is not None and event.target in ENDED:
            life.idempotency_key = None
        if event.move is Move.ENQUEUE and event.schedule is not None and event.instant is not None:
            self._add(Kind.INSTANT, text=event.schedule, number=event.instant)
        if self._wanted.is_limited:
            self._step(event, is_removed=life is None)

    def _lose(self, row: Row, *, is_first: bool) -> None:
        if is_first:
            says = f"an event that cannot be read, with the move {row['move'] or 'none'}"
            job = None if row["is_bulk"] else row["job"]
            self._add(Kind.BREACH, name=str(Rule.UNKNOWN), text=says, job=job)
            self._totals.unknown += 1
        if row["job"] is None:
            return
        held = self._hold()
        if held is not None:
            self._free(held, row["seq"])
        if self._life is not None:
            self._life.idempotency_key = None
            lose(self._life, None if row["is_bulk"] else row["version"], self._totals)
        self._leave()

    def _end(self) -> None:
        life, row = self._life, self._row
        if row["job"] is None:
            return
        held = self._hold()
        if held is not None:
            self._free(held, None)
        if life is not None and life.state is not None and life.state not in ENDED:
            self._live[life.state] += 1
        if self._wanted.is_compared and (life is not None or self._wanted.starts):
            name = None if life is None or life.state is None else str(life.state)
            self._add(Kind.LEFT, name=name, number=None if life is None else 1)
        if self._wanted.is_kept and (life is not None or self._known_to):
            packed = None if life is None else _PACK(life)
            text, number = held or (None, None)
            self._add(Kind.LIFE, packed=packed, text=text, number=number)

    def _hold(self) -> tuple[str, int] | None:
        """The idempotency key that the job has, and since which event."""
        life = self._life
        if life is None or life.idempotency_key is None:
            return None
        return life.idempotency_key, life.since

    def _free(self, held: tuple[str, int], seq: int | None) -> None:
        key, since = held
        name = KNOWN if since == self._known_since else None
        self._add(Kind.HOLD, text=key, seq=since, number=seq, name=name)

    def _step(self, event: Event, *, is_removed: bool) -> None:
        """Take down when a lease begins or ends to count against limits."""
        key = self._row["key"]
        if event.move is Move.CLAIM and not is_removed:
            self._add(
                Kind.STEP, name=str(Move.CLAIM), text=key, number=0 if self._is_leased else 1, at=event.at
            )
            self._is_leased, self._slot_key = True, key
        elif is_removed or event.target is not State.ACTIVE:
            self._leave()
        if event.move is Move.ENQUEUE and not self._row["is_bulk"] and key is None:
            self._add(Kind.KEYLESS, at=event.at)

    def _leave(self) -> None:
        if self._is_leased:
            self._add(Kind.STEP, text=self._slot_key, number=-1, at=self._row["at"])
        self._is_leased = False

    def _tell(self, rule: Rule, event: Event, says: str) -> None:
        self._add(Kind.BREACH, name=str(rule), text=says)

    def _add(self, kind: Kind, **values: Any) -> None:
        row = self._row
        named = {name: row[name] for name in ("life", "tenant", "queue", "job", "seq")}
        self._out.append({"kind": kind, **named, **values})


def _event(row: Row) -> Event | None:
    """The event of a row; None where it cannot be read."""
    move = _MOVES.get(row["move"])
    try:
        source, target = _STATES[row["source"]], _STATES[row["target"]]
    except KeyError:
        return None
    if not row["is_read"] or move is None or row["at"] is None or row["seq"] is None:
        return None
    return Event(
        v=EVENT_VERSION,
        tenant=row["tenant"],
        queue=row["queue"],
        seq=row["seq"],
        move=move,
        at=row["at"],
        job=row["job"],
        version=row["version"],
        drive=row["drive"],
        source=source,
        target=target,
        delivery=row["delivery"],
        attempt=row["attempt"],
        fence=row["fence"],
        worker=row["worker"],
        deadline=row["deadline"],
        visible_at=row["visible_at"],
        reason=NO_HANDLER if row["is_unhandled"] else None,
        schedule=row["schedule"],
        instant=row["instant"],
        idempotency_key=row["idempotency_key"],
        max_attempts=row["max_attempts"],
    )
