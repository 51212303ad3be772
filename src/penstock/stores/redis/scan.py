"""What Spark reads of this store: all records of a queue in pages, as columns named as a job's fields."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.errors import StoreFormatError
from penstock.core.job import Options, QueueRef
from penstock.core.states import State
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec.jobs import Record
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.reads import scored
from penstock.stores.scan_request import COLUMNS_IN_MORE, headers_text

_FIELDS: Final = Record.__struct_fields__
_SIDE_HASHES: Final = {"payload": "payloads", "result": "results", "error": "errors", "progress": "progress"}
"""Columns that stand in hashes of their own; of an error, the record has the first line."""
_OPTIONAL: Final = frozenset(
    {"key", "idempotency_key", "visible_at", "deadline", "ended_at", "worker", "reason", "fingerprint"}
)
"""Columns whose fields in a record are false where the job has none."""
_read: Final = msgspec.msgpack.Decoder(list[Any]).decode


class JobPage(msgspec.Struct, frozen=True):
    """Jobs, with the fields of their records as scripts write them: false stands for what is not there.

    `side` has what was wanted of the hashes beside the records.
    """

    ids: list[str]
    fields: dict[str, Sequence[Any]]
    side: dict[str, Sequence[bytes | None]]

    def column(self, name: str) -> Sequence[Any]:
        """A field of all jobs of the page; None for what a job does not have, times as milliseconds."""
        match name:
            case "id":
                return self.ids
            case "payload" | "result" | "progress":
                return [None if each is None else each.decode() for each in self.side[_SIDE_HASHES[name]]]
            case "max_attempts":
                return [_max_attempts(each) for each in self.fields["options"]]
            case "error":
                return [
                    None if first is False else first if rest is None else first + rest.decode()
                    for first, rest in zip(self.fields["error"], self.side["errors"], strict=True)
                ]
        if name in COLUMNS_IN_MORE:
            return [_extra(each, name) for each in self.fields["extra"]]
        values = self.fields[name]
        return [None if each is False else each for each in values] if name in _OPTIONAL else values

    def job(self, at: int) -> "JobPage":
        """The page with the job at one place only."""
        return JobPage(
            [self.ids[at]],
            {name: [values[at]] for name, values in self.fields.items()},
            {name: [values[at]] for name, values in self.side.items()},
        )


Sieve = Callable[[JobPage], Sequence[int]]
"""The places of the jobs of a page that are wanted, by their records alone."""


class RedisScan:
    """Walks an index from its oldest entry on: all jobs by enqueue, or those of an ended state by ending."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server

    async def size(self, queue: QueueRef, ended: State | None) -> int:
        """How many entries there are."""
        return int(await self._server.command("ZCARD", _index(queue, ended)))

    async def spans(
        self, queue: QueueRef, ended: State | None, size: int, jobs: int
    ) -> list[tuple[int, int]]:
        """First and last times of spans with about so many jobs each, from 0 to the newest entry's time.

        `size` is how many entries the index was found to have; an index without entries has no span.
        """
        count = -(-size // jobs)
        cuts = sorted({size * at // count for at in range(1, count)} - {0})
        times = await self._times(queue, ended, [*cuts, -1])
        if not times:
            return []
        *found, newest = times
        starts = sorted({0, *found})
        ends = [*(start - 1 for start in starts[1:]), newest]
        return list(zip(starts, ends, strict=True))

    async def _times(self, queue: QueueRef, ended: State | None, at: Sequence[int]) -> list[int]:
        """The times of the entries at these places, where there are any; -1 is the last one's."""
        index = _index(queue, ended)
        answers = await self._server.commands([("ZRANGE", index, each, each, "WITHSCORES") for each in at])
        return [int(time) for answer in answers for _, time in scored(answer)]

    async def pages(
        self,
        queue: QueueRef,
        ended: State | None,
        first: int,
        last: int,
        *,
        columns: Iterable[str] = (),
        sieve: Sieve | None = None,
        size: int = 1_000,
    ) -> AsyncIterator[JobPage]:
        """Jobs whose time is from `first` to `last`, each at most once.

        `columns` names those that are wanted; all that stand in records are always there. With a `sieve` the
        others are fetched only for the jobs that it keeps.
        """
        side = frozenset(_SIDE_HASHES[name] for name in columns if name in _SIDE_HASHES)
        index, after, page_size = _index(queue, ended), (first, ""), size
        while True:
            command = ("ZRANGE", index, after[0], last, "BYSCORE", "LIMIT", 0, page_size, "WITHSCORES")
            answer = scored(await self._server.command(*command))
            entries = [(int(time), job.decode()) for job, time in answer]
            fresh = [entry for entry in entries if entry > after]
            for start in range(0, len(fresh), size):
                chunk = fresh[start : start + size]
                if side and sieve is not None:
                    page = await self._records(queue, ended, chunk, frozenset())
                    wanted = {page.ids[at] for at in sieve(page)}
                    chunk = [entry for entry in chunk if entry[1] in wanted]
                if chunk:
                    yield await self._records(queue, ended, chunk, side)
            if len(entries) < page_size:
                return
            # More than a page of the same time, all seen, would be read again for ever.
            page_size = size if fresh else page_size * 2
            after = fresh[-1] if fresh else after

    async def _records(
        self, queue: QueueRef, ended: State | None, entries: Sequence[tuple[int, str]], side: frozenset[str]
    ) -> JobPage:
        keys, hashes = keys_of(queue), sorted(side)
        ids = [job for _, job in entries]
        packed, *beside = await self._server.commands(
            [("HMGET", getattr(keys, name), *ids) for name in ("records", *hashes)], at_once=bool(hashes)
        )
        rows = [
            None if each is None else _row(queue, job, each) for job, each in zip(ids, packed, strict=True)
        ]
        place = _FIELDS.index("enqueued_at" if ended is None else "ended_at")
        # Others are gone since the index was read, and perhaps back under the same id.
        present = [
            at
            for at, (row, (time, _)) in enumerate(zip(rows, entries, strict=True))
            if row is not None and row[place] == time
        ]
        if len(present) < len(rows):
            ids = [ids[at] for at in present]
            rows = [rows[at] for at in present]
            beside = [[column[at] for at in present] for column in beside]
        columns = zip(*rows, strict=True) if rows else ([] for _ in _FIELDS)
        return JobPage(ids, dict(zip(_FIELDS, columns, strict=True)), dict(zip(hashes, beside, strict=True)))


def _row(queue: QueueRef, job: str, packed: bytes) -> list[Any]:
    """A record with a value for every field that this version knows, and no others."""
    try:
        row = _read(packed)
    except DECODE_ERRORS as error:
        raise StoreFormatError(f"job {job} of queue {queue}: its record cannot be read: {error}") from None
    if len(row) == len(_FIELDS):
        return row
    return row[: len(_FIELDS)] + [False] * (len(_FIELDS) - len(row))


def _index(queue: QueueRef, ended: State | None) -> str:
    keys = keys_of(queue)
    return keys.jobs if ended is None else keys.ended(ended)


def _extra(extra: Any, name: str) -> Any:
    """A member of the record's `extra`, which few jobs have."""
    value = extra.get(name) if extra else None
    if name == "headers":
        return headers_text(msgspec.convert(value, dict[str, str] | None))
    return [f"{queue}/{job}" for queue, job in value] if name == "parents" and value else value or None


@lru_cache(maxsize=1024)
def _max_attempts(options: str) -> int:
    return msgspec.json.decode(options, type=Options).max_attempts
