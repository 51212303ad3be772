"""Flows: parents that wait, children that end, and what is carried between queues."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.core.decide import CHILD_FAILED
from penstock.core.flows import Child, ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.redis import records
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.queues import Queues
from penstock.stores.redis.records import pack
from penstock.stores.redis.server import Server
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import Adoption, Relay, Spawn

_FIRST_RESULT: Final = 3
"""The number of the argument of unblock.lua from which on results stand."""


class _Child(msgspec.Struct, frozen=True, array_like=True):
    """A child as unblock.lua writes it."""

    number: int
    is_done: bool
    state: State | bool


class _Ending(msgspec.Struct, frozen=True, array_like=True):
    """An ending as lua/include/relays.lua writes it."""

    parent: str
    child: str
    state: State | bool


class _Adoption(msgspec.Struct, frozen=True, array_like=True):
    """An adoption as calls/spawn.lua writes it."""

    parent: str
    children: tuple[JobRef, ...]


packed_job: Final = msgspec.msgpack.Encoder().encode
_read_job: Final = msgspec.msgpack.Decoder(NewJob).decode
_read_child: Final = msgspec.msgpack.Decoder(_Child).decode
_read_ending: Final = msgspec.msgpack.Decoder(_Ending).decode
_read_adoption: Final = msgspec.msgpack.Decoder(_Adoption).decode


class RedisFlows:
    """Jobs that wait for other jobs."""

    _server: Server
    _queues: Queues

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
        answers = await self._queues.run_if_there(queue, Move.UNBLOCK, pack(items), CHILD_FAILED, *results)
        return [records.outcome(answer) for answer in answers]

    @answers_absent
    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        if not adoptions:
            return []
        items = [(each.parent, each.children) for each in adoptions]
        answers = await self._queues.run_if_there(queue, "calls/adopt", pack(items))
        return [records.outcome(answer) for answer in answers]

    @answers_absent
    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        refs = pack([(each.queue, each.job.id) for each in spawns])
        bodies = (packed_job(each.job) for each in spawns)
        answer = await self._queues.run_if_there(queue, "calls/spawn", lease.id, lease.token, refs, *bodies)
        return records.outcome(answer)

    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        keys = keys_of(queue)
        if limit is None and not after and results:
            facts, outcomes = await self._server.commands(
                [("HGETALL", keys.children(job)), ("HGETALL", keys.outcomes(job))], at_once=True
            )
            return [_child(ref, child, outcomes.get(ref)) for ref, child in _ordered(facts)]
        page = _ordered(await self._server.command("HGETALL", keys.children(job)))[after:][:limit]
        refs = [ref for ref, _ in page]
        found = (
            await self._server.command("HMGET", keys.outcomes(job), *refs)
            if refs and results
            else [None] * len(refs)
        )
        return [_child(ref, child, result) for (ref, child), result in zip(page, found, strict=True)]

    async def relays(self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0) -> list[Relay]:
        if limit < 1:
            return []
        first = f"({after}-0" if after else "-"
        entries = await self._server.command("XRANGE", keys_of(queue).relays, first, "+", "COUNT", limit)
        return [_relay(queue, number, pairs(fields)) for number, fields in entries]

    async def relayed(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        if numbers:
            await self._server.command("XDEL", keys_of(queue).relays, *(f"{each}-0" for each in numbers))


def _relay(queue: QueueRef, number: bytes, fields: Any) -> Relay:
    what: NewJob | Adoption | ChildEnding
    match fields[b"kind"]:
        case b"job":
            what = _read_job(fields[b"body"])
        case b"adoption":
            adoption = _read_adoption(fields[b"body"])
            what = Adoption(adoption.parent, adoption.children)
        case _:
            ending = _read_ending(fields[b"body"])
            child = JobRef(queue.name, ending.child)
            what = ChildEnding(ending.parent, child, _state(ending.state), fields.get(b"result"))
    return Relay(int(number.partition(b"-")[0]), fields[b"queue"].decode(), what)


def _ordered(facts: Mapping[bytes, bytes]) -> list[tuple[bytes, _Child]]:
    known = {ref: _read_child(packed) for ref, packed in facts.items()}
    return sorted(known.items(), key=lambda item: item[1].number)


def _child(ref: bytes, child: _Child, result: bytes | None) -> Child:
    return Child(_ref(ref), child.is_done, _state(child.state), result)


def _ref(text: bytes) -> JobRef:
    queue, _, job = text.decode().partition("/")
    return JobRef(queue, job)


def _state(state: State | bool) -> State | None:
    return state if isinstance(state, State) else None
