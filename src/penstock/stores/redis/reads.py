"""Looking at records without touching them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from penstock.core.job import ExpiredLease, Job, QueueRef
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import MAX_LEASE_MS, RECOVER_LIMIT
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec import replies
from penstock.stores.redis.codec.jobs import Record, job_of, job_or_none, record_or_none
from penstock.stores.redis.codec.lanes import read_declaration, read_lane
from penstock.stores.redis.codec.requests import pack
from penstock.stores.redis.keys import HIGHEST_TIER, QueueKeys, keys_of, lane_line
from penstock.stores.redis.quarantine import RedisQuarantine
from penstock.stores.values import HeldLease, KeyHolder, Page, Query

_FARTHEST: Final = 1 << 53
"""Ages beyond it are no times, but what somebody has put there."""
CHUNK: Final = 500
"""Records asked for in one round trip."""

_Parts = tuple[str, bytes, bytes | None, bytes | None, bytes | None, bytes | None]
"""An id, its record, and what stands apart from that: payload, result, rest of the error, progress."""
Age = tuple[int, str]
"""A time and an id: what lists are ordered by, newest first."""


class RedisReads:
    """The reads of a store. Those that take several round trips are not of one moment."""

    def __init__(self, backend: Backend, quarantine: RedisQuarantine) -> None:
        self._server = backend.server
        self._run_if_there = backend.run_if_there
        self._quarantine = quarantine

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        """The records, in the order of the ids."""
        read = await self._read(queue, ids, payloads=True, results=True)
        return [None if each is None else job_of(queue, *each) for each in read]

    async def _read(
        self, queue: QueueRef, ids: Sequence[str], *, payloads: bool, results: bool
    ) -> "list[_Parts | None]":
        keys, out = keys_of(queue), list[_Parts | None]()
        apart = [keys.records, keys.errors, keys.progress]
        apart += [keys.payloads] * payloads + [keys.results] * results
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            answers = await self._server.commands([("HMGET", key, *chunk) for key in apart], at_once=True)
            columns = dict(zip(apart, answers, strict=True))
            columns.setdefault(keys.payloads, [b""] * len(chunk))
            columns.setdefault(keys.results, [None] * len(chunk))
            wanted = (keys.records, keys.payloads, keys.results, keys.errors, keys.progress)
            for job, record, *rest in zip(chunk, *(columns[key] for key in wanted), strict=True):
                out.append(None if record is None else (job, record, *rest))
        return out

    async def find(self, queue: QueueRef, query: Query) -> Page:
        """A page of jobs."""
        keys = keys_of(queue)
        indexes = [keys.ended(state) for state in query.states] if query.is_by_end else [keys.jobs]
        after = None
        if query.after is not None:
            at, _, last = query.after.partition("/")
            after = (int(at), last)
        ages: list[Age] = []
        for index in indexes:
            ages += await self._matching(keys, index, query, after)
        page = sorted(ages, reverse=not query.oldest_first)[: query.limit]
        ids = [job for _, job in page]
        read = await self._read(queue, ids, payloads=query.payloads, results=query.results)
        jobs = [job_or_none(queue, *each) for each in read if each is not None]
        more = len(ages) > len(page)
        end = f"{page[-1][0]}/{page[-1][1]}" if more and page else None
        return Page([job for job in jobs if job is not None], end)

    async def _matching(self, keys: QueueKeys, index: str, query: Query, after: Age | None) -> list[Age]:
        """The first of one index that the query asks for; one more than the page takes, if there is."""
        found: list[Age] = []
        async for chunk in self._walk(index, query, after):
            packed = await self._server.command("HMGET", keys.records, *(job for _, job in chunk))
            for age, each in zip(chunk, packed, strict=True):
                if each is None:
                    continue
                # One that cannot be read is passed over: the store's check names it.
                record = record_or_none(each)
                if record is None:
                    continue
                if query.states and record.state not in query.states:
                    continue
                if query.task in (None, record.task) and query.key in (None, record.key):
                    found.append(age)
            if len(found) > query.limit:
                break
        return found[: query.limit + 1]

    async def _walk(self, index: str, query: Query, after: Age | None) -> AsyncIterator[list[Age]]:
        """An index in the order of the query, in chunks; entries of equal age follow each other by id."""
        size, earliest = CHUNK, "-inf" if query.since is None else query.since
        while True:
            here = None if after is None else after[0]
            if query.oldest_first:
                span: tuple[Any, ...] = (earliest if here is None else here, "+inf", "BYSCORE")
            else:
                span = ("+inf" if here is None else here, earliest, "BYSCORE", "REV")
            answer = await self._server.command("ZRANGE", index, *span, "LIMIT", 0, size, "WITHSCORES")
            ages = [_age(member, score) for member, score in scored(answer)]
            fresh = [
                age for age in ages if after is None or (age > after if query.oldest_first else age < after)
            ]
            if fresh:
                yield fresh
                after = fresh[-1]
            if len(ages) < size:
                return
            if not fresh:
                # More than a chunk of the same age, all seen.
                size *= 2

    @answers_absent
    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        """Who holds each idempotency key."""
        if not keys:
            return []
        answers = await self._run_if_there(queue, "reads/holders", pack(list(keys)))
        return [replies.key_holder(answer) for answer in answers]

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state, zeros included, at one moment."""
        keys = keys_of(queue)
        indexes = {
            State.BLOCKED: keys.blocked,
            State.DELAYED: keys.delayed,
            State.ACTIVE: keys.active,
            **{state: keys.ended(state) for state in State if state.is_ended},
        }
        records, *indexed = await self._server.commands(
            [("HLEN", keys.records), *(("ZCARD", key) for key in indexes.values())], at_once=True
        )
        counts = dict.fromkeys(State, 0) | dict(zip(indexes, indexed, strict=True))
        # Those that wait in lists are the rest: the lists also hold entries of jobs that are gone.
        counts[State.PENDING] = records - sum(indexed)
        return counts

    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs, of its key where keys take turns, will be claimed before this one."""
        keys = keys_of(queue)
        packed = await self._server.command("HGET", keys.records, job)
        record = None if packed is None else record_or_none(packed)
        if record is None or record.state is not State.PENDING:
            return 0
        line, higher = await self._line(keys, record)
        position, left, *waiting = await self._server.commands(
            [
                ("LPOS", keys.pending(line), f"{record.place} {job}"),
                ("ZCOUNT", keys.gone(line), "-inf", f"({record.place}"),
                *(("LLEN", keys.pending(each)) for each in higher),
                *(("ZCARD", keys.gone(each)) for each in higher),
            ],
            at_once=True,
        )
        if position is None:
            return 0
        above = sum(waiting[: len(higher)]) - sum(waiting[len(higher) :])
        return int(position - left + above)

    async def oldest(self, queue: QueueRef) -> int | None:
        """When the first of the pending jobs was enqueued."""
        keys = keys_of(queue)
        lines: list[int | str] = list(range(HIGHEST_TIER + 1))
        declared = await self._server.command("HGET", keys.meta, "declared")
        if declared is not None and read_declaration(declared).mode.has_keys:
            lanes = map(read_lane, await self._server.command("HVALS", keys.lanes))
            lines = [lane_line(lane.number) for lane in lanes if lane is not None and lane.waiting]
        left = await self._server.commands([("ZRANGE", keys.gone(line), 0, -1) for line in lines])
        # Behind as many entries as were left by jobs that are gone, there is one of a job that waits.
        heads = await self._server.commands(
            [("LRANGE", keys.pending(line), 0, len(gone)) for line, gone in zip(lines, left, strict=True)]
        )
        first = [
            next((entry for entry in entries if entry not in gone), None)
            for entries, gone in zip(heads, map(set, left), strict=True)
        ]
        ids = [entry.partition(b" ")[2] for entry in first if entry is not None]
        packed = await self._server.command("HMGET", keys.records, *ids) if ids else []
        records = [record_or_none(each) for each in packed if each is not None]
        times = (each.enqueued_at for each in records if each is not None and each.state is State.PENDING)
        return min(times, default=None)

    async def _line(self, keys: QueueKeys, record: Record) -> tuple[int | str, range]:
        """The list that the job stands in, and the tiers above it."""
        declared = await self._server.command("HGET", keys.meta, "declared")
        if declared is None or not read_declaration(declared).mode.has_keys:
            return record.priority, range(HIGHEST_TIER, record.priority, -1)
        packed = await self._server.command("HGET", keys.lanes, record.key)
        lane = None if packed is None else read_lane(packed)
        return lane_line(0 if lane is None else lane.number), range(0)

    @answers_absent
    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        """Leases that ran out, oldest first."""
        leases, has_keys = await self._run_if_there(queue, "reads/expired", limit, MAX_LEASE_MS)
        found, damages = replies.expired_leases(leases, has_keys)
        if damages:
            await self._quarantine.set_aside(queue, damages)
        return found

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        """Leases of the queue, or those of one worker."""
        keys = keys_of(queue)
        ids = [job.decode() for job in await self._server.command("ZRANGE", keys.active, 0, -1)]
        out = []
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            packed = await self._server.command("HMGET", keys.records, *chunk)
            for job, each in zip(chunk, packed, strict=True):
                record = None if each is None else record_or_none(each)
                # A lease may end between the two looks.
                if record is None or record.state is not State.ACTIVE:
                    continue
                if worker in (None, record.worker):
                    out.append(HeldLease(job, str(record.token), str(record.worker), int(record.deadline)))
        return out


def scored(answer: Sequence[bytes]) -> list[tuple[bytes, float]]:
    """Members and scores out of a flat answer."""
    return [(member, float(score)) for member, score in zip(answer[::2], answer[1::2], strict=True)]


def _age(member: bytes, score: float) -> Age:
    """An entry of an index. Somebody may have damaged it: what is no id then has no record."""
    at = int(max(-_FARTHEST, min(score, _FARTHEST)))
    return at, member.decode(errors="backslashreplace")
