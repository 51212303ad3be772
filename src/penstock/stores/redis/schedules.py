"""Schedules: each with the queue of its jobs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import SCHEDULE_LIMIT
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.queues import Queues
from penstock.stores.redis.records import enqueue_arguments, pack
from penstock.stores.redis.server import Server
from penstock.stores.values import Firing, StoredSchedule


class _Facts(msgspec.Struct, frozen=True, array_like=True):
    """A schedule as schedules/*.lua write it."""

    next_at: int | bool
    last_at: int | bool
    paused: bool


_read_facts: Final = msgspec.msgpack.Decoder(_Facts).decode


class RedisSchedules:
    """Schedules, and the instants that they fire."""

    _server: Server
    _queues: Queues

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        await self._queues.run(
            schedule.queue,
            "schedules/put",
            schedule.name,
            schedule.body,
            _instant(schedule.next_at),
            int(schedule.paused),
        )

    @answers_absent
    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        return bool(await self._queues.run_if_there(queue, "schedules/remove", name))

    @answers_absent
    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        return bool(await self._queues.run_if_there(queue, "schedules/pause", name, int(paused)))

    async def schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        queues = [info.queue for info in await self._queues.of(tenant)]
        if names is not None:
            return await self._named(queues, sorted({*names}))
        out: list[StoredSchedule] = []
        for queue in queues:
            keys = keys_of(queue)
            facts, bodies = await self._server.commands(
                [("HGETALL", keys.schedules), ("HGETALL", keys.bodies)], at_once=True
            )
            out += _schedules(queue, facts, bodies)
        return out

    async def _named(self, queues: Sequence[QueueRef], names: Sequence[str]) -> list[StoredSchedule]:
        if not names:
            return []
        found = await self._server.commands([("HMGET", keys_of(queue).schedules, *names) for queue in queues])
        out: list[StoredSchedule] = []
        for queue, known in zip(queues, found, strict=True):
            if not any(known):
                continue
            keys = keys_of(queue)
            # Read once more, together: nothing may change a schedule between its facts and its body.
            facts, bodies = await self._server.commands(
                [("HMGET", keys.schedules, *names), ("HMGET", keys.bodies, *names)], at_once=True
            )
            out += [
                _schedule(queue, name.encode(), packed, body)
                for name, packed, body in zip(names, facts, bodies, strict=True)
                if packed is not None and body is not None
            ]
        return out

    @answers_absent
    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        due: Sequence[Any] = await self._queues.run_if_there(queue, "schedules/due", max(limit, 0))
        return [_schedule(queue, *each) for each in due]

    @answers_absent
    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        answer = await self._queues.run_if_there(
            queue,
            "schedules/fire",
            pack(enqueue_arguments(firing.jobs)),
            firing.name,
            firing.at,
            _instant(firing.next_at),
            _instant(firing.last_at),
            *(new.payload for new in firing.jobs),
        )
        return bool(answer)


def _instant(at: int | None) -> int | str:
    return "" if at is None else at


def _schedules(
    queue: QueueRef, facts: Mapping[bytes, bytes], bodies: Mapping[bytes, bytes]
) -> list[StoredSchedule]:
    return [_schedule(queue, name, facts[name], bodies[name]) for name in sorted(facts)]


def _schedule(queue: QueueRef, name: bytes, packed: bytes, body: bytes) -> StoredSchedule:
    facts = _read_facts(packed)
    return StoredSchedule(queue, name.decode(), body, _at(facts.next_at), _at(facts.last_at), facts.paused)


def _at(value: int | bool) -> int | None:
    return None if value is False else value
