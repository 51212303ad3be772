"""The quarantine: what was damaged from outside and set aside, by the moves that met it or by a repair."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.events import DELETED
from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import QUARANTINE_LIMIT
from penstock.stores.corruption import warn_set_aside
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec.replies import Damage
from penstock.stores.redis.inspection.damages import damages_of
from penstock.stores.redis.keys import keys_of
from penstock.stores.values import QuarantinedEntry

CHUNK: Final = 200
"""What one script sets aside or deletes."""


class RedisQuarantine:
    """Sets entries aside, and shows and deletes them."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server
        self._run_if_there = backend.run_if_there

    async def list_quarantined(
        self, queue: QueueRef, *, after: str = "", limit: int = QUARANTINE_LIMIT
    ) -> list[QuarantinedEntry]:
        names = await self._names(queue)
        shown = [each for each in sorted(names) if each > after][: max(limit, 0)]
        if not shown:
            return []
        key = keys_of(queue).quarantine
        found = await self._server.command("HMGET", key, *(names[each] for each in shown))
        return [_entry(each, text) for each, text in zip(shown, found, strict=True) if text is not None]

    @answers_absent
    async def delete_quarantined(self, queue: QueueRef, entries: Sequence[str]) -> int:
        names = await self._names(queue)
        members = [names[each] for each in dict.fromkeys(entries) if each in names]
        count = 0
        for start in range(0, len(members), CHUNK):
            chunk = members[start : start + CHUNK]
            count += int(await self._run_if_there(queue, "quarantine/delete", DELETED, *chunk))
        return count

    @answers_absent
    async def repair(self, queue: QueueRef) -> int:
        damages = await damages_of(self._server, queue)
        return await self.set_aside(queue, damages, counts_keys=True)

    async def set_aside(
        self, queue: QueueRef, damages: Sequence[Damage], *, counts_keys: bool = False
    ) -> int:
        """Set aside what a look has found; how many entries were changed."""
        changed = 0
        for start in range(0, len(damages) or 1, CHUNK):
            chunk = damages[start : start + CHUNK]
            # A record that is lost does not tell whose slot its lease took.
            counts = counts_keys or any(each.kind == "active" for each in chunk)
            values: list[Any] = [part for each in chunk for part in each]
            changed += int(await self._run_if_there(queue, "quarantine/put", int(counts), *values))
        for each in damages:
            if each.kind in {"index", "key"}:
                continue
            warn_set_aside(queue, _text(each.job), each.what)
        return changed

    async def _names(self, queue: QueueRef) -> dict[str, bytes]:
        """The ids as people see them, each with its bytes: an entry of an index can be anything."""
        names = await self._server.command("HKEYS", keys_of(queue).quarantine)
        return {_text(name): name for name in names}


def _text(name: bytes) -> str:
    """As ASCII: other bytes, and control characters, as an escape."""
    return "".join(chr(each) if 32 <= each < 127 else f"\\x{each:02x}" for each in name)


def _entry(name: str, text: bytes) -> QuarantinedEntry:
    """An entry in the form of lua/shared/quarantine.lua; also one of a later version."""
    head, _, rest = text.partition(b"\n")
    what, _, rest = rest.partition(b"\n")
    try:
        _, at, _, record, payload = map(int, head.split()[:5])
    except ValueError:
        return QuarantinedEntry(name, 0, "an entry of the quarantine that cannot be read", text)
    end = max(record, 0)
    return QuarantinedEntry(
        name,
        at,
        _text(what),
        None if record < 0 else rest[:end],
        None if payload < 0 else rest[end : end + payload],
    )
