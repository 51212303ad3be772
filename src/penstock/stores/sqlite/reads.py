"""Looking into the file without touching it."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import ExpiredLease, Job, QueueRef
from penstock.core.states import State
from penstock.stores.protocol import (
    MAX_LEASE_MS,
    RECOVER_LIMIT,
    Finding,
    HeldLease,
    Page,
    Pause,
    Query,
    QueueInfo,
    StoreInfo,
)
from penstock.stores.sqlite.check import findings
from penstock.stores.sqlite.records import (
    EVENT_COLUMNS,
    EXPIRED_COLUMNS,
    JOB_COLUMNS,
    event_from,
    expired_of,
    job_of,
)
from penstock.stores.sqlite.turn import HELD_BACK_US, encode

if TYPE_CHECKING:
    from penstock.stores.sqlite.engine import Engine

T = TypeVar("T")

_QUEUE: Final = "(SELECT n FROM queue WHERE tenant = :tenant AND name = :name)"

_AHEAD: Final = """
SELECT count(*)
FROM queue
JOIN job AS mine ON mine.queue = queue.n AND mine.id = :job
JOIN job AS other ON other.queue = queue.n AND other.state = 'pending'
WHERE queue.tenant = :tenant AND queue.name = :name
    AND (other.priority > mine.priority OR (other.priority = mine.priority AND other.place < mine.place))
"""


class SqliteReads:
    """The reading half of the store."""

    _engine: "Engine"

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        """The records, None where there is none."""

        def work(connection: sqlite3.Connection) -> list[Job | None]:
            rows = connection.execute(
                f"SELECT {JOB_COLUMNS} FROM job WHERE queue = {_QUEUE} "  # noqa: S608 (constants)
                "AND id IN (SELECT value FROM json_each(:ids))",
                {**_named(queue), "ids": encode(ids)},
            )
            jobs = {job.id: job for job in (job_of(queue, row) for row in rows)}
            return [jobs.get(each) for each in ids]

        return await self._read(work)

    async def find(self, queue: QueueRef, query: Query) -> Page:
        """A page of jobs, newest first."""
        by_end = bool(query.states) and all(state.is_ended for state in query.states)
        age = "ended_at" if by_end else "enqueued_at"
        clauses, params = [f"queue = {_QUEUE}"], _named(queue)
        if query.states:
            names = sorted(query.states)
            clauses.append("state IN (" + ", ".join(f":state{i}" for i in range(len(names))) + ")")
            params |= {f"state{i}": str(name) for i, name in enumerate(names)}
        if query.task is not None:
            clauses.append("task = :task")
            params["task"] = query.task
        if query.after is not None:
            at, _, last = query.after.partition("/")
            clauses.append(f"({age}, id) < (:at, :last)")
            params |= {"at": int(at), "last": last}

        def work(connection: sqlite3.Connection) -> Page:
            rows = connection.execute(
                f"SELECT {JOB_COLUMNS} FROM job WHERE {' AND '.join(clauses)} "  # noqa: S608 (constants)
                f"ORDER BY {age} DESC, id DESC LIMIT :limit",
                {**params, "limit": query.limit + 1},
            ).fetchall()
            jobs = [job_of(queue, row) for row in rows[: query.limit]]
            if len(rows) <= query.limit or not jobs:
                return Page(jobs)
            last = jobs[-1]
            return Page(jobs, f"{(last.ended_at or 0) if by_end else last.enqueued_at}/{last.id}")

        return await self._read(work)

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state."""

        def work(connection: sqlite3.Connection) -> dict[State, int]:
            rows = connection.execute(
                f"SELECT state, count(*) FROM job WHERE queue = {_QUEUE} GROUP BY state",  # noqa: S608 (constants)
                _named(queue),
            )
            return dict.fromkeys(State, 0) | {State(state): count for state, count in rows}

        return await self._read(work)

    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs will be claimed before this one."""

        def work(connection: sqlite3.Connection) -> int:
            row = connection.execute(_AHEAD, {**_named(queue), "job": job}).fetchone()
            return int(row[0])

        return await self._read(work)

    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        """Leases that ran out, oldest first."""
        return await self._read(
            lambda connection: read_expired(connection, queue, self.read_now(connection, queue), limit)
        )

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        """Leases of the queue, or those of one worker."""

        def work(connection: sqlite3.Connection) -> list[HeldLease]:
            rows = connection.execute(
                f"SELECT id, token, worker, deadline FROM job WHERE queue = {_QUEUE} "  # noqa: S608 (constants)
                "AND state = 'active' AND (:worker IS NULL OR worker = :worker) ORDER BY deadline",
                {**_named(queue), "worker": worker},
            )
            return [HeldLease(*row) for row in rows]

        return await self._read(work)

    async def queue(self, queue: QueueRef) -> QueueInfo | None:
        """The queue, if there is one."""
        return await self._read(lambda connection: read_queue(connection, queue))

    async def queues(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""

        def work(connection: sqlite3.Connection) -> list[QueueInfo]:
            rows = connection.execute(
                "SELECT name FROM queue WHERE tenant = ? ORDER BY name", (tenant,)
            ).fetchall()
            infos = (read_queue(connection, QueueRef(tenant, name)) for (name,) in rows)
            return [info for info in infos if info is not None]

        return await self._read(work)

    async def events(self, queue: QueueRef, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Events with a higher number."""

        def work(connection: sqlite3.Connection) -> list[Event]:
            row = connection.execute(
                "SELECT n, trimmed FROM queue WHERE tenant = :tenant AND name = :name", _named(queue)
            ).fetchone()
            if row is None:
                return []
            number, trimmed = row
            if after < trimmed:
                raise CursorLostError(f"events {after + 1} to {trimmed} of queue {queue} were trimmed")
            rows = connection.execute(
                f"SELECT {EVENT_COLUMNS} FROM event "  # noqa: S608 (constants)
                "WHERE queue = ? AND seq > ? ORDER BY seq LIMIT ?",
                (number, after, limit),
            )
            return [event_from(queue, row) for row in rows]

        return await self._read(work)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest."""

        def work(connection: sqlite3.Connection) -> tuple[int, int]:
            row = connection.execute(
                "SELECT trimmed + 1, seq FROM queue WHERE tenant = :tenant AND name = :name", _named(queue)
            ).fetchone()
            return (1, 0) if row is None else (row[0], row[1])

        return await self._read(work)

    async def now(self) -> int:
        """Unix milliseconds by the host's clock and the offset in the file."""
        return await self._read(lambda connection: host_us(connection) // 1000)

    async def info(self) -> StoreInfo:
        """What this store is."""

        def work(connection: sqlite3.Connection) -> StoreInfo:
            return StoreInfo(
                kind="sqlite",
                url=f"sqlite:///{self._engine.path}",
                durability=self._engine.durability,
                server_version=f"SQLite {sqlite3.sqlite_version}",
                schema_version=self._engine.schema_version,
                clock_offset_ms=_offset_ms(connection),
            )

        return await self._read(work)

    async def check(self, queue: QueueRef) -> list[Finding]:
        """Records and indexes agree, counts add up."""
        return await self._read(lambda connection: findings(connection, queue))

    def read_now(self, connection: sqlite3.Connection, queue: QueueRef) -> int:
        """The time that a turn on this queue would have."""
        host = host_us(connection)
        row = connection.execute(
            "SELECT at_us FROM queue WHERE tenant = :tenant AND name = :name", _named(queue)
        ).fetchone()
        last = 0 if row is None else row[0]
        return int(last if 0 < last - host < HELD_BACK_US else host) // 1000

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._call(self._engine.read(work))

    async def _call(self, future: "Future[T]") -> T:
        return await asyncio.wrap_future(future)


def read_queue(connection: sqlite3.Connection, queue: QueueRef) -> QueueInfo | None:
    """The queue, if there is one."""
    row = connection.execute(
        "SELECT number, paused_at, pause_reason, pause_by, paused_until FROM queue "
        "WHERE tenant = :tenant AND name = :name",
        _named(queue),
    ).fetchone()
    if row is None:
        return None
    number, *pause = row
    return QueueInfo(queue, number, None if pause[0] is None else Pause(*pause))


def read_expired(connection: sqlite3.Connection, queue: QueueRef, now: int, limit: int) -> list[ExpiredLease]:
    """Leases that ran out, oldest first; also those that end later than any lease may."""
    rows = connection.execute(
        f"SELECT {EXPIRED_COLUMNS} FROM job WHERE queue = {_QUEUE} AND state = 'active' "  # noqa: S608 (constants)
        "AND (deadline <= :now OR deadline > :now + :lease_limit) ORDER BY deadline, id LIMIT :limit",
        {**_named(queue), "now": now, "limit": limit, "lease_limit": MAX_LEASE_MS},
    )
    return [expired_of(row) for row in rows]


def any_expired(connection: sqlite3.Connection, queue: QueueRef, now: int) -> bool:
    """True when a lease ran out; two looks at the ends of an index."""
    params = {**_named(queue), "now": now, "lease_limit": MAX_LEASE_MS}
    row = connection.execute(_ANY_EXPIRED, params).fetchone()
    return row is not None and bool(row[0])


def next_due(connection: sqlite3.Connection, queue: QueueRef, now: int) -> int | None:
    """When something next becomes due in the queue: a delayed job, a lease, the end of a pause."""
    row = connection.execute(_NEXT_DUE, {**_named(queue), "now": now}).fetchone()
    due = [at for at in row or () if at is not None]
    return min(due) if due else None


_ANY_EXPIRED: Final = """
SELECT
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active') <= :now
    OR (SELECT max(deadline) FROM job WHERE job.queue = queue.n AND state = 'active') > :now + :lease_limit
FROM queue WHERE tenant = :tenant AND name = :name
"""

_NEXT_DUE: Final = """
SELECT
    (SELECT min(visible_at) FROM job WHERE job.queue = queue.n AND state = 'delayed'),
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active'),
    iif(paused_until > :now, paused_until, NULL)
FROM queue WHERE tenant = :tenant AND name = :name
"""


def host_us(connection: sqlite3.Connection) -> int:
    """The host's clock with the offset in the file, in microseconds."""
    return time.time_ns() // 1000 + _offset_ms(connection) * 1000


def _offset_ms(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM meta WHERE name = 'clock_offset_ms'").fetchone()[0])


def _named(queue: QueueRef) -> dict[str, Any]:
    return {"tenant": queue.tenant, "name": queue.name}
