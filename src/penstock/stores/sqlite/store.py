"""The SQLite store: every call one turn on one queue, joined with others into one transaction."""

import asyncio
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from itertools import groupby
from pathlib import Path
from typing import ClassVar, TypeVar

from penstock.core.clocks import is_floor_ignored
from penstock.core.errors import OptionError
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table
from penstock.stores.absent import answers_absent
from penstock.stores.bells import Belfry
from penstock.stores.bounds import PROMOTE_LIMIT, PRUNE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.projection import ProjectedTime
from penstock.stores.protocol import Bell, QueueBell
from penstock.stores.rows import encode, expire_item, settlement_item, stored
from penstock.stores.sqlite.claimable import SqliteClaimable
from penstock.stores.sqlite.claims import claim, recover
from penstock.stores.sqlite.clock import read_now
from penstock.stores.sqlite.deletion import SqliteDeletion
from penstock.stores.sqlite.due import SqliteDue
from penstock.stores.sqlite.engine import Engine
from penstock.stores.sqlite.enqueue import enqueue
from penstock.stores.sqlite.flows import SqliteFlows
from penstock.stores.sqlite.kept import SqliteKept
from penstock.stores.sqlite.log import SqliteLog
from penstock.stores.sqlite.quarantine import SqliteQuarantine
from penstock.stores.sqlite.reads import SqliteReads, any_expired, next_due, read_queue
from penstock.stores.sqlite.schedules import SqliteSchedules
from penstock.stores.sqlite.sources import cut, load_sources
from penstock.stores.sqlite.turn import Turn, open_queue
from penstock.stores.sqlite.watch import Watch
from penstock.stores.values import Durability, Pause, QueueInfo, Spawn, Topic
from penstock.stores.worker_entries import WorkerEntries

T = TypeVar("T")


class SqliteStore(
    SqliteReads,
    SqliteDue,
    SqliteClaimable,
    SqliteLog,
    SqliteFlows,
    SqliteSchedules,
    SqliteKept,
    SqliteDeletion,
    SqliteQuarantine,
    WorkerEntries,
):
    """A store in one file. `sources` and `table` replace the SQL files and the table of moves; for tests."""

    keeps_call_order: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = False

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = Durability.POWER,
        patience: float = 60.0,
        sources: dict[str, str] | None = None,
        table: Table = TABLE,
    ) -> None:
        if durability not in {Durability.POWER, Durability.SERVER}:
            raise OptionError("durability", str(durability), "power or server")
        self._engine = Engine(Path(path), Durability(durability), patience)
        self._sql = cut(load_sources() if sources is None else sources)
        self._table = table
        self._belfry = Belfry()
        self._projected = ProjectedTime()
        self._watch = Watch(self._engine, self._belfry)
        self._users = 0
        self._opening = threading.Lock()

    def files(self) -> list[Path]:
        """The database and what SQLite keeps beside it."""
        path = self._engine.path
        return [each for end in ("", "-wal", "-shm") if (each := path.with_name(path.name + end)).exists()]

    async def open(self) -> None:
        """Open the file, making or migrating it; a store opened twice is closed by the second close."""
        wanted: Future[None] = Future()
        try:
            await asyncio.to_thread(self._open_if, wanted)
        except asyncio.CancelledError:
            # The thread goes on all the same, and closes again what nobody wants; unless it was through.
            if not wanted.cancel():
                await asyncio.to_thread(self._close)
            raise

    def _open_if(self, wanted: "Future[None]") -> None:
        self._open()
        if not wanted.set_running_or_notify_cancel():
            self._close()

    def _open(self) -> None:
        with self._opening:
            if self._users == 0:
                self._engine.open()
                self._watch.start()
            self._users += 1

    async def close(self) -> None:
        """Finish what was handed in and close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._opening:
            if self._users == 1:
                self._watch.stop()
                self._engine.close()
            self._users = max(0, self._users - 1)

    def twin(self) -> "SqliteStore":
        """The store itself: its threads serve every event loop."""
        return self

    # Moves

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in, and leave those of other queues to be carried over."""

        def move(turn: Turn) -> list[Enqueued | Refused]:
            before = turn.events
            out = enqueue(turn, list(jobs), at_door=bool(spawns), mode=mode)
            # A repeated call finds its jobs there, and its spawns were written with them.
            for each in spawns if turn.events > before else ():
                turn.relay(each.queue, "spawn", encode(each.job))
            return out

        return await self._turn(queue, move)

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        """Make due jobs claimable."""
        return await self._turn(queue, lambda turn: _promote(turn, limit), makes=False)

    @answers_absent
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        stand_ms: int = 0,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        """Promote, lease, and name leases that ran out."""
        tokens, floor_us = secrets.token_hex(16 * limit), self._projected.floor_us(floor_us)

        def move(turn: Turn) -> Claims:
            _promote(turn, limits.promote_limit)
            turn.limits.refresh()
            allowed = min(limit, turn.limits.allowance())
            floor = 0 if is_floor_ignored(turn.now_us, floor_us) else floor_us
            jobs, is_more = claim(
                turn, allowed, tokens=tokens, worker=worker, lease_ms=lease_ms, floor_us=floor
            )
            turn.rings.clear()
            opens = turn.limits.use_rate(len(jobs))
            due = [at for at in (next_due(turn.connection, queue, turn.now), opens) if at is not None]
            late = any_expired(turn.connection, queue, turn.now)
            expired = recover(turn, queue, limits.recover_limit) if late else []
            wait = max(0, min(due) - turn.now) if due else None
            return Claims(jobs, expired, wait, is_more, now_us=turn.now_us)

        def peek(connection: sqlite3.Connection) -> Claims | None:
            now = read_now(connection, queue)
            due = next_due(connection, queue, now)
            if (due is not None and due <= now) or any_expired(connection, queue, now):
                return None
            waiting = connection.execute(_ANY_PENDING, (queue.tenant, queue.name)).fetchone()
            return None if waiting else Claims([], [], None if due is None else due - now)

        claims = await self._turn(queue, move, peek, makes=False)
        if claims.now_us:
            self._projected.told(claims.now_us, floor_us)
        return claims

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        """Renew leases."""
        items = [(beat.id, beat.token) for beat in beats]
        return await self._turn(
            queue, lambda turn: turn.apply(Move.HEARTBEAT, items, lease_ms=lease_ms), makes=False
        )

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        """Keep the newest progress."""
        items = [(report.id, report.token, report.value.decode()) for report in reports]
        return await self._turn(queue, lambda turn: turn.apply(Move.PROGRESS, items), makes=False)

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        """End deliveries, in the order given."""
        groups = [
            (move, [settlement_item(each) for each in group])
            for move, group in groupby(settlements, key=lambda settlement: settlement.move)
        ]
        return await self._turn(
            queue,
            lambda turn: [out for move, items in groups for out in turn.apply(move, items)],
            makes=False,
        )

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        """Apply what was decided for leases that ran out."""
        items = [expire_item(expiry) for expiry in expiries]
        return await self._turn(queue, lambda turn: turn.apply(Move.EXPIRE, items), makes=False)

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Take back what waits; ask what runs to stop."""
        return await self._turn(queue, lambda turn: turn.apply(Move.CANCEL, list(ids)), makes=False)

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Give ended jobs a new life."""
        return await self._turn(queue, lambda turn: turn.apply(Move.REDRIVE, list(ids)), makes=False)

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        """Remove jobs that are not running, with one event for all of them."""
        return await self._turn(queue, lambda turn: _delete(turn, list(ids)), makes=False)

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        """Remove ended jobs whose time is over."""

        def move(turn: Turn) -> int:
            gone = turn.pick(Move.PRUNE, limit=limit)
            if gone:
                if turn.has_flows:
                    turn.relay_endings(gone=True)
                turn.tell_once(Move.PRUNE, [job for (job,) in turn.touched("value")])
                turn.run(Move.PRUNE, "keys")
                turn.run(Move.PRUNE, "children")
                turn.run(Move.PRUNE, "change")
            for step in ("forget", "forget_kinds", "forget_rates"):
                turn.run(Move.PRUNE, step)
            return gone

        return await self._turn(queue, move, makes=False)

    # Queues and clock

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        known = await self.queue(queue)
        if known is not None:
            return known

        def make(connection: sqlite3.Connection) -> QueueInfo | None:
            open_queue(connection, queue)
            return read_queue(connection, queue)

        made = await self._call(self._engine.write(make))
        return made or QueueInfo(queue, 0)

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        """Compare with what is stored, and keep what was agreed."""

        def move(turn: Turn) -> QueueInfo | None:
            turn.limits.declare(declaration)
            turn.rings.add(Topic.READY)
            return read_queue(turn.connection, queue)

        return await self._turn(queue, move) or QueueInfo(queue, 0)

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        """Change a key's own limit or weight."""

        def move(turn: Turn) -> None:
            turn.limits.set_key_rule(stored(key) or "", rule)
            turn.rings.add(Topic.READY)

        await self._turn(queue, move)

    async def pause(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        """Stop claims, or let them go on."""

        def move(turn: Turn) -> None:
            turn.pause(pause, None if for_ms is None else turn.now + for_ms)
            turn.rings.add(Topic.READY)

        await self._turn(queue, move)

    async def turn(self, by_ms: int) -> None:
        """Turn the clock; the offset is kept in the file."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE meta SET value = value + ? WHERE name = 'clock_offset_ms'", (by_ms,))

        await self._call(self._engine.write(work))
        self._belfry.ring_all()

    # Wake-ups

    def bell(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Bell]:
        """Rings at once for changes of this process, and within milliseconds for those of others."""
        return self._belfry.hang(queue, topic)

    def queue_bell(self, tenant: str) -> AbstractAsyncContextManager[QueueBell]:
        """As `bell`; it is not known which queues other processes changed."""
        return self._belfry.hang_for_all(tenant)


_ANY_PENDING = """
SELECT 1 FROM job JOIN queue ON job.queue = queue.n
WHERE queue.tenant = ? AND queue.name = ? AND job.state = 'pending' LIMIT 1
"""


def _promote(turn: Turn, limit: int) -> int:
    moved = turn.pick(Move.PROMOTE, limit=limit)
    if moved:
        turn.run(Move.PROMOTE, "change")
        turn.tell(Move.PROMOTE)
        turn.rings.add(Topic.READY)
    return moved


def _delete(turn: Turn, ids: list[str]) -> list[Applied | Refused]:
    out: list[Applied | Refused] = [Refused(Refusal.MISSING)] * len(ids)
    named = list(dict.fromkeys(ids))
    gone = turn.pick(Move.DELETE, items=encode(named))
    for item, source in turn.touched("item, source"):
        out[ids.index(named[item])] = Applied(State(source))
    if gone:
        if turn.has_flows:
            turn.relay_endings(gone=True)
        turn.touch(Move.DELETE)
        turn.run(Move.DELETE, "keys")
        turn.run(Move.DELETE, "children")
        if gone == 1:
            turn.tell_deleted()
        else:
            turn.tell_once(Move.DELETE, [named[item] for (item,) in turn.touched("item")])
        turn.run(Move.DELETE, "change")
    rest = [index for index, each in enumerate(out) if isinstance(each, Refused)]
    for index, refused in zip(rest, turn.refuse(Move.DELETE, [ids[index] for index in rest]), strict=True):
        out[index] = refused
    return out
