"""Reading hashes, lists and sorted sets from end to end, in pages."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from penstock.core.errors import StoreError
from penstock.stores.redis.reads import CHUNK, scored
from penstock.stores.redis.server import Server
from penstock.stores.redis.shapes import pairs

PAGE: Final = 2_000
"""Entries of a list or a sorted set that are read at once."""
_LISTS_AT_ONCE: Final = 10
"""Lists whose first pages are read in one round trip."""
_VALUES_AT_ONCE: Final = 20
"""Fields that one page has where a server cannot leave out their values, which may be large."""


class PageReader:
    """Reads whole keys page by page. What comes, goes or moves meanwhile may be missed or come twice."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._has_novalues = True

    async def hash(self, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        """The fields of a hash and their values."""
        cursor = 0
        while True:
            answer = await self._server.command("HSCAN", key, cursor, "COUNT", CHUNK)
            yield pairs(answer[1])
            cursor = int(answer[0])
            if cursor == 0:
                return

    async def fields(self, key: str) -> AsyncIterator[list[bytes]]:
        """The fields of a hash alone."""
        cursor = 0
        while True:
            cursor, fields = await self._fields(key, cursor)
            yield fields
            if cursor == 0:
                return

    async def _fields(self, key: str, cursor: int) -> tuple[int, list[bytes]]:
        if self._has_novalues:
            try:
                answer = await self._server.command("HSCAN", key, cursor, "COUNT", CHUNK, "NOVALUES")
            except StoreError as error:
                if "syntax error" not in str(error):
                    raise
                # Redis before 7.4 does not know the word.
                self._has_novalues = False
            else:
                return int(answer[0]), answer[1]
        answer = await self._server.command("HSCAN", key, cursor, "COUNT", _VALUES_AT_ONCE)
        return int(answer[0]), answer[1][::2]

    async def scores(self, key: str) -> AsyncIterator[list[tuple[bytes, int]]]:
        """The members of a sorted set and their scores; none is missed that stays where it is."""
        after, size = (float("-inf"), b""), PAGE
        while True:
            low = "-inf" if not after[1] else repr(after[0])
            command = ("ZRANGE", key, low, "+inf", "BYSCORE", "LIMIT", 0, size, "WITHSCORES")
            entries = [(score, member) for member, score in scored(await self._server.command(*command))]
            fresh = [entry for entry in entries if entry > after]
            if fresh:
                yield [(member, int(score)) for score, member in fresh]
                after = fresh[-1]
            if len(entries) < size:
                return
            # More than a page of the same score, all seen, would be asked for for ever.
            size = PAGE if fresh else size * 2

    async def sets(self, keys: Sequence[str]) -> AsyncIterator[tuple[int, list[bytes]]]:
        """The members of many sorted sets, with the place of their set among the keys."""
        for start in range(0, len(keys), CHUNK):
            some = keys[start : start + CHUNK]
            sizes = await self._server.commands([("ZCARD", key) for key in some])
            for at, (key, size) in enumerate(zip(some, sizes, strict=True), start):
                if size:
                    async for page in self.scores(key):
                        yield at, [member for member, _ in page]

    async def lists(self, keys: Sequence[str]) -> AsyncIterator[tuple[int, list[bytes]]]:
        """The entries of many lists of pending jobs, with the place of their list among the keys."""
        for start in range(0, len(keys), _LISTS_AT_ONCE):
            some = keys[start : start + _LISTS_AT_ONCE]
            firsts = await self._server.commands([("LRANGE", key, 0, PAGE - 1) for key in some])
            for at, (key, page) in enumerate(zip(some, firsts, strict=True), start):
                if page:
                    yield at, page
                if len(page) == PAGE:
                    async for more in self._rest(key, page[-1]):
                        yield at, more

    async def _rest(self, key: str, last: bytes) -> AsyncIterator[list[bytes]]:
        """What follows an entry that was found at the end of a list's first page."""
        start = PAGE - 1
        while True:
            page = await self._page(key, start)
            # Claims take entries from the left meanwhile: go back to where the last one would stand now.
            while start and (not page or _is_behind(page[0], last)):
                start = max(0, start - PAGE)
                page = await self._page(key, start)
            if last in page:
                fresh = page[page.index(last) + 1 :]
            else:
                fresh = [entry for entry in page if _is_behind(entry, last)]
            if fresh:
                yield fresh
                last = fresh[-1]
            if len(page) < PAGE:
                return
            start += len(page) - 1

    async def _page(self, key: str, start: int) -> list[bytes]:
        page: list[bytes] = await self._server.command("LRANGE", key, start, start + PAGE - 1)
        return page


def _is_behind(entry: bytes, other: bytes) -> bool:
    """True when an entry has the later place; False where a damaged one has none."""
    try:
        return int(entry.partition(b" ")[0]) > int(other.partition(b" ")[0])
    except ValueError:
        return False
