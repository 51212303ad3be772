"""Bounds on how many named things a tenant has, which hold over all processes of the service."""

import asyncio
import hashlib
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from penstock.core.errors import StoreTimeoutError
from penstock.service.errors import BusyError, QuotaError
from penstock.stores.protocol import Clock, Shelves
from penstock.stores.values import EVERYONE

HELD_SECONDS: Final = 60.0
"""How long a reservation counts whose process died before it could take the reservation back."""
LONGEST: Final = 30.0
"""Seconds that adding may take: well within the time for which the reservation counts."""
TRIES: Final = 200
AGAIN: Final = 60.0
"""Seconds after which it may be tried again: somebody has to remove something first."""
MOST_RESERVED: Final = 3_500
"""Names that are being added to one tenant at the same time: as many as an entry of the store can hold."""
_SHORTEST, _LONGEST_WAIT = 0.002, 0.05


class _Backend(Shelves, Clock, Protocol):
    """What is needed of a store."""


class _Reservation(msgspec.Struct, frozen=True, array_like=True):
    """Names that a process is about to add, as digests; they count until then by the store's clock."""

    id: str
    until: int
    digests: tuple[str, ...]


class Reservations:
    """Names that are about to be added, in one entry of the store per tenant and kind.

    Whoever adds reads the entry, then counts what is there, and writes its own names into the entry only if
    nobody changed the entry since. What another process adds meanwhile is therefore either in the entry, or
    in the count, or has changed the entry. An entry stays when it is empty: an entry that is written anew
    could not be told from one that never was there.
    """

    def __init__(self, store: _Backend) -> None:
        self._store = store
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def reserve(
        self,
        tenant: str,
        kind: str,
        names: Collection[str],
        most: int,
        existing: Callable[[], Awaitable[Collection[str]]],
    ) -> AsyncIterator[None]:
        """Room for these names for the time of the block, which adds them; QuotaError when there is none.

        `kind` is the name of the quota, and `existing` says which names the tenant has.
        """
        key = (tenant, kind)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            mine = await self._write(tenant, kind, names, most, existing)
            limit = asyncio.timeout(LONGEST)
            try:
                async with limit:
                    yield
            except TimeoutError:
                if not limit.expired():
                    raise
                raise StoreTimeoutError(f"the store took more than {LONGEST:g} s to add {kind}") from None
            finally:
                if mine is not None:
                    await self._take_back(tenant, kind, mine)

    async def _write(
        self,
        tenant: str,
        kind: str,
        names: Collection[str],
        most: int,
        existing: Callable[[], Awaitable[Collection[str]]],
    ) -> str | None:
        """The id of the reservation; None when all of the names are there already."""
        mine, wanted = secrets.token_hex(8), _digests(names)
        for turn in range(TRIES):
            version, reserved = await self._read(tenant, kind)
            there = _digests(await existing())
            new = wanted - there
            if not new:
                return None
            now = await self._store.now()
            live = [each for each in reserved if each.until > now]
            others = there.union(*(each.digests for each in live))
            if len(others | new) > most:
                found = f"{len(others)} and {len(new - others)} more"
                raise QuotaError.of(kind, found, f"at most {most}: the tenant's quota", AGAIN)
            if sum(len(each.digests) for each in live) + len(new) > MOST_RESERVED:
                break
            until = now + round(HELD_SECONDS * 1000)
            live.append(_Reservation(mine, until, tuple(sorted(new))))
            if await self._change(tenant, kind, live, version):
                return mine
            await _pause(turn)
        raise BusyError(f"{kind}: too many are being added at the same time")

    async def _take_back(self, tenant: str, kind: str, mine: str) -> None:
        for turn in range(TRIES):
            version, reserved = await self._read(tenant, kind)
            left = [each for each in reserved if each.id != mine]
            if len(left) == len(reserved) or await self._change(tenant, kind, left, version):
                return
            await _pause(turn)

    async def _read(self, tenant: str, kind: str) -> tuple[int, list[_Reservation]]:
        entry = await self._store.kept(EVERYONE, _shelf(kind), tenant)
        if entry is None:
            return 0, []
        return entry.version, msgspec.json.decode(entry.body, type=list[_Reservation])

    async def _change(self, tenant: str, kind: str, reserved: list[_Reservation], version: int) -> bool:
        body = msgspec.json.encode(reserved)
        return await self._store.keep(EVERYONE, _shelf(kind), tenant, body, expected=version) is not None


def _digests(names: Collection[str]) -> set[str]:
    """Short and of one length, so that many have room in an entry."""
    return {hashlib.blake2b(name.encode(), digest_size=6).hexdigest() for name in names}


def _shelf(kind: str) -> str:
    return f"reserved-{kind}"


async def _pause(turn: int) -> None:
    await asyncio.sleep(random.uniform(_SHORTEST, min(_LONGEST_WAIT, _SHORTEST * 2 ** min(turn, 5))))
