"""Flows: parents that wait, children that end, and what is carried between queues."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.decide import CHILD_FAILED
from penstock.core.flows import Child, ChildEnding
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Refused
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec import replies
from penstock.stores.redis.codec.flows import child_of, ordered_children, pack_job, relay_of
from penstock.stores.redis.codec.requests import pack
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import Adoption, Relay, Spawn

_FIRST_RESULT: Final = 3
"""The number of the argument of unblock.lua from which on results stand."""


class RedisFlows:
    """Jobs that wait for other jobs."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server
        self._run_if_there = backend.run_if_there

    @answers_absent
    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        if not endings:
            return []
        items: list[tuple[Any, ...]] = []
        results: list[bytes] = []
        for each in endings:
            at = None if each.result is None else _FIRST_RESULT + len(results)
            items.append((each.parent, each.child.queue, each.child.id, each.state, at))
            results += [] if each.result is None else [each.result]
        answers = await self._run_if_there(queue, Move.UNBLOCK, pack(items), CHILD_FAILED, *results)
        return [replies.outcome(answer) for answer in answers]

    @answers_absent
    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        if not adoptions:
            return []
        items = [(each.parent, each.children) for each in adoptions]
        answers = await self._run_if_there(queue, "calls/adopt", pack(items))
        return [replies.outcome(answer) for answer in answers]

    @answers_absent
    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        refs = pack([(each.queue, each.job.id) for each in spawns])
        bodies = (pack_job(each.job) for each in spawns)
        answer = await self._run_if_there(queue, "calls/spawn", lease.id, lease.token, refs, *bodies)
        return replies.outcome(answer)

    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        keys = keys_of(queue)
        if limit is None and not after and results:
            children, outcomes = await self._server.commands(
                [("HGETALL", keys.children(job)), ("HGETALL", keys.outcomes(job))], at_once=True
            )
            return [child_of(ref, child, outcomes.get(ref)) for ref, child in ordered_children(children)]
        page = ordered_children(await self._server.command("HGETALL", keys.children(job)))[after:][:limit]
        refs = [ref for ref, _ in page]
        found = (
            await self._server.command("HMGET", keys.outcomes(job), *refs)
            if refs and results
            else [None] * len(refs)
        )
        return [child_of(ref, child, result) for (ref, child), result in zip(page, found, strict=True)]

    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        if limit < 1:
            return []
        first = f"({after}-0" if after else "-"
        entries = await self._server.command("XRANGE", keys_of(queue).relays, first, "+", "COUNT", limit)
        return [relay_of(queue, number, pairs(fields)) for number, fields in entries]

    async def delete_relay_entries(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        if numbers:
            await self._server.command("XDEL", keys_of(queue).relays, *(f"{each}-0" for each in numbers))
