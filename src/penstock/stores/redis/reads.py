"""Looking at records without touching them."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.stores.protocol import HeldLease, Page, Query
from penstock.stores.redis.keys import HIGHEST_TIER, TIERS, QueueKeys, keys_of
from penstock.stores.redis.records import job_of
from penstock.stores.redis.server import Server

CHUNK: Final = 500
"""Records asked for in one round trip."""

Age = tuple[int, str]
"""A time and an id: what lists are ordered by, newest first."""


class Reader:
    """The reads of a store. Those that take several round trips are not of one moment."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        """The records, in the order of the ids."""
        keys = keys_of(queue)
        records = await self._server.commands([("HGETALL", keys.job(each)) for each in ids])
        return [job_of(queue, each, record) for each, record in zip(ids, records, strict=True)]

    async def find(self, queue: QueueRef, query: Query) -> Page:
        """A page of jobs."""
        keys = keys_of(queue)
        by_end = bool(query.states) and all(state.is_ended for state in query.states)
        indexes = [keys.ended(state) for state in query.states] if by_end else [keys.jobs]
        after = None
        if query.after is not None:
            at, _, last = query.after.partition("/")
            after = (int(at), last)
        ages: list[Age] = []
        for index in indexes:
            ages += await self._matching(keys, index, query, after)
        page = sorted(ages, reverse=True)[: query.limit]
        jobs = await self.get(queue, [job for _, job in page])
        more = len(ages) > len(page)
        end = f"{page[-1][0]}/{page[-1][1]}" if more and page else None
        return Page([job for job in jobs if job is not None], end)

    async def _matching(self, keys: QueueKeys, index: str, query: Query, after: Age | None) -> list[Age]:
        """The newest of one index that the query asks for; one more than the page takes, if there is."""
        found: list[Age] = []
        async for chunk in self._walk(index, after):
            facts = await self._server.commands(
                [("HMGET", keys.job(job), "state", "task") for _, job in chunk]
            )
            for age, (state, task) in zip(chunk, facts, strict=True):
                if state is None or (query.states and state.decode() not in query.states):
                    continue
                if query.task is None or task.decode() == query.task:
                    found.append(age)
            if len(found) > query.limit:
                break
        return found[: query.limit + 1]

    async def _walk(self, index: str, after: Age | None) -> AsyncIterator[list[Age]]:
        """An index from its newest entry on, in chunks; entries of equal age follow each other by id."""
        size = CHUNK
        while True:
            newest = "+inf" if after is None else after[0]
            answer = await self._server.command(
                "ZRANGE", index, newest, "-inf", "BYSCORE", "REV", "LIMIT", 0, size, "WITHSCORES"
            )
            ages = [(int(score), member.decode()) for member, score in scored(answer)]
            fresh = ages if after is None else [age for age in ages if age < after]
            if fresh:
                yield fresh
                after = fresh[-1]
            if len(ages) < size:
                return
            if not fresh:
                # More than a chunk of the same age, all seen.
                size *= 2

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        """Jobs per state, zeros included, at one moment."""
        keys = keys_of(queue)
        ended = [state for state in State if state.is_ended]
        answers = await self._server.commands(
            [
                *(("LLEN", keys.pending(tier)) for tier in TIERS),
                *(("ZCARD", keys.gone(tier)) for tier in TIERS),
                ("ZCARD", keys.delayed),
                ("ZCARD", keys.active),
                *(("ZCARD", keys.ended(state)) for state in ended),
            ],
            at_once=True,
        )
        tiers = len(TIERS)
        counts = dict.fromkeys(State, 0)
        counts[State.PENDING] = sum(answers[:tiers]) - sum(answers[tiers : 2 * tiers])
        counts[State.DELAYED], counts[State.ACTIVE] = answers[2 * tiers : 2 * tiers + 2]
        counts.update(zip(ended, answers[2 * tiers + 2 :], strict=True))
        return counts

    async def ahead(self, queue: QueueRef, job: str) -> int:
        """How many pending jobs will be claimed before this pending one."""
        keys = keys_of(queue)
        priority, place, state = await self._server.command(
            "HMGET", keys.job(job), "priority", "place", "state"
        )
        if priority is None or state != State.PENDING.encode():
            return 0
        tier = int(priority)
        higher = range(HIGHEST_TIER, tier, -1)
        position, left, *waiting = await self._server.commands(
            [
                ("LPOS", keys.pending(tier), place + b" " + job.encode()),
                ("ZCOUNT", keys.gone(tier), "-inf", b"(" + place),
                *(("LLEN", keys.pending(each)) for each in higher),
                *(("ZCARD", keys.gone(each)) for each in higher),
            ],
            at_once=True,
        )
        if position is None:
            return 0
        above = sum(waiting[: len(higher)]) - sum(waiting[len(higher) :])
        return int(position - left + above)

    async def leases(self, queue: QueueRef, worker: str | None) -> list[HeldLease]:
        """Leases of the queue, or those of one worker."""
        keys = keys_of(queue)
        ids = [job.decode() for job in await self._server.command("ZRANGE", keys.active, 0, -1)]
        out = []
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            facts = await self._server.commands(
                [("HMGET", keys.job(job), "token", "worker", "deadline") for job in chunk]
            )
            for job, (token, holder, deadline) in zip(chunk, facts, strict=True):
                # A lease may end between the two looks.
                if token is not None and worker in (None, holder.decode()):
                    out.append(HeldLease(job, token.decode(), holder.decode(), int(deadline)))
        return out


def scored(answer: Sequence[bytes]) -> list[tuple[bytes, float]]:
    """Members and scores out of a flat answer."""
    return [(member, float(score)) for member, score in zip(answer[::2], answer[1::2], strict=True)]
