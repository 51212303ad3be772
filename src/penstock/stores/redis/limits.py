"""Declarations, and rules of single keys."""

from typing import Any, Final

from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, agreed, check_declaration, check_key_rule
from penstock.core.states import LIVE
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.lanes import Lane, read_lane, write_declaration
from penstock.stores.redis.queues import Queues
from penstock.stores.redis.reads import Reader
from penstock.stores.redis.server import Server
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import KeyInfo, QueueInfo

_SCANNED: Final = 1_000


class RedisLimits:
    """What a queue's owner says of it."""

    _server: Server
    _queues: Queues
    _reader: Reader

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        wanted = check_declaration(declaration)
        while True:
            info = await self._queues.open(queue)
            stored = info.declaration
            mode = Mode.GLOBAL if stored is None else stored.mode
            is_live = wanted.mode is not mode and await self._is_live(queue)
            after = agreed(stored, wanted, is_live=is_live)
            if after == stored:
                return info
            answer = await self._queues.run(
                queue,
                "queues/declare",
                b"" if stored is None else write_declaration(stored),
                write_declaration(after),
                int(after.mode is not mode),
                PROMOTE_LIMIT,
            )
            # Otherwise somebody declared or enqueued in between: look again.
            if answer == b"written":
                self._queues.remember(queue, after)
                return replace(info, declaration=after)

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        info = await self._queues.open(queue)
        named: tuple[int | str, int | str] = (0, 0)
        if rule is not None:
            named = check_key_rule(info.mode, rule).limit or "", rule.weight or ""
        await self._queues.run(queue, "queues/rule", key, *named)

    async def keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        info = await self._queues.find(queue)
        if info is None or info.declaration is None or not info.mode.has_keys:
            return []
        declared = info.declaration
        used = [(key, lane) for key, lane in (await self.lanes(queue)).items() if lane.is_used]
        return [_key_info(key, lane, declared) for key, lane in sorted(used)[:limit]]

    async def lanes(self, queue: QueueRef) -> dict[str, Lane]:
        """All lanes of the queue, by key."""
        found: dict[str, Lane] = {}
        cursor: Any = 0
        while True:
            cursor, chunk = await self._server.command(
                "HSCAN", keys_of(queue).lanes, cursor, "COUNT", _SCANNED
            )
            for key, lane in pairs(chunk).items():
                found[key.decode()] = read_lane(lane)
            if int(cursor) == 0:
                return found

    async def _is_live(self, queue: QueueRef) -> bool:
        counts = await self._reader.counts(queue)
        return any(counts[state] for state in LIVE)


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
