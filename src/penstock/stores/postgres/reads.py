"""Reading jobs, counts and leases."""

from collections.abc import Sequence
from typing import Final

from penstock.core.job import ExpiredLease, Job, QueueRef
from penstock.core.states import State
from penstock.stores.bounds import RECOVER_LIMIT
from penstock.stores.corruption import DECODE_ERRORS, CorruptRow, unreadable_record
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.clock import FAR_LEASE
from penstock.stores.postgres.codec import job_or_error, job_or_none
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.engine import Value
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.queues import PostgresQueues
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.sources import in_schema
from penstock.stores.rows import EXPIRED_COLUMNS, JOB_COLUMNS, expired_of, stored
from penstock.stores.values import HeldLease, KeyHolder, Page, Query

_LEASE_MS: Final = (
    "(SELECT job.lease_ms FROM penstock.job WHERE job.queue = $1 AND job.id = record.id) AS lease_ms"
)
"""Only live jobs have a lease."""

_GET: Final = f"""
SELECT {JOB_COLUMNS.replace("lease_ms", _LEASE_MS)}
FROM unnest($2::text[]) AS item (new_id)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.record
    WHERE record.queue = $1 AND record.id = item.new_id AND record.state <> 'quarantined'
    LIMIT 1
) AS record
"""  # noqa: S608 (constants)

_KEY_HOLDERS: Final = """
SELECT held.key, held.job, nullif(theirs.state, 'quarantined'), held.digest
FROM unnest($3::text[]) AS item (key)
CROSS JOIN (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS clock
CROSS JOIN LATERAL (
    SELECT * FROM penstock.idempotency
    WHERE idempotency.queue = $1
        AND idempotency.key = item.key
        AND (idempotency.until IS NULL OR idempotency.until > clock.now)
    LIMIT 1
) AS held
LEFT JOIN LATERAL (
    SELECT record.state FROM penstock.record
    WHERE record.queue = $1 AND record.id = held.job AND held.until IS NULL LIMIT 1
) AS theirs ON true
"""

_LIVE_STATES: Final = """
SELECT id, state FROM penstock.job
WHERE queue = $1 AND id > $2::text AND state IN ('blocked', 'pending', 'delayed', 'active')
ORDER BY id LIMIT $3::bigint
"""

_AHEAD: Final = """
SELECT count(*)
FROM penstock.job AS mine
JOIN penstock.queue ON queue.n = $1
JOIN penstock.job AS other ON other.queue = $1 AND other.state = 'pending'
WHERE mine.queue = $1 AND mine.id = $2
    AND CASE
        WHEN queue.has_keys THEN other.key = mine.key AND other.place < mine.place
        ELSE other.priority > mine.priority OR (other.priority = mine.priority AND other.place < mine.place)
    END
HAVING EXISTS (SELECT 1 FROM penstock.queue WHERE queue.n = $1)
"""

_OLDEST: Final = """
SELECT min(head.enqueued_at)
FROM generate_series(0, 9) AS tier
CROSS JOIN LATERAL (
    SELECT job.enqueued_at FROM penstock.job
    WHERE job.queue = $1 AND job.priority = tier AND job.state = 'pending'
    ORDER BY job.place
    LIMIT 1
) AS head
HAVING EXISTS (SELECT 1 FROM penstock.queue WHERE queue.n = $1)
"""

_EXPIRED: Final = f"""
SELECT {EXPIRED_COLUMNS}
FROM penstock.job
CROSS JOIN (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS clock
WHERE queue = $1 AND deadline IS NOT NULL AND (deadline <= clock.now OR {FAR_LEASE})
ORDER BY deadline, id
LIMIT $3::bigint
"""  # noqa: S608 (constants)

_LEASES: Final = """
SELECT id, token, worker, deadline FROM penstock.job
WHERE queue = $1 AND deadline IS NOT NULL AND ($2::text IS NULL OR worker = $2)
ORDER BY deadline
"""

_LIVE: Final = "(SELECT job.*, NULL::bigint AS ended_at, NULL::text AS result FROM penstock.job) AS live"


def page_of(query: Query) -> tuple[str, list[Value]]:
    """The statement for a page of jobs, and its values after the queue's number.

    It has no more conditions and tables than the query needs: the indexes serve those alone.
    """
    age = "ended_at" if query.is_by_end else "enqueued_at"
    order, beyond = ("ASC", ">") if query.oldest_first else ("DESC", "<")
    source, columns = _source(query), JOB_COLUMNS
    if source != _LIVE:
        columns = columns.replace(
            "lease_ms", _LEASE_MS if source == "penstock.record" else "NULL AS lease_ms"
        )
    if not query.payloads:
        columns = columns.replace("payload", "'' AS payload")
    if not query.results:
        columns = columns.replace("result", "NULL AS result")
    clauses, values = ["queue = $1", f"{age} >= 0"], list[Value]()
    if not query.states:
        clauses.append("state <> 'quarantined'")
    if query.states:
        values.append(sorted(query.states))
        clauses.append(f"state = ANY(${len(values) + 1}::text[])")
    if query.task is not None:
        values.append(query.task)
        clauses.append(f"task = ${len(values) + 1}")
    if query.key is not None:
        values.append(stored(query.key))
        clauses.append(f"key = ${len(values) + 1}")
    if query.since is not None:
        values.append(query.since)
        clauses.append(f"{age} >= ${len(values) + 1}::bigint")
    if query.after is not None:
        at, _, last = query.after.partition("/")
        values += [int(at), last]
        clauses.append(f"({age}, id) {beyond} (${len(values)}::bigint, ${len(values) + 1}::text)")
    values.append(query.limit + 1)
    statement = (
        f"SELECT {columns} FROM {source} WHERE {' AND '.join(clauses)} "  # noqa: S608 (constants)
        f"ORDER BY {age} {order}, id {order} LIMIT ${len(values) + 1}::bigint"
    )
    return statement, values


def _source(query: Query) -> str:
    """Where jobs in the states of the query lie."""
    states = query.states
    if query.is_by_end:
        some = {State.DEAD} & states
        return "penstock.done" if not some else "penstock.dead" if some == states else "penstock.ended"
    return "penstock.record" if not states or any(state.is_ended for state in states) else _LIVE


class PostgresReads:
    """The part `Reads`."""

    def __init__(
        self, backend: Backend, counting: Counting, queues: PostgresQueues, quarantine: PostgresQuarantine
    ) -> None:
        self._backend = backend
        self._counting = counting
        self._queues = queues
        self._quarantine = quarantine

    @renumbers
    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        """The records, None where there is none."""
        rows = await self._backend.read_queue(queue, _GET, list(ids))
        jobs = {job.id: job for job in (job_or_error(queue, row) for row in rows)}
        return [jobs.get(each) for each in ids]

    @renumbers
    async def find(self, queue: QueueRef, query: Query) -> Page:
        """A page of jobs, newest first unless the query says otherwise."""
        number = await self._backend.find_number(queue)
        if number is None:
            return Page([])
        statement, values = page_of(query)
        rows = await self._backend.engine.run(
            in_schema(statement, self._backend.address.schema), number, *values, prepare=False
        )
        if not rows:
            await self._backend.verify_number(queue, number)
        # A record that cannot be read is passed over: the store's check names it.
        read = [job_or_none(queue, row) for row in rows[: query.limit]]
        jobs = [job for job in read if job is not None]
        if len(rows) <= query.limit or not read:
            return Page(jobs)
        end = dict(zip(JOB_COLUMNS.split(", "), rows[query.limit - 1], strict=True))
        at = (end["ended_at"] or 0) if query.is_by_end else end["enqueued_at"]
        return Page(jobs, f"{at}/{end['id']}")

    @renumbers
    async def live_states(self, queue: QueueRef, after: str, limit: int) -> list[tuple[str, State]]:
        """The next live jobs behind an id, with their states."""
        rows = await self._backend.read_queue(queue, _LIVE_STATES, after, limit)
        return [(job, State(state)) for job, state in rows]

    @renumbers
    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        """Which job holds each idempotency key now."""
        rows = await self._backend.read_queue(
            queue, _KEY_HOLDERS, self._backend.newest_us, [stored(key) for key in keys]
        )
        found = {
            key: KeyHolder(job, None if state is None else State(state), digest)
            for key, job, state, digest in rows
        }
        return [found.get(stored(key)) for key in keys]

    @renumbers
    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state."""
        number = await self._backend.find_number(queue)
        counts = None if number is None else await self._counting.read(number)
        if number is not None and counts is None:
            await self._backend.verify_number(queue, number)
        return counts or dict.fromkeys(State, 0)

    @renumbers
    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs, of its key where keys take turns, will be claimed before this one."""
        rows = await self._backend.read_queue(queue, _AHEAD, job)
        return int(rows[0][0]) if rows else 0

    @renumbers
    async def oldest(self, queue: QueueRef) -> int | None:
        """When the first of the pending jobs was enqueued."""
        rows = await self._backend.read_queue(queue, _OLDEST)
        return rows[0][0] if rows else None

    @renumbers
    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        """Leases that ran out, oldest first; also those that end later than any lease may."""
        rows = await self._backend.read_queue(queue, _EXPIRED, self._backend.newest_us, limit)
        info = await self._queues.find_queue(queue) if rows else None
        keyed = info is not None and info.mode.has_keys
        leases: list[ExpiredLease] = []
        damages: list[CorruptRow] = []
        for row in rows:
            try:
                leases.append(expired_of(row, keyed=keyed))
            except DECODE_ERRORS as error:
                damages.append((row[0], unreadable_record(error)))
        await self._quarantine.set_aside(
            queue, await self._backend.require_number(queue) if damages else 0, damages
        )
        return leases

    @renumbers
    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        """Leases of the queue, or those of one worker."""
        rows = await self._backend.read_queue(queue, _LEASES, worker)
        return [HeldLease(*row) for row in rows]
