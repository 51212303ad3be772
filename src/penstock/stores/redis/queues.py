"""The queues themselves: their lists, declarations, key rules, pauses and deletion."""

from typing import Any, Final

from msgspec.structs import replace

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, agreed, check_declaration, check_key_rule
from penstock.core.states import LIVE, State
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.redis import keys
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec.lanes import Lane, read_lanes, write_declaration
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.reads import RedisReads
from penstock.stores.redis.server import QueueNotOpenError
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import KeyInfo, Pause, QueueContents, QueueInfo

_SCANNED: Final = 1_000


class RedisQueues:
    """Lists, declares, pauses and deletes queues."""

    def __init__(self, backend: Backend, reads: RedisReads) -> None:
        self._backend = backend
        self._server = backend.server
        self._reads = reads
        self._listed: dict[str, dict[str, None]] = {}
        self._reading: dict[str, dict[str, None]] = {}
        self.open_queue = backend.open_queue
        self.find_queue = backend.find_queue

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        names = await self._server.command("HKEYS", keys.registry(tenant))
        known = sorted(name.decode() for name in names if name != b"*")
        infos = await self._backend.find_queues([QueueRef(tenant, name) for name in known])
        return [info for info in infos if info is not None]

    async def page(self, tenant: str, after: str, limit: int) -> tuple[list[str], str | None]:
        """Some names of a tenant's queues, and where the next page begins.

        While the node of a cluster that has the list is away, all names that were read of it before.
        """
        scan = ("HSCAN", keys.registry(tenant), after or "0", "COUNT", max(1, limit))
        try:
            cursor, flat = await self._server.command(*scan)
        except StoreUnavailableError:
            known = list(self._listed.get(tenant, ()))
            if not known:
                raise
            return known, None
        names = [name.decode() for name in flat[::2]]
        if not after:
            # The names of the last round are known until this one has come to its end.
            self._reading[tenant] = {}
        read = self._reading.setdefault(tenant, {})
        read.update(dict.fromkeys(names))
        if cursor == b"0":
            self._listed[tenant] = self._reading.pop(tenant)
            return names, None
        return names, cursor.decode()

    async def list_tenants(self) -> list[str]:
        listed = await self._server.command("SMEMBERS", keys.QUEUES)
        return sorted({each.decode().partition("/")[0] for each in listed})

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        """Delete a queue without jobs, schedules and relay entries; what keeps it, None where there is none.

        The queue goes in one step of its own slot. The lists that name it are in other slots: its number is
        released before, and it is taken off them after, unless somebody has made it anew.
        """
        while (info := await self.find_queue(queue)) is not None:
            registry, since = keys.registry(queue.tenant), keys.deleted(queue.tenant)
            last_us = await self._server.command("HGET", keys_of(queue).meta, "last_us")
            await self._server.run("queues/release", [registry, since], info.number, last_us or 0)
            names = keys_of(queue).all(self._server.database)
            try:
                found, *counts = await self._server.run(
                    "queues/delete", names, info.made, keys.LOWEST_TIER, keys.HIGHEST_TIER
                )
            except QueueNotOpenError:
                break
            if found == b"kept":
                return _contents(*counts)
            if found == b"deleted":
                await self._unlist(queue, info.number)
                return QueueContents()
        self._backend.forget(queue)
        return None

    async def _unlist(self, queue: QueueRef, number: int) -> None:
        self._backend.forget(queue)
        await self._server.run("queues/unregister", [keys.registry(queue.tenant)], queue.name, number)
        await self._server.command("SREM", keys.QUEUES, f"{queue.tenant}/{queue.name}")
        again = await self.find_queue(queue)
        if again is not None:
            await self._backend.enlist(queue, again.number)

    async def pause_queue(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        if pause is None:
            await self._backend.run(queue, "queues/pause", 0)
        else:
            values = (for_ms, pause.reason, pause.by)
            flat = [part for value in values for part in ((0, "") if value is None else (1, value))]
            await self._backend.run(queue, "queues/pause", 1, *flat)

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        wanted = check_declaration(declaration)
        while True:
            info = await self.open_queue(queue)
            stored = info.declaration
            mode = Mode.GLOBAL if stored is None else stored.mode
            is_live = wanted.mode is not mode and await self._is_live(queue)
            after = agreed(stored, wanted, is_live=is_live)
            if after == stored:
                return info
            answer = await self._backend.run(
                queue,
                "queues/declare",
                b"" if stored is None else write_declaration(stored),
                write_declaration(after),
                int(after.mode is not mode),
                PROMOTE_LIMIT,
                keys.LOWEST_TIER,
                keys.HIGHEST_TIER,
            )
            # Otherwise somebody declared or enqueued in between: look again.
            if answer == b"written":
                self._backend.remember(queue, after)
                return replace(info, declaration=after)

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        info = await self.open_queue(queue)
        named: tuple[int | str, int | str] = (0, 0)
        if rule is not None:
            named = check_key_rule(info.mode, rule).limit or "", rule.weight or ""
        await self._backend.run(queue, "queues/rule", key, *named)

    async def list_keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        info = await self.find_queue(queue)
        if info is None or info.declaration is None or not info.mode.has_keys:
            return []
        declared = info.declaration
        used = [(key, lane) for key, lane in (await self._lanes(queue)).items() if lane.is_used]
        return [_key_info(key, lane, declared) for key, lane in sorted(used)[:limit]]

    async def _lanes(self, queue: QueueRef) -> dict[str, Lane]:
        """All lanes of the queue, by key."""
        found: dict[str, Lane] = {}
        cursor: Any = 0
        while True:
            cursor, chunk = await self._server.command(
                "HSCAN", keys_of(queue).lanes, cursor, "COUNT", _SCANNED
            )
            found.update(read_lanes(pairs(chunk)))
            if int(cursor) == 0:
                return found

    async def _is_live(self, queue: QueueRef) -> bool:
        counts = await self._reads.counts(queue)
        return any(counts[state] for state in LIVE)


def _contents(schedules: int, relays: int, *jobs: Any) -> QueueContents:
    counts = {State(state.decode()): count for state, count in zip(jobs[::2], jobs[1::2], strict=True)}
    return QueueContents(counts, schedules, relays)


def _key_info(key: str, lane: Lane, declared: Declaration) -> KeyInfo:
    own = lane.limit if declared.mode is Mode.DYNAMIC else False
    return KeyInfo(
        key,
        lane.waiting,
        lane.running,
        own or declared.key_limit,
        lane.weight,
        None if lane.held_until is False else lane.held_until,
    )
