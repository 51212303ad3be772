"""Looking into the file without touching it."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from penstock.core.clocks import ClockStep
from penstock.core.job import ExpiredLease, Job, QueueRef
from penstock.core.limits import Mode
from penstock.core.states import State
from penstock.stores.damaged import READING, DamagedRow, unreadable_record
from penstock.stores.rows import (
    EXPIRED_COLUMNS,
    JOB_COLUMNS,
    declaration_of,
    encode,
    expired_of,
    restored,
    stored,
)
from penstock.stores.sqlite.check import findings
from penstock.stores.sqlite.clock import FAR_LEASE, LEASE_PARAMS, STEPPED, host_us, offset_ms, read_now
from penstock.stores.sqlite.records import job_or_error, job_or_none
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.sqlite.turns import Turns
from penstock.stores.values import (
    Finding,
    HeldLease,
    KeyHolder,
    KeyInfo,
    Page,
    Pause,
    Query,
    QueueInfo,
    StoreInfo,
)

T = TypeVar("T")
_COLUMNS: Final = JOB_COLUMNS.split(", ")

_QUEUE: Final = "(SELECT n FROM queue WHERE tenant = :tenant AND name = :name)"
# Grouped by state, all jobs would be sorted in memory first.
_EACH: Final = ", ".join(f"count(CASE WHEN state = '{state}' THEN 1 END)" for state in State)
_COUNTS: Final = f"SELECT {_EACH} FROM job WHERE queue = {_QUEUE}"  # noqa: S608 (constants)

_KEYS: Final = """
WITH q AS (SELECT n FROM queue WHERE tenant = :tenant AND name = :name),
used AS (
    SELECT key FROM job WHERE queue = (SELECT n FROM q) AND state = 'pending' AND key IS NOT NULL
    UNION SELECT key FROM job WHERE queue = (SELECT n FROM q) AND state = 'active' AND key IS NOT NULL
    UNION SELECT key FROM key_rule WHERE queue = (SELECT n FROM q)
)
SELECT
    used.key,
    (SELECT count(*) FROM job WHERE queue = (SELECT n FROM q) AND job.key = used.key AND state = 'pending'),
    (SELECT count(*) FROM job WHERE queue = (SELECT n FROM q) AND job.key = used.key AND state = 'active'),
    coalesce(iif(:dynamic, rule.max_active, NULL), :key_limit), coalesce(rule.weight, 1), lane.held_until
FROM used
LEFT JOIN key_rule AS rule ON rule.queue = (SELECT n FROM q) AND rule.key = used.key
LEFT JOIN lane ON lane.queue = (SELECT n FROM q) AND lane.key = used.key
ORDER BY used.key LIMIT :limit
"""

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


class SqliteReads(Turns):
    """The reading half of the store."""

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        """The records, None where there is none."""

        def work(connection: sqlite3.Connection) -> list[Job | None]:
            rows = fetch(
                connection,
                f"SELECT {JOB_COLUMNS} FROM job WHERE queue = {_QUEUE} "  # noqa: S608 (constants)
                "AND id IN (SELECT value FROM json_each(:ids)) AND state <> 'quarantined'",
                {**_named(queue), "ids": encode(ids)},
            )
            jobs = {job.id: job for job in (job_or_error(queue, row) for row in rows)}
            return [jobs.get(each) for each in ids]

        return await self._read(work)

    async def find(self, queue: QueueRef, query: Query) -> Page:
        """A page of jobs, newest first unless the query says otherwise."""
        age = "ended_at" if query.is_by_end else "enqueued_at"
        order, beyond = ("ASC", ">") if query.oldest_first else ("DESC", "<")
        columns = JOB_COLUMNS
        if not query.payloads:
            columns = columns.replace("payload", "'' AS payload")
        if not query.results:
            columns = columns.replace("result", "NULL AS result")
        clauses, params = [f"queue = {_QUEUE}", "state <> 'quarantined'"], _named(queue)
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

        return await self._read(work)

    async def live_states(self, queue: QueueRef, after: str, limit: int) -> list[tuple[str, State]]:
        """The next live jobs behind an id, with their states."""

        def work(connection: sqlite3.Connection) -> list[tuple[str, State]]:
            rows = fetch(
                connection,
                f"SELECT id, state FROM job WHERE queue = {_QUEUE} AND id > :after "  # noqa: S608 (constants)
                "AND state IN ('blocked', 'pending', 'delayed', 'active') ORDER BY id LIMIT :limit",
                {**_named(queue), "after": after, "limit": limit},
            )
            # An id that is no text is passed over: the store's check names it.
            return [(job, State(state)) for job, state in rows if isinstance(job, str)]

        return await self._read(work)

    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        """Which job holds each idempotency key now."""

        def work(connection: sqlite3.Connection) -> list[KeyHolder | None]:
            values = {"keys": encode([stored(key) for key in keys]), "now": read_now(connection, queue)}
            rows = connection.execute(_KEY_HOLDERS, {**_named(queue), **values})
            found = {
                key: KeyHolder(job, None if state is None else State(state), digest)
                for key, job, state, digest in rows
            }
            return [found.get(stored(key)) for key in keys]

        return await self._read(work)

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state."""

        def work(connection: sqlite3.Connection) -> dict[State, int]:
            row = connection.execute(_COUNTS, _named(queue)).fetchone()
            return dict(zip(State, row, strict=True))

        return await self._read(work)

    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs, of its key where keys take turns, will be claimed before this one."""

        def work(connection: sqlite3.Connection) -> int:
            info = read_queue(connection, queue)
            sql = _AHEAD_IN_KEY if info is not None and info.mode.has_keys else _AHEAD
            row = connection.execute(sql, {**_named(queue), "job": job}).fetchone()
            return int(row[0])

        return await self._read(work)

    async def oldest(self, queue: QueueRef) -> int | None:
        """When the first of the pending jobs was enqueued."""

        def work(connection: sqlite3.Connection) -> int | None:
            (at,) = connection.execute(_OLDEST, _named(queue)).fetchone()
            return None if at is None else int(at)

        return await self._read(work)

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

    async def keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""

        def work(connection: sqlite3.Connection) -> list[KeyInfo]:
            info = read_queue(connection, queue)
            if info is None or info.declaration is None or not info.mode.has_keys:
                return []
            params = {**_named(queue), "key_limit": info.declaration.key_limit, "limit": limit}
            params["dynamic"] = info.mode is Mode.DYNAMIC
            return [KeyInfo(restored(key) or "", *rest) for key, *rest in connection.execute(_KEYS, params)]

        return await self._read(work)

    async def queues(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""

        def work(connection: sqlite3.Connection) -> list[QueueInfo]:
            rows = connection.execute(f"{_INFO} WHERE tenant = ? ORDER BY name", (tenant,))
            return [_info(tenant, *row) for row in rows]

        return await self._read(work)

    async def tenants(self) -> list[str]:
        """The tenants that have queues, by name."""
        found = await self._read(
            lambda connection: connection.execute("SELECT DISTINCT tenant FROM queue").fetchall()
        )
        return sorted(tenant for (tenant,) in found)

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
                clock_offset_ms=offset_ms(connection),
            )

        return await self._read(work)

    async def check(self, queue: QueueRef) -> list[Finding]:
        """Records and indexes agree, counts add up."""
        return await self._read(lambda connection: findings(connection, queue))


def read_queue(connection: sqlite3.Connection, queue: QueueRef) -> QueueInfo | None:
    """The queue, if there is one."""
    row = connection.execute(f"{_INFO} WHERE tenant = :tenant AND name = :name", _named(queue)).fetchone()
    return None if row is None else _info(queue.tenant, *row)


def _info(
    tenant: str,
    name: str,
    number: int,
    made: str,
    declaration: str | None,
    arrival_us: int,
    step_at: int | None,
    step_back_ms: int,
    *pause: Any,
) -> QueueInfo:
    return QueueInfo(
        QueueRef(tenant, name),
        number,
        None if pause[0] is None else Pause(*pause),
        None if declaration is None else declaration_of(declaration),
        made,
        arrival_us,
        None if step_at is None else ClockStep(step_at, step_back_ms),
    )


def read_expired(
    connection: sqlite3.Connection, queue: QueueRef, now: int, limit: int
) -> tuple[list[ExpiredLease], list[DamagedRow]]:
    """Leases that ran out, oldest first, also those that end later than any lease may; and damaged ones."""
    rows = fetch(
        connection,
        f"SELECT {EXPIRED_COLUMNS} FROM job WHERE queue = {_QUEUE} AND state = 'active' "  # noqa: S608 (constants)
        f"AND (deadline <= :now OR {FAR_LEASE}) ORDER BY deadline, id LIMIT :limit",
        {**_named(queue), **LEASE_PARAMS, "now": now, "limit": limit},
    )
    info = read_queue(connection, queue)
    keyed = info is not None and info.mode.has_keys
    leases: list[ExpiredLease] = []
    damages: list[DamagedRow] = []
    for row in rows:
        try:
            leases.append(expired_of(row, keyed=keyed))
        except READING as error:
            damages.append((str(row[0]), unreadable_record(error)))
    return leases, damages


def any_expired(connection: sqlite3.Connection, queue: QueueRef, now: int) -> bool:
    """True when a lease ran out; one look at the end of an index, unless the clock was set back."""
    params = {**_named(queue), **LEASE_PARAMS, "now": now}
    row = connection.execute(_ANY_EXPIRED, params).fetchone()
    return row is not None and bool(row[0])


def next_due(connection: sqlite3.Connection, queue: QueueRef, now: int) -> int | None:
    """When something next becomes due in the queue: a delayed job, a lease, the end of a pause."""
    row = connection.execute(_NEXT_DUE, {**_named(queue), "now": now}).fetchone()
    due = [at for at in row or () if at is not None]
    return min(due) if due else None


_INFO: Final = """
SELECT
    name, number, made, declaration, arrival_us, step_at, step_back_ms,
    paused_at, pause_reason, pause_by, paused_until
FROM queue
"""

_ANY_EXPIRED: Final = f"""
SELECT
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active') <= :now
    OR (
        {STEPPED}
        AND EXISTS (SELECT 1 FROM job WHERE job.queue = queue.n AND state = 'active' AND {FAR_LEASE})
    )
FROM queue WHERE tenant = :tenant AND name = :name
"""  # noqa: S608 (constants)

_NEXT_DUE: Final = """
SELECT
    (SELECT min(visible_at) FROM job WHERE job.queue = queue.n AND state = 'delayed'),
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active'),
    iif(paused_until > :now, paused_until, NULL),
    (SELECT min(held_until) FROM lane WHERE lane.queue = queue.n AND held_until IS NOT NULL)
FROM queue WHERE tenant = :tenant AND name = :name
"""


def _named(queue: QueueRef) -> dict[str, Any]:
    return {"tenant": queue.tenant, "name": queue.name}
