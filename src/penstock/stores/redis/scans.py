"""Reading all of a queue's records in pages, for whoever wants most of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.core.errors import StoreFormatError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.damaged import DAMAGED
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.reads import scored
from penstock.stores.redis.records import Record
from penstock.stores.redis.server import Server

_FIELDS: Final = Record.__struct_fields__
_read: Final = msgspec.msgpack.Decoder(list[Any]).decode


class ScannedPage(msgspec.Struct, frozen=True):
    """Records field by field, as scripts write them: false stands for what is not there.

    `apart` has what was asked for of what stands apart from records.
    """

    ids: list[str]
    fields: dict[str, Sequence[Any]]
    apart: dict[str, Sequence[bytes | None]]


Sieve = Callable[[ScannedPage], Sequence[int]]
"""The places of those of a page that are wanted, by their records alone."""


class Scanner:
    """Walks an index from its oldest entry on: all jobs by enqueue, or those of an ended state by ending."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def times(self, queue: QueueRef, ended: State | None, at: Sequence[int]) -> list[int]:
        """The times of the entries at these places, where there are any; -1 is the last one's."""
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
        sieve: Sieve | None = None,
        size: int = 1_000,
    ) -> AsyncIterator[ScannedPage]:
        """Records whose time is from `first` to `last`, each at most once.

        `apart` names what is wanted of what stands apart: payloads, results, errors, progress. With a `sieve`
        it is fetched only for what that keeps.
        """
        index, after, most = _index(queue, ended), (first, ""), size
        while True:
            said = ("ZRANGE", index, after[0], last, "BYSCORE", "LIMIT", 0, most, "WITHSCORES")
            entries = [(int(time), job.decode()) for job, time in scored(await self._server.command(*said))]
            fresh = [entry for entry in entries if entry > after]
            for start in range(0, len(fresh), size):
                chunk = fresh[start : start + size]
                if apart and sieve is not None:
                    look = await self._records(queue, ended, chunk, frozenset())
                    wanted = {look.ids[at] for at in sieve(look)}
                    chunk = [entry for entry in chunk if entry[1] in wanted]
                if chunk:
                    yield await self._records(queue, ended, chunk, apart)
            if len(entries) < most:
                return
            # More than a page of the same time, all seen, would be asked for for ever.
            most = size if fresh else most * 2
            after = fresh[-1] if fresh else after

    async def _records(
        self, queue: QueueRef, ended: State | None, entries: Sequence[tuple[int, str]], apart: frozenset[str]
    ) -> ScannedPage:
        keys, asked = keys_of(queue), sorted(apart)
        ids = [job for _, job in entries]
        packed, *beside = await self._server.commands(
            [("HMGET", getattr(keys, name), *ids) for name in ("records", *asked)], at_once=bool(asked)
        )
        rows = [
            None if each is None else _row(queue, job, each) for job, each in zip(ids, packed, strict=True)
        ]
        place = _FIELDS.index("enqueued_at" if ended is None else "ended_at")
        # Others are gone since the index was read, and perhaps back under the same id.
        kept = [
            at
            for at, (row, (time, _)) in enumerate(zip(rows, entries, strict=True))
            if row is not None and row[place] == time
        ]
        if len(kept) < len(rows):
            ids = [ids[at] for at in kept]
            rows = [rows[at] for at in kept]
            beside = [[column[at] for at in kept] for column in beside]
        columns = zip(*rows, strict=True) if rows else ([] for _ in _FIELDS)
        return ScannedPage(
            ids, dict(zip(_FIELDS, columns, strict=True)), dict(zip(asked, beside, strict=True))
        )


def _row(queue: QueueRef, job: str, packed: bytes) -> list[Any]:
    """A record with a value for every field that this version knows, and no others."""
    try:
        row = _read(packed)
    except DAMAGED as error:
        raise StoreFormatError(f"job {job} of queue {queue}: its record cannot be read: {error}") from None
    if len(row) == len(_FIELDS):
        return row
    return row[: len(_FIELDS)] + [False] * (len(_FIELDS) - len(row))


def _index(queue: QueueRef, ended: State | None) -> str:
    keys = keys_of(queue)
    return keys.jobs if ended is None else keys.ended(ended)
