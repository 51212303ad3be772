"""Reading all of a queue's records in pages, for whoever wants most of them."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.reads import scored
from penstock.stores.redis.records import Record, read_record
from penstock.stores.redis.server import Server

APART: Final = ("payloads", "results", "errors", "progress")
"""What stands apart from records."""


class Scanned(msgspec.Struct, frozen=True, gc=False):
    """A record, and what was asked for of what stands apart from it."""

    id: str
    record: Record
    payload: bytes | None = None
    result: bytes | None = None
    error_rest: bytes | None = None
    progress: bytes | None = None


class Scanner:
    """Walks an index from its oldest entry on: all jobs by enqueue, or those of an ended state by ending."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def cuts(self, queue: QueueRef, ended: State | None, at: Sequence[int]) -> list[int]:
        """The times of the entries at these places."""
        index = _index(queue, ended)
        answers = await self._server.commands([("ZRANGE", index, each, each, "WITHSCORES") for each in at])
        return [int(time) for answer in answers for _, time in scored(answer)]

    async def size(self, queue: QueueRef, ended: State | None) -> int:
        """How many entries there are."""
        return int(await self._server.command("ZCARD", _index(queue, ended)))

    async def pages(
        self,
        queue: QueueRef,
        ended: State | None,
        first: int,
        last: int,
        *,
        apart: frozenset[str] = frozenset(),
        size: int = 1_000,
    ) -> AsyncIterator[list[Scanned]]:
        """Records whose time is from `first` to `last`, each at most once."""
        index, after, most = _index(queue, ended), (first, ""), size
        while True:
            said = ("ZRANGE", index, after[0], last, "BYSCORE", "LIMIT", 0, most, "WITHSCORES")
            entries = [(int(time), job.decode()) for job, time in scored(await self._server.command(*said))]
            fresh = [entry for entry in entries if entry > after]
            for start in range(0, len(fresh), size):
                chunk = fresh[start : start + size]
                yield await self._records(queue, ended, chunk, apart)
            if len(entries) < most:
                return
            # More than a page of the same time, all seen, would be asked for for ever.
            most = size if fresh else most * 2
            after = fresh[-1] if fresh else after

    async def _records(
        self, queue: QueueRef, ended: State | None, entries: Sequence[tuple[int, str]], apart: frozenset[str]
    ) -> list[Scanned]:
        keys = keys_of(queue)
        asked = ["records", *(name for name in APART if name in apart)]
        ids = [job for _, job in entries]
        answers = await self._server.commands(
            [("HMGET", getattr(keys, name), *ids) for name in asked], at_once=len(asked) > 1
        )
        columns = dict(zip(asked, answers, strict=True))
        nothing = [None] * len(ids)
        rest = zip(*(columns.get(name, nothing) for name in APART), strict=True)
        out = []
        for (time, job), packed, more in zip(entries, columns["records"], rest, strict=True):
            record = None if packed is None else read_record(packed)
            # Gone since the index was read, and perhaps back under the same id.
            if record is not None and (record.enqueued_at if ended is None else record.ended_at) == time:
                out.append(Scanned(job, record, *more))
        return out


def _index(queue: QueueRef, ended: State | None) -> str:
    keys = keys_of(queue)
    return keys.jobs if ended is None else keys.ended(ended)
