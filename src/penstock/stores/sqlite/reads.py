"""Looking into the file without touching it."""

import sqlite3
from collections.abc import Sequence
from typing import Final, TypeVar

from penstock.core.job import ExpiredLease, Job, QueueRef
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RECOVER_LIMIT
from penstock.stores.rows import (
    JOB_COLUMNS,
    encode,
    stored,
)
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.claims import read_expired
from penstock.stores.sqlite.clock import read_now
from penstock.stores.sqlite.codec import job_or_error, job_or_none
from penstock.stores.sqlite.quarantine import set_aside
from penstock.stores.sqlite.queues import named, read_queue
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import (
    HeldLease,
    KeyHolder,
    Page,
    Query,
)

T = TypeVar("T")
_COLUMNS: Final = JOB_COLUMNS.split(", ")

_QUEUE: Final = "(SELECT n FROM queue WHERE tenant = :tenant AND name = :name)"
_COUNTS: Final = f"SELECT state, many FROM job_count WHERE queue = {_QUEUE}"  # noqa: S608 (constants)

_KEY_HOLDERS: Final = """
SELECT held.key, held.job, nullif(job.state, 'quarantined'), held.digest
FROM queue
CROSS JOIN json_each(:keys) AS item
CROSS JOIN idempotency AS held ON held.queue = queue.n AND held.key = item.value
LEFT JOIN job ON job.queue = queue.n AND job.id = held.job AND held.until IS NULL
WHERE queue.tenant = :tenant AND queue.name = :name AND (held.until IS NULL OR held.until > :now)
"""

_AHEAD: Final = """
SELECT count(*)
FROM queue
JOIN job AS mine ON mine.queue = queue.n AND mine.id = :job
JOIN job AS other ON other.queue = queue.n AND other.state = 'pending'
WHERE queue.tenant = :tenant AND queue.name = :name
    AND (other.priority > mine.priority OR (other.priority = mine.priority AND other.place < mine.place))
"""

_AHEAD_IN_KEY: Final = """
SELECT count(*)
FROM queue
JOIN job AS mine ON mine.queue = queue.n AND mine.id = :job
JOIN job AS other ON other.queue = queue.n AND other.state = 'pending' AND other.key = mine.key
WHERE queue.tenant = :tenant AND queue.name = :name AND other.place < mine.place
"""

_OLDEST: Final = """
SELECT min((
    SELECT enqueued_at FROM job
    WHERE job.queue = queue.n AND job.state = 'pending' AND job.priority = tier.value
    ORDER BY job.place LIMIT 1
))
FROM queue
CROSS JOIN json_each('[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]') AS tier
WHERE queue.tenant = :tenant AND queue.name = :name
"""


class SqliteReads:
    """Looks at the jobs of a queue."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        """The records, None where there is none."""

        def work(connection: sqlite3.Connection) -> list[Job | None]:
            rows = fetch(
                connection,
                f"SELECT {JOB_COLUMNS} FROM job WHERE queue = {_QUEUE} "  # noqa: S608 (constants)
                "AND id IN (SELECT value FROM json_each(:ids)) AND state <> 'quarantined'",
                {**named(queue), "ids": encode(ids)},
            )
            jobs = {job.id: job for job in (job_or_error(queue, row) for row in rows)}
            return [jobs.get(each) for each in ids]

        return await self._backend.read(work)

    async def find(self, queue: QueueRef, query: Query) -> Page:
        """A page of jobs, newest first unless the query says otherwise."""
        age = "ended_at" if query.is_by_end else "enqueued_at"
        order, beyond = ("ASC", ">") if query.oldest_first else ("DESC", "<")
        columns = JOB_COLUMNS
        if not query.payloads:
            columns = columns.replace("payload", "'' AS payload")
        if not query.results:
            columns = columns.replace("result", "NULL AS result")
        clauses, params = [f"queue = {_QUEUE}", "state <> 'quarantined'"], named(queue)
        if query.states:
            names = sorted(query.states)
            clauses.append("state IN (" + ", ".join(f":state{i}" for i in range(len(names))) + ")")
            params |= {f"state{i}": str(name) for i, name in enumerate(names)}
        if query.task is not None:
            clauses.append("task = :task")
            params["task"] = query.task
        if query.key is not None:
            clauses.append("key = :key")
            params["key"] = stored(query.key)
        if query.since is not None:
            clauses.append(f"{age} >= :since")
            params["since"] = query.since
        if query.after is not None:
            at, _, last = query.after.partition("/")
            clauses.append(f"({age}, id) {beyond} (:at, :last)")
            params |= {"at": int(at), "last": last}

        def work(connection: sqlite3.Connection) -> Page:
            rows = fetch(
                connection,
                f"SELECT {columns} FROM job WHERE {' AND '.join(clauses)} "  # noqa: S608 (constants)
                f"ORDER BY {age} {order}, id {order} LIMIT :limit",
                {**params, "limit": query.limit + 1},
            )
            # One that cannot be read is passed over: the store's check names it.
            read = [job_or_none(queue, row) for row in rows[: query.limit]]
            jobs = [job for job in read if job is not None]
            if len(rows) <= query.limit or not read:
                return Page(jobs)
            last = rows[query.limit - 1]
            return Page(jobs, f"{last[_COLUMNS.index(age)] or 0}/{last[_COLUMNS.index('id')]}")

        return await self._backend.read(work)

    async def live_states(self, queue: QueueRef, after: str, limit: int) -> list[tuple[str, State]]:
        """The next live jobs behind an id, with their states."""

        def work(connection: sqlite3.Connection) -> list[tuple[str, State]]:
            rows = fetch(
                connection,
                f"SELECT id, state FROM job WHERE queue = {_QUEUE} AND id > :after "  # noqa: S608 (constants)
                "AND state IN ('blocked', 'pending', 'delayed', 'active') ORDER BY id LIMIT :limit",
                {**named(queue), "after": after, "limit": limit},
            )
            # An id that is no text is passed over: the store's check names it.
            return [(job, State(state)) for job, state in rows if isinstance(job, str)]

        return await self._backend.read(work)

    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        """Which job holds each idempotency key now."""

        def work(connection: sqlite3.Connection) -> list[KeyHolder | None]:
            values = {"keys": encode([stored(key) for key in keys]), "now": read_now(connection, queue)}
            rows = connection.execute(_KEY_HOLDERS, {**named(queue), **values})
            found = {
                key: KeyHolder(job, None if state is None else State(state), digest)
                for key, job, state, digest in rows
            }
            return [found.get(stored(key)) for key in keys]

        return await self._backend.read(work)

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state, as triggers on the rows keep them."""

        def work(connection: sqlite3.Connection) -> dict[State, int]:
            rows = connection.execute(_COUNTS, named(queue))
            return dict.fromkeys(State, 0) | {State(state): many for state, many in rows}

        return await self._backend.read(work)

    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs, of its key where keys take turns, will be claimed before this one."""

        def work(connection: sqlite3.Connection) -> int:
            info = read_queue(connection, queue)
            sql = _AHEAD_IN_KEY if info is not None and info.mode.has_keys else _AHEAD
            row = connection.execute(sql, {**named(queue), "job": job}).fetchone()
            return int(row[0])

        return await self._backend.read(work)

    async def oldest(self, queue: QueueRef) -> int | None:
        """When the first of the pending jobs was enqueued."""

        def work(connection: sqlite3.Connection) -> int | None:
            (at,) = connection.execute(_OLDEST, named(queue)).fetchone()
            return None if at is None else int(at)

        return await self._backend.read(work)

    @answers_absent
    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        """Leases that ran out, oldest first; those of jobs that cannot be read are set aside."""
        leases, damages = await self._backend.read(
            lambda connection: read_expired(connection, queue, read_now(connection, queue), limit)
        )
        if damages:
            await self._backend.transact(
                queue, lambda transaction: set_aside(transaction, damages), creates=False
            )
        return leases

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        """Leases of the queue, or those of one worker."""

        def work(connection: sqlite3.Connection) -> list[HeldLease]:
            rows = connection.execute(
                f"SELECT id, token, worker, deadline FROM job WHERE queue = {_QUEUE} "  # noqa: S608 (constants)
                "AND state = 'active' AND (:worker IS NULL OR worker = :worker) ORDER BY deadline",
                {**named(queue), "worker": worker},
            )
            return [HeldLease(*row) for row in rows]

        return await self._backend.read(work)
