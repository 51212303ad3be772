"""Schedules: each with the queue of its jobs."""

from collections.abc import Sequence
from typing import Any

from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import SCHEDULE_LIMIT
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec.requests import enqueue_arguments, pack
from penstock.stores.redis.codec.schedules import schedule_of, schedules_of
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.queues import RedisQueues
from penstock.stores.values import Firing, StoredSchedule


class RedisSchedules:
    """Schedules, and the instants that they fire."""

    def __init__(self, backend: Backend, queues: RedisQueues) -> None:
        self._server = backend.server
        self._run = backend.run
        self._run_if_there = backend.run_if_there
        self._queues = queues

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        await self._run(
            schedule.queue,
            "schedules/put",
            schedule.name,
            schedule.body,
            _instant(schedule.next_at),
            int(schedule.paused),
        )

    @answers_absent
    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        return bool(await self._run_if_there(queue, "schedules/remove", name))

    @answers_absent
    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        return bool(await self._run_if_there(queue, "schedules/pause", name, int(paused)))

    async def list_schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        queues = [info.queue for info in await self._queues.list_queues(tenant)]
        if names is not None:
            return await self._named(queues, sorted({*names}))
        out: list[StoredSchedule] = []
        for queue in queues:
            keys = keys_of(queue)
            packed, bodies = await self._server.commands(
                [("HGETALL", keys.schedules), ("HGETALL", keys.bodies)], at_once=True
            )
            out += schedules_of(queue, packed, bodies)
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
            # Read once more, together: nothing may change a schedule between its packed part and its body.
            packed, bodies = await self._server.commands(
                [("HMGET", keys.schedules, *names), ("HMGET", keys.bodies, *names)], at_once=True
            )
            out += [
                schedule_of(queue, name.encode(), packed, body)
                for name, packed, body in zip(names, packed, bodies, strict=True)
                if packed is not None
            ]
        return out

    @answers_absent
    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        due: Sequence[Any] = await self._run_if_there(queue, "schedules/due", max(limit, 0))
        return [schedule_of(queue, *each) for each in due]

    @answers_absent
    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        answer = await self._run_if_there(
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
